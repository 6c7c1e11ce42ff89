package rpc

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/cloudwego/gopkg/protocol/thrift"

	"headstart/engine/block"
)

// message returns a frame as it travels.
func message(kind uint32, method string, seq uint32, body []byte) []byte {
	be := binary.BigEndian
	b := be.AppendUint32(nil, uint32(8+len(method)+4+len(body)))
	b = be.AppendUint32(b, kind)
	b = append(be.AppendUint32(b, uint32(len(method))), method...)
	return append(be.AppendUint32(b, seq), body...)
}

// received is a message that has come off a socket.
type received struct {
	method string
	seq    uint32
	body   []byte
}

func readMessage(r io.Reader) (m received, err error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return m, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		return m, err
	}
	name := binary.BigEndian.Uint32(b[4:])
	m.method, b = string(b[8:8+name]), b[8+name:]
	m.seq, m.body = binary.BigEndian.Uint32(b), b[4:]
	return m, nil
}

// said is what a raw peer says of one block.
type said struct {
	index  uint64
	status int32
	length int
	crc    uint32
}

// fetchReply returns the body of a reply to FetchBlocks up to its payload's
// length.
func fetchReply(id *Identity, m block.Meta, blocks []said, payload int) []byte {
	b := appendField(nil, thrift.STRUCT, 0)
	b = append(appendField(b, thrift.STRUCT, repBase), id.now.Load().reply...)
	b = appendMeta(b, repMeta, &m)
	b = appendList(b, repBlocks, thrift.STRUCT, len(blocks))
	for _, s := range blocks {
		b = appendI64(b, 1, int64(s.index))
		b = appendI32(b, 2, s.status)
		b = appendI32(b, 3, int32(s.length))
		b = appendStop(appendI32(b, 4, int32(s.crc)))
	}
	return binary.BigEndian.AppendUint32(appendField(b, thrift.STRING, repPayload), uint32(payload))
}

// ended closes a body whose payload is given.
func ended(body, payload []byte) []byte {
	return append(append(body, payload...), byte(thrift.STOP), byte(thrift.STOP))
}

// startRawPeer answers each message as script does, which may close the
// connection, until the test ends.
func startRawPeer(t testing.TB, script func(c net.Conn, m received)) block.Addr {
	ln := listen(t)
	var running sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			running.Go(func() {
				for {
					m, err := readMessage(c)
					if err != nil {
						return
					}
					script(c, m)
				}
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return addrOf(ln)
}

// dialRaw connects to a server without a client.
func dialRaw(t testing.TB, addr block.Addr) net.Conn {
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
