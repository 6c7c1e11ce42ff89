package s3law

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"github.com/johannesboyne/gofakes3"
)

// bucket is a read-only gofakes3.Backend. The one that gofakes3 brings would
// hold every byte a second time.
type bucket struct {
	name    string
	created time.Time
	files   []file
	byKey   map[string]*file
}

// file is an object and its MD5.
type file struct {
	Object
	hash []byte
}

var _ gofakes3.Backend = (*bucket)(nil)

func (f *file) etag() string { return gofakes3.FormatETag(f.hash) }

// contents hands out its bytes in one piece: embedded, the reader keeps its
// WriteTo, which io.Copy prefers to a buffer of its own.
type contents struct{ *bytes.Reader }

// Close implements io.Closer.
func (contents) Close() error { return nil }

// ListBuckets implements gofakes3.Backend.
func (b *bucket) ListBuckets() ([]gofakes3.BucketInfo, error) {
	return []gofakes3.BucketInfo{{Name: b.name, CreationDate: gofakes3.NewContentTime(b.created)}}, nil
}

// BucketExists implements gofakes3.Backend.
func (b *bucket) BucketExists(name string) (bool, error) { return name == b.name, nil }

// ListBucket implements gofakes3.Backend; the whole list is one page.
func (b *bucket) ListBucket(name string, prefix *gofakes3.Prefix, page gofakes3.ListBucketPage) (*gofakes3.ObjectList, error) {
	if name != b.name {
		return nil, gofakes3.BucketNotFound(name)
	}
	if !page.IsEmpty() {
		return nil, gofakes3.ErrInternalPageNotImplemented
	}
	if prefix == nil {
		prefix = &gofakes3.Prefix{}
	}
	list := gofakes3.NewObjectList()
	var match gofakes3.PrefixMatch
	for i := range b.files {
		f := &b.files[i]
		switch {
		case !prefix.Match(f.Key, &match):
		case match.CommonPrefix:
			list.AddPrefix(match.MatchedPart)
		default:
			list.Add(&gofakes3.Content{
				Key:          f.Key,
				LastModified: gofakes3.NewContentTime(b.created),
				ETag:         f.etag(),
				Size:         int64(len(f.Data)),
			})
		}
	}
	return list, nil
}

// GetObject implements gofakes3.Backend.
func (b *bucket) GetObject(name, key string, asked *gofakes3.ObjectRangeRequest) (*gofakes3.Object, error) {
	o, f, err := b.object(name, key)
	if err != nil {
		return nil, err
	}
	data := f.Data
	if o.Range, err = asked.Range(o.Size); err != nil {
		return nil, err
	}
	if o.Range != nil {
		data = data[o.Range.Start : o.Range.Start+o.Range.Length]
	}
	o.Contents = contents{bytes.NewReader(data)}
	return o, nil
}

// HeadObject implements gofakes3.Backend.
func (b *bucket) HeadObject(name, key string) (*gofakes3.Object, error) {
	o, _, err := b.object(name, key)
	return o, err
}

func (b *bucket) object(name, key string) (*gofakes3.Object, *file, error) {
	if name != b.name {
		return nil, nil, gofakes3.BucketNotFound(name)
	}
	f, ok := b.byKey[key]
	if !ok {
		return nil, nil, gofakes3.KeyNotFound(key)
	}
	return &gofakes3.Object{
		Name: key,
		Size: int64(len(f.Data)),
		Hash: f.hash,
		Metadata: map[string]string{
			"Last-Modified": b.created.UTC().Format(http.TimeFormat),
			"Content-Type":  "application/octet-stream",
		},
		Contents: contents{bytes.NewReader(nil)},
	}, f, nil
}

// CreateBucket and all that follow would change the bucket: they are refused.
func (b *bucket) CreateBucket(string) error { return gofakes3.ErrMethodNotAllowed }

// DeleteBucket implements gofakes3.Backend.
func (b *bucket) DeleteBucket(string) error { return gofakes3.ErrMethodNotAllowed }

// ForceDeleteBucket implements gofakes3.Backend.
func (b *bucket) ForceDeleteBucket(string) error { return gofakes3.ErrMethodNotAllowed }

// DeleteObject implements gofakes3.Backend.
func (b *bucket) DeleteObject(string, string) (gofakes3.ObjectDeleteResult, error) {
	return gofakes3.ObjectDeleteResult{}, gofakes3.ErrMethodNotAllowed
}

// PutObject implements gofakes3.Backend.
func (b *bucket) PutObject(string, string, map[string]string, io.Reader, int64, *gofakes3.PutConditions) (gofakes3.PutObjectResult, error) {
	return gofakes3.PutObjectResult{}, gofakes3.ErrMethodNotAllowed
}

// DeleteMulti implements gofakes3.Backend.
func (b *bucket) DeleteMulti(string, ...string) (gofakes3.MultiDeleteResult, error) {
	return gofakes3.MultiDeleteResult{}, gofakes3.ErrMethodNotAllowed
}

// CopyObject implements gofakes3.Backend.
func (b *bucket) CopyObject(string, string, string, string, map[string]string) (gofakes3.CopyObjectResult, error) {
	return gofakes3.CopyObjectResult{}, gofakes3.ErrMethodNotAllowed
}
