package load

import (
	"context"
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
		http := func(o Options) (Door, error) { return OpenHTTP(t.Context(), o) }
		for name, open := range map[string]func(Options) (Door, error){"http": http, "s3": OpenS3} {
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

// TestReadsEndWithTheirContext: of a node that takes connections and says nothing.
func TestReadsEndWithTheirContext(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	asked := make(chan net.Conn)
	go func() { // ends with ln
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			asked <- conn
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	o := Options{Nodes: []string{ln.Addr().String()}, Bucket: "b", InFlight: 1, Timeout: time.Hour}
	var doors [3]Door
	for i, open := range []func() (Door, error){
		func() (Door, error) { return OpenHTTP(ctx, o) }, func() (Door, error) { return OpenKitex(o) }, func() (Door, error) { return OpenS3(o) },
	} {
		if doors[i], err = open(); err != nil {
			t.Fatal(err)
		}
		defer doors[i].Close()
	}
	ended := make(chan error)
	for _, d := range doors {
		go func() { // ends with ctx
			_, _, err := d.Read(ctx, &Object{Key: "k", Size: 3, Tablet: 1}, Read{0, 0, 3}, make([]byte, 3))
			ended <- err
		}()
	}
	for range doors {
		conn := <-asked
		defer conn.Close()
	}
	cancel()
	for range doors {
		if err := <-ended; err == nil {
			t.Error("a read that nobody has answered was served")
		}
	}
}
