package s3

import (
	"encoding/xml"
	"io"
	"net/http"

	"github.com/valyala/fasthttp"
)

// buckets is the answer to ListBuckets.
type buckets struct {
	XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListAllMyBucketsResult"`
	Owner   struct {
		ID, DisplayName string
	}
	List []struct {
		Name         string
		CreationDate string
	} `xml:"Buckets>Bucket"`
}

// listBuckets answers with the buckets that the caller may see anything of.
func (f *Front) listBuckets(ctx *fasthttp.RequestCtx, r *request) {
	r.own()
	r.kind = passRead
	key := r.caller.key
	if len(key.Paths) == 0 {
		f.pass(ctx, r)
		return
	}
	f.count.passed.Add(1)
	up, e := f.upstream(ctx, r)
	if e != nil {
		f.fail(ctx, r, e)
		return
	}
	defer up.end()
	resp, err := f.Upstream.Forward(up.req)
	if err != nil {
		f.fail(ctx, r, errorOf(err))
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxListBytes)) // what there is of it
		f.identify(ctx)
		ctx.SetStatusCode(resp.StatusCode)
		ctx.SetContentType(resp.Header.Get("Content-Type"))
		ctx.SetBody(body)
		return
	}
	var all buckets
	if err := xml.NewDecoder(io.LimitReader(resp.Body, maxListBytes)).Decode(&all); err != nil {
		f.fail(ctx, r, &Error{Code: codeBadGateway, Message: "The list of buckets can't be read."})
		return
	}
	seen := all.List[:0]
	for _, b := range all.List {
		if key.touches(b.Name) {
			seen = append(seen, b)
		}
	}
	all.List = seen
	body, err := xml.Marshal(all)
	if err != nil {
		f.fail(ctx, r, &Error{Code: codeInternal, Message: err.Error()})
		return
	}
	f.identify(ctx)
	ctx.SetContentType("application/xml")
	ctx.SetBody(append([]byte(xml.Header), body...))
}
