package s3

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// read reads an object with the SDK.
func read(t testing.TB, c *s3.Client, key string) string {
	t.Helper()
	out, err := c.GetObject(context.Background(), &s3.GetObjectInput{Bucket: aws.String(testBucket), Key: aws.String(key)})
	if err != nil {
		return err.Error()
	}
	defer out.Body.Close()
	body, err := io.ReadAll(out.Body)
	must(t, err)
	return string(body)
}

// TestWritesAreSeenAtOnce: whatever is written through the front is what the next
// read gets, though what was known before holds for ever.
func TestWritesAreSeenAtOnce(t *testing.T) {
	w := newWorld(t, options{})
	w.settings.RevalidateMS.Store(-1)
	c, bucket := w.sdk(adminID, adminKey), aws.String(testBucket)
	put := func(key, text string) {
		t.Helper()
		_, err := c.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: bucket, Key: aws.String(key), Body: strings.NewReader(text), Metadata: map[string]string{"by": "test"},
		})
		must(t, err)
	}
	for i := range 3 {
		text := fmt.Sprintf("version %d", i)
		put("k", text)
		if got := read(t, c, "k"); got != text {
			t.Errorf("put %d: read %q", i, got)
		}
	}
	_, err := c.CopyObject(t.Context(), &s3.CopyObjectInput{Bucket: bucket, Key: aws.String("copy"), CopySource: aws.String("data/k")})
	must(t, err)
	if got := read(t, c, "copy"); got != "version 2" {
		t.Errorf("copied: %q", got)
	}
	_, err = c.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: bucket, Key: aws.String("k")})
	must(t, err)
	if got := read(t, c, "k"); !strings.Contains(got, "NoSuchKey") {
		t.Errorf("deleted: %q", got)
	}
	put("d1", "1")
	read(t, c, "d1")
	_, err = c.DeleteObjects(t.Context(), deletesOf("d1", "copy"))
	must(t, err)
	for _, key := range []string{"d1", "copy"} {
		if got := read(t, c, key); !strings.Contains(got, "NoSuchKey") {
			t.Errorf("%s was deleted: %q", key, got)
		}
	}
	w.multipart(c)
}

// multipart uploads an object in parts over one that is cached.
func (w *world) multipart(c *s3.Client) {
	t, bucket, key := w.t, aws.String(testBucket), aws.String("big")
	w.put("big", []byte("old"))
	if got := read(t, c, "big"); got != "old" {
		t.Errorf("before: %q", got)
	}
	up, err := c.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: bucket, Key: key})
	must(t, err)
	var parts []types.CompletedPart
	var want []byte
	for i := range int32(3) {
		data := content("big", int(i), 5<<20+int64(i))
		want = append(want, data...)
		part, err := c.UploadPart(t.Context(), &s3.UploadPartInput{
			Bucket: bucket, Key: key, UploadId: up.UploadId, PartNumber: aws.Int32(i + 1), Body: bytes.NewReader(data),
		})
		must(t, err)
		parts = append(parts, types.CompletedPart{ETag: part.ETag, PartNumber: aws.Int32(i + 1)})
	}
	_, err = c.CompleteMultipartUpload(t.Context(), &s3.CompleteMultipartUploadInput{
		Bucket: bucket, Key: key, UploadId: up.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	})
	must(t, err)
	if got := read(t, c, "big"); got != string(want) {
		t.Errorf("after: %d bytes, want %d", len(got), len(want))
	}
}

