package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/valyala/fasthttp"
)

// signed makes a request that the SDK's signer has signed at that time.
func (w *world) signed(method, path, id, secret, payload string, at time.Time, change func(*http.Request)) *http.Request {
	w.t.Helper()
	req, err := http.NewRequest(method, "http://"+w.addr+path, nil)
	must(w.t, err)
	req.Header.Set("X-Amz-Content-Sha256", payload)
	if change != nil {
		change(req)
	}
	creds := aws.Credentials{AccessKeyID: id, SecretAccessKey: secret}
	err = v4.NewSigner().SignHTTP(context.Background(), creds, req, payload, "s3", "eu-test-1", at, func(o *v4.SignerOptions) {
		o.DisableURIPathEscaping = true
	})
	must(w.t, err)
	return req
}

func TestSignatures(t *testing.T) {
	w := newWorld(t, options{})
	w.settings.Anonymous.Store(uint32(AccessNone))
	w.put("a b/c", content("k", 1, 100))
	now := time.Now()
	sign := func(id, secret string, at time.Time, change func(*http.Request)) *http.Request {
		return w.signed("GET", "/data/a%20b/c?x-id=GetObject&empty", id, secret, unsigned, at, change)
	}
	for name, c := range map[string]struct {
		req  *http.Request
		code string
	}{
		"right":      {sign(adminID, adminKey, now, func(r *http.Request) { r.URL.RawQuery = "x-id=GetObject" }), ""},
		"blanks":     {sign(adminID, adminKey, now, func(r *http.Request) { r.URL.RawQuery = ""; r.Header.Set("X-Other", "  a   b  ") }), ""},
		"slow clock": {sign(adminID, adminKey, now.Add(-14*time.Minute), func(r *http.Request) { r.URL.RawQuery = "" }), ""},
		"old":        {sign(adminID, adminKey, now.Add(-16*time.Minute), nil), "RequestTimeTooSkewed"},
		"ahead":      {sign(adminID, adminKey, now.Add(16*time.Minute), nil), "RequestTimeTooSkewed"},
		"wrong key":  {sign(adminID, "another", now, nil), "SignatureDoesNotMatch"},
		"no such id": {sign("nobody", adminKey, now, nil), "InvalidAccessKeyId"},
		"none":       {mustRequest(t, "GET", "http://"+w.addr+"/data/a%20b/c"), "AccessDenied"},
	} {
		resp, body := w.send(c.req)
		if code(body) != c.code && (c.code != "" || resp.StatusCode != 200) {
			t.Errorf("%s: status %d, %s, want %q", name, resp.StatusCode, head(body), c.code)
		}
	}
	for name, change := range map[string]func(*http.Request){
		"another path":    func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/data/a", "" },
		"another query":   func(r *http.Request) { r.URL.RawQuery = "x-id=HeadObject" },
		"another method":  func(r *http.Request) { r.Method = "HEAD" },
		"another host":    func(r *http.Request) { r.Host = "other.test" },
		"another header":  func(r *http.Request) { r.Header.Set("X-Other", "b") },
		"another date":    func(r *http.Request) { r.Header.Set("X-Amz-Date", now.Add(time.Second).UTC().Format(timeFormat)) },
		"another hash":    func(r *http.Request) { r.Header.Set("X-Amz-Content-Sha256", emptyHash) },
		"unsigned header": func(r *http.Request) { r.Header.Set("X-Amz-Meta-Extra", "1") },
	} {
		req := sign(adminID, adminKey, now, func(r *http.Request) { r.URL.RawQuery = ""; r.Header.Set("X-Other", "a") })
		change(req)
		if resp, body := w.send(req); resp.StatusCode != 403 {
			t.Errorf("%s: status %d, %s", name, resp.StatusCode, head(body))
		}
	}
	if m := w.Metrics(); m.Denied < 12 {
		t.Errorf("%d requests were denied", m.Denied)
	}
}

