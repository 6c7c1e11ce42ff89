package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"headstart/engine/block"
)

// front returns an S3 client of a BE.
func (c *testCluster) front(be int, id, secret string) *awss3.Client {
	return awss3.New(awss3.Options{
		BaseEndpoint: aws.String(fmt.Sprintf("http://127.0.0.1:%d", c.bes[be].line.S3Port)), Region: "us-east-1", UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(id, secret, ""), Retryer: aws.NopRetryer{},
	})
}

// frontRead reads the object of a tablet with an S3 client.
func (c *testCluster) frontRead(client *awss3.Client, tablet int) error {
	out, err := client.GetObject(context.Background(), &awss3.GetObjectInput{
		Bucket: aws.String("bucket"), Key: aws.String(fmt.Sprintf("data/%d", tablet)),
	})
	if err != nil {
		return err
	}
	defer out.Body.Close()
	body, err := io.ReadAll(out.Body)
	if err == nil && !bytes.Equal(body, c.data[tablet-1]) {
		err = fmt.Errorf("%d bytes, not those of the object", len(body))
	}
	return err
}

// TestCF03_FrontFollowsItsKeys: who may read is what the keys say now; without any,
// whoever has the object store's own pair.
func TestCF03_FrontFollowsItsKeys(t *testing.T) {
	c := startCluster(t, nil, readers)
	own, other := c.front(0, c.confs[0].String("s3_access_key"), c.confs[0].String("s3_secret_key")), c.front(0, "other", "pair")
	check := func(when string, client *awss3.Client, code string) {
		t.Helper()
		err := c.frontRead(client, 1)
		if code == "" && err != nil || code != "" && (err == nil || !strings.Contains(err.Error(), code)) {
			t.Errorf("%s: %v, want %q", when, err, code)
		}
	}
	set := func(key, value string) {
		t.Helper()
		if err := c.update(c.web(0), key, value); err != nil {
			t.Fatal(err)
		}
	}
	check("no keys: own pair", own, "")
	check("no keys: another pair", other, "InvalidAccessKeyId")
	check("no keys: a wrong secret", c.front(0, c.confs[0].String("s3_access_key"), "wrong"), "SignatureDoesNotMatch")
	set("s3_front_keys", `[{"access_key":"other","secret_key":"pair","paths":["bucket/data/"]}]`)
	check("given keys: own pair", own, "InvalidAccessKeyId")
	check("given keys: the pair", other, "")
	set("s3_front_keys", `[{"access_key":"other","secret_key":"pair","paths":["bucket/else"]}]`)
	check("another prefix", other, "AccessDenied")
	set("s3_front_keys", "")
	check("no keys again", own, "")
	if shown := c.get(c.web(0), "/api/show_config?conf_item=s3_front_keys"); strings.Contains(shown, "pair") {
		t.Errorf("the secrets are shown: %s", shown)
	}
}

// TestS18_FrontsShareOneCopy: whichever BE of a group an S3 client asks, the object
// is read from object storage once, by the BE that the FE has chosen.
func TestS18_FrontsShareOneCopy(t *testing.T) {
	c := startCluster(t, map[string]string{"s3_front_anonymous": "read", "object_storage_get_max_blocks": "16"}, readers, readers, readers)
	read := func(be, tablet int) string {
		t.Helper()
		resp, err := c.client.Get(fmt.Sprintf("http://127.0.0.1:%d/bucket/data/%d", c.bes[be].line.S3Port, tablet))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Equal(body, c.data[tablet-1]) {
			t.Errorf("be %d, object %d: status %d, %d bytes, %v", be, tablet, resp.StatusCode, len(body), err)
		}
		return resp.Header.Get("X-Headstart-Source")
	}
	const objects = 30
	sources := map[string]int{}
	for tablet := 1; tablet <= objects; tablet++ {
		sources["first "+read(tablet%3, tablet)]++
		sources["second "+read((tablet+1)%3, tablet)]++
		sources["third "+read((tablet+2)%3, tablet)]++
	}
	gets := c.store.Metrics().GETs
	t.Logf("%v, %d GETs", sources, gets)
	if sources["second s3"]+sources["third s3"] > objects/10 {
		t.Errorf("where the answers came from: %v", sources)
	}
	if gets > objects*3/2 { // an object is four blocks: one GET each, and a hedge now and then
		t.Errorf("%d GETs for %d objects", gets, objects)
	}
}

