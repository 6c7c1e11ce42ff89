package rpc

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"headstart/engine/block"
)

// cutShort lends bytes of a mapped file that has been cut short, and is told
// when somebody tries to copy them.
type cutShort struct {
	memory
	copied chan struct{}
}

func (c *cutShort) CopyLease(uint64, []byte, int, []byte) (int, error) {
	c.copied <- struct{}{}
	return 0, errors.New("cut short")
}

func TestLC10_BytesThatAreGoneUnderAReplyAreReportedToTheirOwner(t *testing.T) {
	const size = 256 << 10
	name := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mapped, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mapped)
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	owner := &cutShort{copied: make(chan struct{}, 1)}
	reader := whole(testBlock)
	good := reader.serve
	reader.serve = func(ctx context.Context, n block.Node, f *block.Fetch, reply *block.Reply) {
		if f.Object.Key != "gone" {
			good(ctx, n, f, reply)
			return
		}
		reply.Meta = block.Meta{Size: size, Version: "v1"}
		reply.Answers = append(reply.Answers, block.Answer{
			Status: block.StatusData, Lease: block.NewLease(owner, 0, mapped, block.Checksum(make([]byte, size))),
		})
	}
	_, addr := startServer(t, ServerOptions{}, reader)
	client := startClient(t, ClientOptions{}, &memory{})
	ask := fetchOf("gone", size, block.NewRun(0, 1))
	ask.BlockSize = size
	s, err := client.FetchFrom(inTime(t), addr, ask)
	if err == nil {
		err = drain(s, func(p block.Piece) { t.Errorf("block %d of a file that is gone", p.Index) })
	}
	if err == io.EOF {
		t.Error("a reply of bytes that are gone ends well")
	}
	<-owner.copied
	fetchOne(t, client, addr)
}