func mustRequest(t *testing.T, method, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	must(t, err)
	return req
}

func TestPresigned(t *testing.T) {
	w := newWorld(t, options{})
	w.settings.Anonymous.Store(uint32(AccessNone))
	data := content("k", 1, 100)
	w.put("a b/ü", data)
	in := &s3.GetObjectInput{
		Bucket: aws.String(testBucket), Key: aws.String("a b/ü"), ResponseContentType: aws.String("text/a+b; c=d"),
	}
	link, err := s3.NewPresignClient(w.sdk(adminID, adminKey)).PresignGetObject(t.Context(), in, s3.WithPresignExpires(time.Minute))
	must(t, err)
	resp, body := w.send(mustRequest(t, "GET", link.URL))
	if resp.StatusCode != 200 || !bytes.Equal(body, data) || resp.Header.Get("Content-Type") != "text/a+b; c=d" {
		t.Errorf("status %d, %s: %s", resp.StatusCode, resp.Header.Get("Content-Type"), head(body))
	}
	for name, url := range map[string]string{
		"changed": strings.Replace(link.URL, "text%2Fa", "text%2Fb", 1),
		"longer":  strings.Replace(link.URL, "Expires=60", "Expires=61", 1),
		"a month": strings.Replace(link.URL, "Expires=60", "Expires=2678400", 1),
		"no time": strings.Replace(link.URL, "X-Amz-Expires=60", "X-Amz-Expires=", 1),
		"no key":  strings.Replace(link.URL, "X-Amz-Credential=ADMIN", "X-Amz-Credential=", 1),
		"v2":      strings.Replace(link.URL, algorithm, "AWS2", 1),
	} {
		if resp, body := w.send(mustRequest(t, "GET", url)); resp.StatusCode != 403 && resp.StatusCode != 400 || len(body) < 50 {
			t.Errorf("%s: status %d, %s", name, resp.StatusCode, head(body))
		}
	}
	for _, late := range []time.Duration{-61 * time.Second, 16 * time.Minute} {
		req := mustRequest(t, "GET", "http://"+w.addr+"/data/k?X-Amz-Expires=60")
		url, _, err := v4.NewSigner().PresignHTTP(t.Context(), aws.Credentials{AccessKeyID: adminID, SecretAccessKey: adminKey}, req,
			unsigned, "s3", "r", time.Now().Add(late))
		must(t, err)
		if resp, body := w.send(mustRequest(t, "GET", url)); resp.StatusCode != 403 || code(body) != "AccessDenied" {
			t.Errorf("%v: status %d, %s", late, resp.StatusCode, body)
		}
	}
	both := mustRequest(t, "GET", link.URL)
	both.Header.Set("Authorization", "AWS4-HMAC-SHA256 x")
	if resp, _ := w.send(both); resp.StatusCode != 400 {
		t.Errorf("two signatures: status %d", resp.StatusCode)
	}
	older := mustRequest(t, "GET", "http://"+w.addr+"/data/k")
	older.Header.Set("Authorization", "AWS ADMIN:abc=")
	if resp, body := w.send(older); resp.StatusCode != 400 || code(body) != "InvalidRequest" {
		t.Errorf("version 2: status %d, %s", resp.StatusCode, body)
	}
}

