// Package block holds the nouns that every other package of Headstart speaks
// in: objects and their versions, blocks and runs of blocks, checksums,
// borrowed bytes (Lease, Buf), and the requests and replies of a read.
//
// It owns no memory of its own, starts no goroutine, does no I/O and imports
// nothing of ours: whatever two packages must agree on is agreed on here.
package block

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// Object names one object of one object store. It says nothing about the
// object's contents: those belong to a Version.
type Object struct {
	// Store is the resource id of the object store, "s3" for the default one.
	Store string
	// Bucket and Key are the store's own names.
	Bucket, Key string
}

// DefaultStore is the resource id of the object store of a node that has one.
const DefaultStore = "s3"

// String returns the object in the form that ParsePath reads.
func (o Object) String() string { return o.Store + "://" + o.Bucket + "/" + o.Key }

// ParsePath reads "s3://bucket/key", or a bare key of defaultBucket when that
// is not empty. s3a and s3n, which other readers of the same objects write, mean
// the same: one object is cached once. The error names the path and says what
// would be right.
func ParsePath(path, defaultBucket string) (Object, error) {
	scheme, rest, found := strings.Cut(path, "://")
	switch {
	case found && isS3(scheme):
	case found && isScheme(scheme):
		return Object{}, fmt.Errorf("path %q: want s3://bucket/key (s3a and s3n mean the same); this node reads from no other kind of store", path)
	case defaultBucket == "":
		return Object{}, fmt.Errorf("path %q: want s3://bucket/key (no default bucket is configured)", path)
	default:
		rest = defaultBucket + "/" + strings.TrimPrefix(path, "/")
	}
	bucket, key, _ := strings.Cut(rest, "/")
	if bucket == "" || key == "" {
		return Object{}, fmt.Errorf("path %q: want s3://bucket/key with a bucket and a key", path)
	}
	return Object{Store: DefaultStore, Bucket: bucket, Key: key}, nil
}

func isS3(scheme string) bool {
	return strings.EqualFold(scheme, "s3") || strings.EqualFold(scheme, "s3a") || strings.EqualFold(scheme, "s3n")
}

// isScheme tells a scheme from the beginning of a key that has "://" in it. None
// at all is taken for a slip.
func isScheme(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r|0x20 < 'a' || r|0x20 > 'z') && (r < '0' || r > '9') && r != '+' && r != '-' && r != '.'
	})
}

// Version tells two contents of one object apart: the ETag without quotes,
// else size and modification time, or Immutable. "" means not known.
type Version string

// Immutable is the version of files that are written once under a name that
// is never used again, as the files of a tablet are.
const Immutable Version = "immutable"

// SizeUnknown is the size of an object that no reply has told us of.
const SizeUnknown = -1

// Meta is what is known of one version of an object.
type Meta struct {
	// Size is in bytes; SizeUnknown until a reply has told it.
	Size int64
	// Version is part of the identity of the object's blocks.
	Version Version
	// ETag is the store's, without quotes, "" when it gave none. It is kept
	// beside Version because immutable objects have one as well.
	ETag string
	// Modified is the store's Last-Modified, zero when it gave none.
	Modified time.Time
	// ContentType is the store's, as it gave it.
	ContentType string
	// Extra has the store's other headers of the object, each as "Name: value" and a
	// line feed; ExtraUnkept when they are more than are kept. Only the store's own
	// replies tell them.
	Extra string
}

// ExtraUnkept stands for headers that are too many to be kept.
const ExtraUnkept = "\n"

// Known reports whether blocks of the object can be named and cut.
func (m Meta) Known() bool { return m.Size >= 0 && m.Version != "" }

// UnknownMeta is the Meta of an object that nothing is known of but, for
// immutable ones, the version.
func UnknownMeta(v Version) Meta { return Meta{Size: SizeUnknown, Version: v} }

// VersionOf returns the version that a store's headers give: the ETag, else
// size and modification time.
func VersionOf(etag string, size int64, modified time.Time) Version {
	if etag != "" {
		return Version(etag)
	}
	return Version(fmt.Sprintf("%d-%d", size, modified.UnixNano()))
}

// ID names one block of one version of one object. It is the first 128 bits
// of a SHA-256 over store, bucket, key and version, each behind its length,
// and the block's number: short enough for an index without pointers, and
// too wide for two objects to meet by accident or by intent.
type ID struct {
	Hi, Lo uint64
	// Index is the block's number, the offset divided by the block size.
	Index uint64
}

// BaseID returns the ID of block 0 of the given version of o. The caller
// keeps it for the whole read: only Index differs between its blocks.
func BaseID(o Object, v Version) ID {
	var buf [256]byte
	b := buf[:0]
	for _, s := range [...]string{o.Store, o.Bucket, o.Key, string(v)} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	sum := sha256.Sum256(b)
	return ID{Hi: binary.BigEndian.Uint64(sum[:8]), Lo: binary.BigEndian.Uint64(sum[8:16])}
}

// At returns the ID of block index of the same object and version.
func (id ID) At(index uint64) ID { return ID{Hi: id.Hi, Lo: id.Lo, Index: index} }

// String is for logs and errors.
func (id ID) String() string { return fmt.Sprintf("%016x%016x/%d", id.Hi, id.Lo, id.Index) }
