package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
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

// TestS18_FrontsShareOneCopy: what one BE of a group has read for its S3 clients,
// another one gets from it, and object storage is asked once.
func TestS18_FrontsShareOneCopy(t *testing.T) {
	c := startCluster(t, map[string]string{"s3_front_anonymous": "read"}, readers, readers)
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
	sources := map[string]int{}
	for tablet := 1; tablet <= 20; tablet++ {
		first := read(0, tablet)
		second := read(1, tablet)
		sources[first+" then "+second]++
	}
	t.Logf("%v, %d GETs", sources, c.store.Metrics().GETs)
}
