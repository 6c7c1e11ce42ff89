package s3law

import (
	"crypto/md5"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/johannesboyne/gofakes3"
)

// Object is one object that a Server holds.
type Object struct {
	Key string
	// Data is kept, not copied; nobody may change it while the server runs.
	Data []byte
}

// Options are what a Server is made of.
type Options struct {
	// Bucket is the name of the one bucket.
	Bucket  string
	Objects []Object
	Law     Law
	// Listen is the address to listen on, a free port of loopback if it is empty.
	Listen string
}

// Validate says what is wrong with the options.
func (o Options) Validate() error {
	if o.Bucket == "" {
		return fmt.Errorf("s3law: the bucket has no name")
	}
	seen := make(map[string]bool, len(o.Objects))
	for _, obj := range o.Objects {
		if obj.Key == "" || seen[obj.Key] {
			return fmt.Errorf("s3law: key %q: want keys that are not empty and differ", obj.Key)
		}
		seen[obj.Key] = true
	}
	return nil
}

// Server is an S3 server behind the law. It takes any credentials.
type Server struct {
	*Injector
	url  string
	http *http.Server
	done chan struct{}
}

// Start listens and serves until Close.
func Start(o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	files := newBucket(o.Bucket, o.Objects)
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("s3law: %w", err)
	}
	s3 := gofakes3.New(files, gofakes3.WithTimeSkewLimit(0)).Server()
	s := &Server{
		Injector: NewInjector(o.Law, files.checkIfMatch(s3)),
		url:      "http://" + ln.Addr().String(),
		done:     make(chan struct{}),
	}
	s.http = &http.Server{
		Handler: s.Injector, ReadHeaderTimeout: time.Minute,
		// Losers of races hang up: gofakes3 then tries to answer with an error.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() { // ends when Close closes the listener
		defer close(s.done)
		_ = s.http.Serve(ln)
	}()
	return s, nil
}

// URL returns the server's endpoint; its buckets are addressed by path.
func (s *Server) URL() string { return s.url }

// Close cuts all connections and frees the port.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	return err
}

// newBucket computes the ETags as S3 does, on all cores: it is most of the
// time that a start takes.
func newBucket(name string, objects []Object) *bucket {
	b := &bucket{name: name, created: time.Now().Truncate(time.Second), files: make([]file, len(objects))}
	var sums sync.WaitGroup
	for i, o := range objects {
		sums.Go(func() { // ends with its object
			sum := md5.Sum(o.Data)
			b.files[i] = file{Object: o, hash: sum[:]}
		})
	}
	sums.Wait()
	b.byKey = make(map[string]*file, len(objects))
	for i := range b.files {
		b.byKey[b.files[i].Key] = &b.files[i]
	}
	return b
}

// checkIfMatch answers 412 when If-Match names another version: gofakes3 does
// not look at that header of a GET.
func (b *bucket) checkIfMatch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want := r.Header.Get("If-Match")
		name, key := splitPath(r.URL.Path)
		f, found := b.byKey[key]
		if want == "" || want == "*" || name != b.name || !found || matches(want, f.etag()) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusPreconditionFailed)
		if r.Method != http.MethodHead {
			fmt.Fprint(w, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+
				`<Error><Code>PreconditionFailed</Code><Message>If-Match names another version.</Message>`+
				`<Condition>If-Match</Condition></Error>`)
		}
	})
}

// matches looks for etag in a list of quoted or bare tags.
func matches(list, etag string) bool {
	for tag := range strings.SplitSeq(list, ",") {
		if strings.Trim(strings.TrimSpace(tag), `"`) == strings.Trim(etag, `"`) {
			return true
		}
	}
	return false
}
