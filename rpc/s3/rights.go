package s3

import (
	"slices"
	"strings"

	"github.com/valyala/fasthttp"
)

// Access is what a caller may do.
type Access uint32

// The kinds of access; each includes those before it.
const (
	AccessNone Access = iota
	AccessRead
	AccessWrite
)

// ParseAccess reads none, read or read_write.
func ParseAccess(text string) (Access, bool) {
	switch text {
	case "none":
		return AccessNone, true
	case "read":
		return AccessRead, true
	case "read_write":
		return AccessWrite, true
	}
	return AccessNone, false
}

// Key is a pair that signs requests, and what its holder may do.
type Key struct {
	ID, Secret string
	Access     Access
	// Paths are buckets, or bucket/prefix for the keys of a bucket that begin so;
	// none means everything.
	Paths []string
}

// Keys are the pairs that a front knows. They never change.
type Keys struct{ byID map[string]*Key }

// NewKeys returns the pairs; of two with the same ID the last one counts.
func NewKeys(list []Key) *Keys {
	keys := &Keys{byID: make(map[string]*Key, len(list))}
	for _, k := range list {
		keys.byID[k.ID] = &k
	}
	return keys
}

// find returns the pair of that ID, nil when there is none.
func (k *Keys) find(id string) *Key {
	if k == nil {
		return nil
	}
	return k.byID[id]
}

// covers reports whether the key's paths hold all keys of a bucket that begin
// with prefix.
func (k *Key) covers(bucket, prefix string) bool {
	if len(k.Paths) == 0 {
		return true
	}
	return slices.ContainsFunc(k.Paths, func(path string) bool {
		in, begin, _ := strings.Cut(path, "/")
		return in == bucket && strings.HasPrefix(prefix, begin)
	})
}

// touches reports whether the key's paths hold anything of a bucket.
func (k *Key) touches(bucket string) bool {
	return len(k.Paths) == 0 || slices.ContainsFunc(k.Paths, func(path string) bool {
		in, _, _ := strings.Cut(path, "/")
		return in == bucket
	})
}

func denied() *Error { return &Error{Code: codeAccessDenied, Message: "Access Denied."} }

// permit checks what the caller may do, once it is known who that is.
func (f *Front) permit(ctx *fasthttp.RequestCtx, r *request) *Error {
	need := AccessRead
	if r.kind == passWrite {
		need = AccessWrite
		if f.Settings.ReadOnly.Load() {
			return &Error{Code: codeMethodNotAllowed, Message: "This front is read only (s3_front_read_only)."}
		}
	}
	key := r.caller.key
	if key.Access < need {
		return denied()
	}
	if r.kind == readObject { // which copies nothing
		if !key.covers(r.bucket, r.key) {
			return denied()
		}
		return nil
	}
	ok := false
	args := ctx.QueryArgs()
	switch {
	case r.kind == listBuckets:
		ok = true // the list has only what the caller may see
	case r.key != "":
		ok = key.covers(r.bucket, r.key)
	case ctx.IsHead(), args.Has("location"), ctx.IsPost() && args.Has("delete"):
		ok = key.touches(r.bucket)
	case ctx.IsGet() && listing(args):
		ok = key.covers(r.bucket, string(args.Peek("prefix")))
	default:
		ok = key.covers(r.bucket, "")
	}
	if !ok {
		return denied()
	}
	return f.permitSource(ctx, r)
}

// listing reports whether a GET of a bucket lists what begins with a prefix.
func listing(args *fasthttp.Args) bool {
	for name := range args.All() {
		switch string(name) {
		case "acl", "policy", "policyStatus", "lifecycle", "cors", "encryption", "logging", "notification", "replication",
			"tagging", "website", "versioning", "object-lock", "ownershipControls", "publicAccessBlock",
			"accelerate", "requestPayment", "analytics", "inventory", "metrics", "intelligent-tiering":
			return false
		}
	}
	return true
}

// permitSource checks that a copy reads only what its caller may.
func (f *Front) permitSource(ctx *fasthttp.RequestCtx, r *request) *Error {
	source := ctx.Request.Header.Peek("X-Amz-Copy-Source")
	if len(source) == 0 {
		return nil
	}
	bucket, key, ok := copySource(string(source))
	if !ok {
		return &Error{Code: codeInvalidArgument, Message: "Copy Source must mention the source bucket and key: sourcebucket/sourcekey."}
	}
	if !r.caller.key.covers(bucket, key) {
		return denied()
	}
	return nil
}
