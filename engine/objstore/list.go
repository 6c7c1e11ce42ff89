package objstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"headstart/engine/block"
)

// Listed is an object that a List has found.
type Listed struct {
	Object block.Object
	Meta   block.Meta
}

// List returns the first max objects whose keys begin with prefix's and come
// behind after, in the order of their keys, and whether there are more.
func (s *Store) List(ctx context.Context, prefix block.Object, after string, max int) ([]Listed, bool, error) {
	retry := retrier{s: s}
	for {
		retry.tried++
		found, more, fail := s.listOnce(ctx, prefix, after, max)
		if fail.err == nil {
			return found, more, nil
		}
		if err := retry.again(ctx, fail); err != nil {
			return nil, false, &block.Error{Op: "list", Object: prefix, Source: block.SourceStore, Err: err}
		}
	}
}

func (s *Store) listOnce(ctx context.Context, prefix block.Object, after string, max int) ([]Listed, bool, failure) {
	a, err := s.begin(ctx)
	if err != nil {
		return nil, false, classify(ctx, err)
	}
	defer a.end()
	in := &s3.ListObjectsV2Input{
		Bucket: aws.String(prefix.Bucket), Prefix: aws.String(prefix.Key), MaxKeys: aws.Int32(int32(min(max, 1000))),
	}
	if after != "" {
		in.StartAfter = aws.String(after)
	}
	out, err := s.client.ListObjectsV2(a.ctx, in)
	if err != nil {
		return nil, false, classify(a.ctx, err)
	}
	s.pacer.served()
	found := make([]Listed, 0, len(out.Contents))
	for _, o := range out.Contents {
		key := aws.ToString(o.Key)
		if !strings.HasPrefix(key, prefix.Key) || key <= after {
			return nil, false, failure{ReasonReply, fmt.Errorf("%w: a list of what begins with %q behind %q has %q", errReply, prefix.Key, after, key)}
		}
		// A GET's Last-Modified has no fractions of seconds.
		modified := aws.ToTime(o.LastModified).Truncate(time.Second)
		m := block.Meta{Size: aws.ToInt64(o.Size), ETag: strings.ReplaceAll(aws.ToString(o.ETag), `"`, ""), Modified: modified}
		m.Version = block.VersionOf(m.ETag, m.Size, m.Modified)
		found = append(found, Listed{Object: block.Object{Store: prefix.Store, Bucket: prefix.Bucket, Key: key}, Meta: m})
	}
	return found, aws.ToBool(out.IsTruncated), failure{}
}
