package ways

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"headstart/rpc"
)

// TestEachWayFetchesItsBlocks: what a way returns without an error has been verified,
// so that only one that skips the block would pass here and be wrong.
func TestEachWayFetchesItsBlocks(t *testing.T) {
	rpc.LogKitex(slog.New(slog.DiscardHandler))
	const size, count = 8 << 10, 4
	b, err := Open(t.TempDir(), size, count)
	if err != nil {
		t.Fatal(err)
	}
	if b.Count() != count {
		t.Fatalf("%d blocks", b.Count())
	}
	for name, c := range map[string]struct {
		serve func(net.Listener) error
		dial  func(addr string) (Way, error)
	}{
		"hop": {func(ln net.Listener) error { return b.ServeHop(ln, nil) }, func(addr string) (Way, error) { return Hop(addr, size, count, nil) }},
		"tcp": {b.ServeTCP, func(addr string) (Way, error) {
			return TCP(size, func() (net.Conn, error) { return net.Dial("tcp", addr) }), nil
		}},
		"kitex":       {b.ServeKitex, func(addr string) (Way, error) { return Kitex(addr, size) }},
		"kitex-gonet": {b.ServeKitexGonet, func(addr string) (Way, error) { return KitexGonet(addr, size) }},
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := Listen()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.serve(ln); err != nil {
				t.Fatal(err)
			}
			open, err := c.dial(ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if err := reachable(ln.Addr().String()); err != nil { // Kitex listens in its own time
				t.Fatal(err)
			}
			fetch, err := open()
			if err != nil {
				t.Fatal(err)
			}
			dst := make([]byte, size)
			for i := range uint64(count) {
				if err := fetch(i, dst); err != nil {
					t.Errorf("block %d: %v", i, err)
				}
			}
			if fetch(count, dst) == nil {
				t.Error("a block that is not there")
			}
		})
	}
}

// reachable waits for a listener.
func reachable(addr string) (err error) {
	var c net.Conn
	for range 100 {
		if c, err = net.DialTimeout("tcp", addr, time.Second); err == nil {
			return c.Close()
		}
	}
	return err
}
