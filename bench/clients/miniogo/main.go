// Command miniogo uses a bucket with minio-go: put in parts, get, seek, list,
// copy, delete. It is a module of its own, so that the client enters no other.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "minio-go:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, endpoint, bucket string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	c, err := minio.New(u.Host, &minio.Options{Creds: credentials.NewEnvAWS(), Region: "us-east-1", BucketLookup: minio.BucketLookupPath})
	if err != nil {
		return err
	}
	data := make([]byte, 18<<20)
	_, _ = rand.Read(data) // never fails
	const key = "minio/a ü+&"
	if _, err := c.PutObject(ctx, bucket, key, bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{PartSize: 5 << 20}); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	o, err := c.GetObject(ctx, bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	defer o.Close()
	got, err := io.ReadAll(o)
	if err != nil || !bytes.Equal(got, data) {
		return fmt.Errorf("%d bytes of %d, %v", len(got), len(data), err)
	}
	part := make([]byte, 1000)
	if _, err := o.ReadAt(part, 7<<20); err != nil || !bytes.Equal(part, data[7<<20:][:1000]) {
		return fmt.Errorf("range: %v", err)
	}
	n := 0
	for one := range c.ListObjects(ctx, bucket, minio.ListObjectsOptions{Prefix: "minio/", Recursive: true}) {
		if one.Err != nil {
			return fmt.Errorf("list: %w", one.Err)
		}
		n++
	}
	if n != 1 {
		return fmt.Errorf("%d objects are listed", n)
	}
	src, dst := minio.CopySrcOptions{Bucket: bucket, Object: key}, minio.CopyDestOptions{Bucket: bucket, Object: "minio/copy"}
	if _, err := c.CopyObject(ctx, dst, src); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	for _, k := range []string{key, "minio/copy"} {
		if err := c.RemoveObject(ctx, bucket, k, minio.RemoveObjectOptions{}); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
	}
	if _, err := c.StatObject(ctx, bucket, key, minio.StatObjectOptions{}); minio.ToErrorResponse(err).Code != minio.NoSuchKey {
		return errors.Join(errors.New("a deleted object is there"), err)
	}
	fmt.Println("put in parts, get, seek, list, copy, delete")
	return nil
}