func TestRights(t *testing.T) {
	w := newWorld(t, options{})
	w.settings.Anonymous.Store(uint32(AccessNone))
	w.settings.Keys.Store(NewKeys([]Key{
		{ID: "reader", Secret: "r", Access: AccessRead, Paths: []string{testBucket + "/pub/"}},
		{ID: "writer", Secret: "w", Access: AccessWrite, Paths: []string{testBucket + "/pub/"}},
		{ID: "other", Secret: "o", Access: AccessWrite, Paths: []string{"data2"}},
		{ID: adminID, Secret: adminKey, Access: AccessWrite},
	}))
	w.put("pub/a", []byte("a"))
	w.put("priv/a", []byte("a"))
	does := w.deeds()
	may := map[string]string{
		"reader": "get pub,list pub,head bucket", "writer": "get pub,list pub,put pub,head bucket", "other": "",
		adminID: "get pub,get priv,list pub,list all,put pub,put priv,copy priv,delete,head bucket",
	}
	for id, list := range may {
		c := w.sdk(id, map[string]string{"reader": "r", "writer": "w", "other": "o", adminID: adminKey}[id])
		for name, do := range does {
			err := do(c)
			if want := strings.Contains(","+list+",", ","+name+","); (err == nil) != want {
				t.Errorf("%s: %s: %v", id, name, err)
			}
			if api, ok := errors.AsType[smithy.APIError](err); err != nil && (!ok || api.ErrorCode() != "AccessDenied" && api.ErrorCode() != "Forbidden") {
				t.Errorf("%s: %s: %v", id, name, err)
			}
		}
		out, err := c.ListBuckets(t.Context(), &s3.ListBucketsInput{})
		if err != nil || (len(out.Buckets) == 1) != (id != "other") {
			t.Errorf("%s: sees %d buckets, %v", id, len(out.Buckets), err)
		}
	}
	w.settings.ReadOnly.Store(true)
	if err := does["put pub"](w.sdk(adminID, adminKey)); err == nil {
		t.Error("a front that is read only was written to")
	}
	must(t, does["get priv"](w.sdk(adminID, adminKey)))
}

// deeds are requests that need rights, each by a name.
func (w *world) deeds() map[string]func(c *s3.Client) error {
	t := w.t
	bucket, pub, priv := aws.String(testBucket), aws.String("pub/a"), aws.String("priv/a")
	return map[string]func(c *s3.Client) error{
		"get pub": func(c *s3.Client) error {
			_, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: bucket, Key: pub})
			return err
		},
		"get priv": func(c *s3.Client) error {
			_, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: bucket, Key: priv})
			return err
		},
		"list pub": func(c *s3.Client) error {
			_, err := c.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: bucket, Prefix: aws.String("pub/")})
			return err
		},
		"list all": func(c *s3.Client) error {
			_, err := c.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: bucket})
			return err
		},
		"put pub": func(c *s3.Client) error {
			_, err := c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: bucket, Key: pub, Body: strings.NewReader("x")})
			return err
		},
		"put priv": func(c *s3.Client) error {
			_, err := c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: bucket, Key: priv, Body: strings.NewReader("x")})
			return err
		},
		"copy priv": func(c *s3.Client) error {
			_, err := c.CopyObject(t.Context(), &s3.CopyObjectInput{Bucket: bucket, Key: pub, CopySource: aws.String("data/priv%2Fa")})
			return err
		},
		"delete": func(c *s3.Client) error {
			_, err := c.DeleteObjects(t.Context(), deletesOf("pub/x", "priv/x"))
			return err
		},
		"head bucket": func(c *s3.Client) error {
			_, err := c.HeadBucket(t.Context(), &s3.HeadBucketInput{Bucket: bucket})
			return err
		},
	}
}