// TestS14_WriteIsKnownToTheOwner: an object that is written through one BE is what
// the next read of any BE that is to hold it gives, though that knew another one.
func TestS14_WriteIsKnownToTheOwner(t *testing.T) {
	fake := httptest.NewServer(gofakes3.New(s3mem.New(), gofakes3.WithTimeSkewLimit(0)).Server())
	t.Cleanup(fake.Close)
	c := startCluster(t, map[string]string{"s3_endpoint": fake.URL, "s3_front_revalidate_ms": "-1"}, readers, readers)
	if _, err := c.front(0, "a", "b").CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: aws.String("bucket")}); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		key := aws.String(fmt.Sprintf("new/%d", i))
		for version := range 3 {
			text := fmt.Sprintf("object %d version %d", i, version)
			_, err := c.front(0, "a", "b").PutObject(t.Context(), &awss3.PutObjectInput{Bucket: aws.String("bucket"), Key: key, Body: strings.NewReader(text)})
			if err != nil {
				t.Fatal(err)
			}
			owner := c.bes[0].front.Place(t.Context(), block.ExternalRoute(block.Object{Store: block.DefaultStore, Bucket: "bucket", Key: *key}))
			ask := []int{0}
			if owner != (block.Addr{}) {
				ask = []int{1, 0}
			}
			for _, be := range ask {
				out, err := c.front(be, "a", "b").GetObject(t.Context(), &awss3.GetObjectInput{Bucket: aws.String("bucket"), Key: key})
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(out.Body)
				if err != nil || string(got) != text {
					t.Errorf("be %d has %q, %v; %q was written", be, got, err, text)
				}
			}
		}
	}
}

// TestS18_AnyFrontAnswersAlike: the header of an object is the same at each BE,
// those included that have learned of it from a peer, which does not tell all.
func TestS18_AnyFrontAnswersAlike(t *testing.T) {
	fake := httptest.NewServer(gofakes3.New(s3mem.New(), gofakes3.WithTimeSkewLimit(0)).Server())
	t.Cleanup(fake.Close)
	c := startCluster(t, map[string]string{"s3_endpoint": fake.URL, "s3_front_anonymous": "read"}, readers, readers, writers)
	client := c.front(0, "a", "b")
	if _, err := client.CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: aws.String("bucket")}); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		key, text := fmt.Sprintf("new/%d", i), strings.Repeat("x", 1000+i)
		if _, err := client.PutObject(t.Context(), &awss3.PutObjectInput{
			Bucket: aws.String("bucket"), Key: &key, Body: strings.NewReader(text),
			ContentType: aws.String("text/x-test"), Metadata: map[string]string{"color": "blue"},
		}); err != nil {
			t.Fatal(err)
		}
		var first string
		for n := range c.bes {
			resp, err := c.client.Get(fmt.Sprintf("http://127.0.0.1:%d/bucket/%s", c.bes[(i+n)%len(c.bes)].line.S3Port, key))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close() // it has been read
			h := resp.Header
			if err != nil || string(body) != text || h.Get("Content-Type") != "text/x-test" || h.Get("x-amz-meta-color") != "blue" {
				t.Errorf("object %d: %d bytes, %v, header %v", i, len(body), err, h)
			}
			// This store tells the version of a bucket without versions to a HEAD only.
			for _, own := range []string{"Date", "Age", "X-Headstart-Source", "X-Amz-Request-Id", "X-Amz-Version-Id"} {
				h.Del(own)
			}
			if said := fmt.Sprint(h); first == "" {
				first = said
			} else if said != first {
				t.Errorf("object %d: one BE says %s, another %s", i, first, said)
			}
		}
	}
}