func TestLists(t *testing.T) {
	w := newWorld(t, options{})
	for i := range 5 {
		w.put(fmt.Sprintf("d/a %d&+", i), []byte("x"))
	}
	w.put("e", []byte("x"))
	c, bucket := w.sdk(adminID, adminKey), aws.String(testBucket)
	pages, keys := s3.NewListObjectsV2Paginator(c, &s3.ListObjectsV2Input{Bucket: bucket, Prefix: aws.String("d/a "), MaxKeys: aws.Int32(2)}), 0
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		must(t, err)
		keys += len(page.Contents)
	}
	if keys != 5 {
		t.Errorf("%d keys in pages", keys)
	}
	v1, err := c.ListObjects(t.Context(), &s3.ListObjectsInput{Bucket: bucket, Delimiter: aws.String("/")})
	if err != nil || len(v1.Contents) != 1 || len(v1.CommonPrefixes) != 1 {
		t.Errorf("version 1: %+v, %v", v1, err)
	}
	where, err := c.GetBucketLocation(t.Context(), &s3.GetBucketLocationInput{Bucket: bucket})
	if err != nil {
		t.Errorf("location: %+v, %v", where, err)
	}
	all, err := c.ListBuckets(t.Context(), &s3.ListBucketsInput{})
	if err != nil || len(all.Buckets) != 1 {
		t.Errorf("buckets: %+v, %v", all, err)
	}
	if _, err := c.HeadBucket(t.Context(), &s3.HeadBucketInput{Bucket: aws.String("none")}); err == nil {
		t.Error("a bucket that does not exist has a head")
	}
}

// TestForwardedRequestsAreSigned: the front behind the front checks what the one
// before it has signed.
func TestForwardedRequestsAreSigned(t *testing.T) {
	back := newWorld(t, options{})
	back.settings.Anonymous.Store(uint32(AccessNone))
	front := newWorld(t, options{front: func(o *Options) {
		o.Upstream = storeOf(t, "http://"+back.addr, adminID, adminKey)
	}})
	c := front.sdk(adminID, adminKey)
	key := "a b/+&=ü~!'()*:@"
	data := content("k", 1, 100000)
	_, err := c.PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: aws.String(testBucket), Key: aws.String(key), Body: bytes.NewReader(data), ContentEncoding: aws.String("identity"),
		Metadata: map[string]string{"x": "a  b"},
	})
	must(t, err)
	if got := read(t, back.sdk(adminID, adminKey), key); got != string(data) {
		t.Errorf("%d bytes arrived", len(got))
	}
	list, err := c.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(testBucket), Prefix: aws.String("a b/+&")})
	if err != nil || len(list.Contents) != 1 {
		t.Errorf("list: %+v, %v", list, err)
	}
	back.settings.Keys.Store(nil)
	resp, body := front.do("GET", "/data?list-type=2")
	if resp.StatusCode != 403 || code(body) != "InvalidAccessKeyId" {
		t.Errorf("status %d, %s: object storage's own words should come through", resp.StatusCode, body)
	}
}

// TestBodiesAreChecked: a body that is not what was signed is not stored.
func TestBodiesAreChecked(t *testing.T) {
	w := newWorld(t, options{})
	w.settings.Anonymous.Store(uint32(AccessWrite))
	data := content("k", 1, 200000)
	for name, c := range map[string]struct {
		header []string
		body   []byte
		status int
		code   string
	}{
		"right hash":              {[]string{"X-Amz-Content-Sha256", sha256Of(data)}, data, 200, ""},
		"wrong hash":              {[]string{"X-Amz-Content-Sha256", sha256Of(data[1:])}, data, 400, "XAmzContentSHA256Mismatch"},
		"no hash":                 {nil, data, 200, ""},
		"nonsense":                {[]string{"X-Amz-Content-Sha256", "abc"}, data, 400, "InvalidArgument"},
		"empty":                   {nil, nil, 200, ""},
		"not so empty":            {[]string{"X-Amz-Content-Sha256", sha256Of(data)}, nil, 400, "IncompleteBody"},
		"signed chunks of nobody": {[]string{"X-Amz-Content-Sha256", streaming}, data, 400, "InvalidRequest"},
		"other chunks":            {[]string{"X-Amz-Content-Sha256", "STREAMING-X", "X-Amz-Decoded-Content-Length", "1"}, data, 501, "NotImplemented"},
	} {
		req, err := http.NewRequest("PUT", "http://"+w.addr+"/data/"+strings.ReplaceAll(name, " ", "-"), bytes.NewReader(c.body))
		must(t, err)
		for i := 0; i < len(c.header); i += 2 {
			req.Header.Set(c.header[i], c.header[i+1])
		}
		resp, body := w.send(req)
		if resp.StatusCode != c.status || code(body) != c.code {
			t.Errorf("%s: status %d, %s", name, resp.StatusCode, body)
		}
		if resp, _ := w.do("GET", req.URL.Path); (resp.StatusCode == 200) != (c.status == 200) {
			t.Errorf("%s: status %d of what was stored", name, resp.StatusCode)
		}
	}
	req, err := http.NewRequest("POST", "http://"+w.addr+"/data?delete", strings.NewReader("<Delete><Object>"))
	must(t, err)
	if resp, body := w.send(req); resp.StatusCode != 400 || code(body) != "MalformedXML" {
		t.Errorf("status %d, %s", resp.StatusCode, body)
	}
}

