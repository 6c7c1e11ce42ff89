package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"

	"headstart/bench/peerhop/ways"
	"headstart/rpc"
)

// serve is the serving process.
func serve(args []string) error {
	flags := flag.NewFlagSet("peerhop serve", flag.ContinueOnError)
	size := flags.Int("block", 1<<20, "block size in bytes")
	total := flags.Int("bytes", 256<<20, "bytes of all blocks together")
	profile := flags.String("profile", "", "file for a CPU profile")
	if err := flags.Parse(args); err != nil {
		return err
	}
	rpc.LogKitex(slog.New(slog.DiscardHandler))
	dir, err := os.MkdirTemp("", "peerhop")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	blocks, err := ways.Open(dir, *size, *total / *size)
	if err != nil {
		return err
	}
	h := ways.Hello{Addrs: map[string]string{}, Blocks: blocks.Count(), Dir: dir}
	if err := serveAll(h, blocks); err != nil {
		return err
	}
	if *profile != "" {
		stop, err := startProfile(*profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	return ways.Answer(h, ways.UsageOfSelf)
}

// serveAll serves the blocks in all ways, and notes where.
func serveAll(h ways.Hello, blocks *ways.Blocks) error {
	if err := writeCerts(h.Dir); err != nil {
		return err
	}
	secure, err := bareTLS(h.Dir)
	if err != nil {
		return err
	}
	for way, start := range map[string]func(net.Listener) error{
		"hop":           func(ln net.Listener) error { return blocks.ServeHop(ln, nil) },
		"hop-tls":       func(ln net.Listener) error { return blocks.ServeHop(ln, hopTLS(h.Dir)) },
		"tcp":           blocks.ServeTCP,
		"tls":           func(ln net.Listener) error { return blocks.ServeTCP(tls.NewListener(ln, secure)) },
		"kitex-netpoll": blocks.ServeKitex,
		"kitex-gonet":   blocks.ServeKitexGonet,
	} {
		ln, err := ways.Listen()
		if err != nil {
			return err
		}
		h.Addrs[way] = ln.Addr().String()
		if err := start(ln); err != nil {
			return err
		}
	}
	return nil
}

// dial returns the way of that name to where h says that blocks of the given
// size are served.
func dial(name string, h ways.Hello, size int) (ways.Way, error) {
	addr := h.Addrs[name]
	switch name {
	case "hop":
		return ways.Hop(addr, size, h.Blocks, nil)
	case "hop-tls":
		return ways.Hop(addr, size, h.Blocks, hopTLS(h.Dir))
	case "tcp":
		return ways.TCP(size, func() (net.Conn, error) { return net.Dial("tcp", addr) }), nil
	case "tls":
		secure, err := bareTLS(h.Dir)
		return ways.TCP(size, func() (net.Conn, error) { return tls.Dial("tcp", addr, secure) }), err
	case "kitex-netpoll":
		return ways.Kitex(addr, size)
	case "kitex-gonet":
		return ways.KitexGonet(addr, size)
	}
	return nil, fmt.Errorf("there is no way %q", name)
}
