package s3

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// TestHitOnTheWireAllocatesNothing: from the request on a socket to the answer on
// it, what one block in the cache answers allocates nothing, in the server's loop
// neither, whoever asks for it. What several answer allocates the list of them: nobody
// is watched or waited for.
func TestHitOnTheWireAllocatesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("so the race detector runs it, whose pools forget")
	}
	const mb = 1 << 20
	w := newWorld(t, options{blockSize: mb})
	w.settings.RevalidateMS.Store(-1)
	data := content("k", 1, 3*mb)
	w.put("k", data)
	w.get("k", "", data)
	w.flush()
	w.get("k", "", data)
	for _, k := range []struct{ from, to int64 }{{0, 1}, {5, 1029}, {0, 3 << 10}, {1, 20 << 10}, {0, copyBytes}, {0, 64 << 10}, {100, mb - 1}, {0, mb}} {
		w.allocs("unsigned", "GET /data/k?x-id=GetObject HTTP/1.1\r\nHost: a\r\n", k.from, data[k.from:k.to], 0)
	}
	for _, k := range []struct{ from, to int64 }{{mb - 1, mb + 1}, {5, 2 * mb}, {0, 3 * mb}} {
		w.allocs("unsigned", "GET /data/k HTTP/1.1\r\nHost: a\r\n", k.from, data[k.from:k.to], 10) // 2, and what a pool that was just emptied costs
	}
	// Nothing goes without a signature that is right.
	w.settings.Anonymous.Store(uint32(AccessNone))
	for _, query := range []string{"", "?x-id=GetObject", "?x-id=GetObject&x-amz-checksum-mode=ENABLED"} {
		req := w.signed("GET", "/data/k"+query, adminID, adminKey, emptyHash, time.Now(), nil)
		w.allocs("signed"+query, textOf(req), 7, data[7:1000], 0)
	}
	long, err := http.NewRequest("GET", "http://"+w.addr+"/data/k?X-Amz-Expires=600", nil)
	must(t, err)
	target, _, err := v4.NewSigner().PresignHTTP(context.Background(), aws.Credentials{AccessKeyID: adminID, SecretAccessKey: adminKey}, long,
		unsigned, "s3", "r", time.Now(), func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	must(t, err)
	where, err := url.Parse(target)
	must(t, err)
	w.allocs("presigned", "GET "+where.RequestURI()+" HTTP/1.1\r\nHost: "+where.Host+"\r\n", 7, data[7:1000], 0)
}

// textOf is the beginning of a request as it is sent.
func textOf(req *http.Request) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s HTTP/1.1\r\nHost: %s\r\n", req.Method, req.URL.RequestURI(), req.URL.Host)
	for name, values := range req.Header {
		fmt.Fprintf(&text, "%s: %s\r\n", name, values[0])
	}
	return text.String()
}

// allocs sends a request, with a Range behind it, over and over: each may allocate
// so often.
func (w *world) allocs(who, request string, from int64, want []byte, most float64) {
	t := w.t
	t.Helper()
	c, err := net.Dial("tcp", w.addr)
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(patience)))
	buf := make([]byte, len(want)+4096)
	text := []byte(request + "Range: " + rangeOf(from, from+int64(len(want))) + "\r\n\r\n")
	ask := func() []byte {
		_, err := c.Write(text)
		must(t, err)
		n, body := 0, -1
		for body < 0 || n < body+len(want) {
			got, err := c.Read(buf[n:])
			if n += got; err != nil && err != io.EOF || got == 0 {
				t.Fatalf("%s: %q, %v", who, buf[:n], err)
			}
			if body < 0 {
				if end := bytes.Index(buf[:n], []byte("\r\n\r\n")); end >= 0 {
					body = end + 4
				}
			}
		}
		return buf[body:n]
	}
	if got := ask(); !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, wrong", who, len(got))
	}
	if n := testing.AllocsPerRun(200, func() { ask() }); n > most {
		t.Errorf("%s, %d bytes: %v allocations", who, len(want), n)
	}
}