func TestSpecialReadsGoOn(t *testing.T) {
	w := newWorld(t, options{})
	w.put("k", content("k", 1, 100))
	var passed []string
	fault := func(rw http.ResponseWriter, r *http.Request) bool {
		passed = append(passed, r.URL.RawQuery+r.Header.Get("X-Amz-Server-Side-Encryption-Customer-Algorithm"))
		rw.Header().Set("Content-Type", "text/plain")
		rw.WriteHeader(203)
		_, _ = rw.Write([]byte("passed"))
		return true
	}
	w.store.fault.Store(&fault)
	for _, c := range []struct{ path, header, want string }{
		{"/data/k?versionId=3", "", "versionId=3"}, {"/data/k?partNumber=2", "", "partNumber=2"}, {"/data/k?tagging", "", "tagging="},
		{"/data/k", "AES256", "AES256"},
	} {
		resp, body := w.do("GET", c.path, "X-Amz-Server-Side-Encryption-Customer-Algorithm", c.header)
		if resp.StatusCode != 203 || string(body) != "passed" || passed[len(passed)-1] != c.want {
			t.Errorf("%s: status %d, %q, object storage was asked for %q", c.path, resp.StatusCode, body, passed[len(passed)-1])
		}
	}
}

// TestHT05_DoubtfulFramingIsRefused on this port as on the others: nothing that may
// be a second request runs.
func TestHT05_DoubtfulFramingIsRefused(t *testing.T) {
	w := newWorld(t, options{})
	w.settings.Anonymous.Store(uint32(AccessWrite))
	hidden := "PUT /data/hidden HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"
	for name, text := range map[string]string{
		"length and chunks": "PUT /data/k HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"two lengths":       "PUT /data/k HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 9\r\n\r\n" + hidden,
		"plus":              "PUT /data/k HTTP/1.1\r\nHost: a\r\nContent-Length: +0\r\n\r\n" + hidden,
		"bare LF":           "PUT /data/k HTTP/1.1\nHost: a\nContent-Length: 0\n\n" + hidden,
		"folded":            "PUT /data/k HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n" + hidden,
		"7 GiB":             "PUT /data/k HTTP/1.1\r\nHost: a\r\nContent-Length: 7516192768\r\n\r\n" + hidden,
	} {
		c, err := net.Dial("tcp", w.addr)
		must(t, err)
		must(t, c.SetDeadline(time.Now().Add(patience)))
		_, err = io.WriteString(c, text)
		must(t, err)
		answer, _ := io.ReadAll(c) // to the end of the connection, however that comes
		if !bytes.HasPrefix(answer, []byte("HTTP/1.1 400")) || bytes.Count(answer, []byte("HTTP/1.1 ")) != 1 || code(answer) == "" {
			t.Errorf("%s: %s", name, answer)
		}
		must(t, c.Close())
	}
	if resp, _ := w.do("GET", "/data/hidden"); resp.StatusCode != 404 {
		t.Errorf("a hidden request has run: status %d", resp.StatusCode)
	}
}
