package load

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestDoorsOfHTTPReachBothKindsOfAddresses: a node may have an address of IPv6 only.
func TestDoorsOfHTTPReachBothKindsOfAddresses(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Logf("%s: not tried: %v", addr, err) // a machine without IPv6
			continue
		}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("abc")) }))
		_ = server.Listener.Close() // the one that it has chosen
		server.Listener = ln
		server.Start()
		defer server.Close()
		for name, open := range map[string]func(Options) (Door, error){"http": OpenHTTP, "s3": OpenS3} {
			door, err := open(Options{Nodes: []string{ln.Addr().String()}, Bucket: "b", InFlight: 1, Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer door.Close()
			if n, _, err := door.Read(t.Context(), &Object{Key: "k", Size: 3, Tablet: External}, Read{0, 0, 3}, make([]byte, 3)); n != 3 || err != nil {
				t.Errorf("%s at %s: %d bytes, %v", name, ln.Addr(), n, err)
			}
		}
	}
}
