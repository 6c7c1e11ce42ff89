package s3

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// TestHitOnTheWireAllocatesNothing: from the request on a socket to the answer on
// it, what one block in the cache answers allocates nothing, in the server's loop
// neither. What several answer allocates the list of them: nobody is watched or
// waited for.
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
	c, err := net.Dial("tcp", w.addr)
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(time.Minute)))
	buf := make([]byte, 3*mb+4096)
	for _, k := range []struct{ from, to int64 }{{0, 1}, {5, 1029}, {0, 3 << 10}, {1, 20 << 10}, {0, copyBytes}, {0, 64 << 10}, {100, mb - 1}, {0, mb}, {mb - 1, mb + 1}, {5, 2 * mb}, {0, 3 * mb}} {
		request := []byte("GET /data/k?x-id=GetObject HTTP/1.1\r\nHost: a\r\nRange: " + rangeOf(k.from, k.to) + "\r\n\r\n")
		ask := func() []byte {
			_, err := c.Write(request)
			must(t, err)
			n, body := 0, -1
			for body < 0 || n < body+int(k.to-k.from) {
				got, err := c.Read(buf[n:])
				if n += got; err != nil && err != io.EOF || got == 0 {
					t.Fatalf("%d bytes, %v", n, err)
				}
				if body < 0 {
					if end := bytes.Index(buf[:n], []byte("\r\n\r\n")); end >= 0 {
						body = end + 4
					}
				}
			}
			return buf[body:n]
		}
		if got := ask(); !bytes.Equal(got, data[k.from:k.to]) {
			t.Errorf("%d to %d: %d bytes, wrong", k.from, k.to, len(got))
		}
		if n := testing.AllocsPerRun(200, func() { ask() }); n > 0 && (n > 2 || k.to-k.from <= mb && k.from/mb == (k.to-1)/mb) {
			t.Errorf("%d to %d: %v allocations", k.from, k.to, n)
		}
	}
}