// TestChunkSignatures sends bodies in signed chunks, and changes a bit of each
// part of them: only what is right arrives.
func TestChunkSignatures(t *testing.T) {
	w := newWorld(t, options{})
	data := content("k", 1, 70000)
	for _, payload := range []string{streaming, streamingTrailer, streamingUnsigned} {
		key := strings.ToLower(payload)
		body := func() (*http.Request, []byte) {
			req := w.signed("PUT", "/data/"+key, adminID, adminKey, payload, time.Now(), func(r *http.Request) {
				r.Header.Set("X-Amz-Decoded-Content-Length", fmt.Sprint(len(data)))
				r.Header.Set("Content-Encoding", "aws-chunked")
				if payload != streaming {
					r.Header.Set("X-Amz-Trailer", "x-amz-checksum-crc32")
				}
			})
			return req, chunksOf(req, data, payload, 30000)
		}
		send := func(change func([]byte) []byte) (*http.Response, []byte) {
			req, chunks := body()
			chunks = change(chunks)
			req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(chunks)), int64(len(chunks))
			return w.send(req)
		}
		_, probe := body()
		for at := 0; at < len(probe); at += max(1, len(probe)/40) {
			if resp, answer := send(func(b []byte) []byte { b[at] ^= 1; return b }); resp.StatusCode < 400 {
				t.Errorf("%s: byte %d of %d flipped: status %d, %s", payload, at, len(probe), resp.StatusCode, answer)
			}
		}
		for _, cut := range []int{1, 40, len(probe) / 2, len(probe) - 1} {
			if resp, _ := send(func(b []byte) []byte { return b[:len(b)-cut] }); resp.StatusCode < 400 && cut > 4 {
				t.Errorf("%s: %d bytes are missing: status %d", payload, cut, resp.StatusCode)
			}
		}
		if resp, _ := w.do("GET", "/data/"+key); resp.StatusCode != 404 && payload != streaming {
			t.Errorf("%s: something wrong was stored: status %d", payload, resp.StatusCode)
		}
		if resp, answer := send(func(b []byte) []byte { return b }); resp.StatusCode != 200 {
			t.Errorf("%s: status %d, %s", payload, resp.StatusCode, answer)
		}
		w.get(key, "", data)
		got := w.store.seen.Load().Header
		if got.Get("Content-Encoding") != "" || (got.Get("X-Amz-Checksum-Crc32") == "") != (payload == streaming) {
			t.Errorf("%s: object storage got Content-Encoding %q, checksum %q", payload, got.Get("Content-Encoding"), got.Get("X-Amz-Checksum-Crc32"))
		}
	}
}

// chunksOf writes data as S3's clients do.
func chunksOf(req *http.Request, data []byte, payload string, size int) []byte {
	s := &signature{}
	_ = s.parseHeader(req.Header.Get("Authorization"), headerOf(req), time.Now()) // it is right
	signing, _ := new(keyCache).get(&Key{Secret: adminKey}, s)
	last := s.given
	sign := func(what, between string, hash []byte) string {
		text := what + "\n" + s.at.Format(timeFormat) + "\n" + string(s.appendScope(nil)) + "\n" + last + "\n" + between + hex.EncodeToString(hash)
		last = hex.EncodeToString(signing.appendSum(nil, []byte(text)))
		return last
	}
	crc := newSum("x-amz-checksum-crc32")
	crc.Write(data)
	var out bytes.Buffer
	for rest := data; ; {
		n := min(size, len(rest))
		fmt.Fprintf(&out, "%x", n)
		if payload != streamingUnsigned {
			hash := sha256.Sum256(rest[:n])
			out.WriteString(";chunk-signature=" + sign("AWS4-HMAC-SHA256-PAYLOAD", emptyHash+"\n", hash[:]))
		}
		out.WriteString("\r\n")
		if n == 0 {
			break
		}
		out.Write(rest[:n])
		out.WriteString("\r\n")
		rest = rest[n:]
	}
	if payload != streaming {
		line := "x-amz-checksum-crc32:" + base64Of(crc.Sum(nil)) + "\n"
		out.WriteString(strings.TrimSuffix(line, "\n") + "\r\n")
		if payload == streamingTrailer {
			hash := sha256.Sum256([]byte(line))
			out.WriteString("x-amz-trailer-signature:" + sign("AWS4-HMAC-SHA256-TRAILER", "", hash[:]) + "\r\n")
		}
	}
	out.WriteString("\r\n")
	return out.Bytes()
}

func headerOf(req *http.Request) *fasthttp.RequestHeader {
	h := &fasthttp.RequestHeader{}
	h.Set("X-Amz-Date", req.Header.Get("X-Amz-Date"))
	return h
}
