package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"headstart/bench/peerhop/ways"
	"headstart/engine/block"
	"headstart/pools"
	"headstart/rpc"
	"headstart/rpc/kitex_gen/headstart"
)

const (
	crowdSize = 8
	crowdConn = 256
	// replySize is more than a reply has bytes.
	replySize = callSize + 4<<10
)

// crowd is the nodes that call, each with no more connections than a node has to
// another by default. What they send is what nodes send, but it is made once
// and not by Kitex: it is the serving side that is to have too much to do.
type crowd struct {
	conns []net.Conn
	// free are the connections without a call.
	free chan *caller
	mu   struct {
		sync.Mutex
		all []outcome
	}
	// start is when the phase began, set while no call runs; running are its calls.
	start   time.Time
	running sync.WaitGroup
}

// caller is one connection; the one who took it from free has it until it has
// written its request, then its own goroutine has it.
type caller struct {
	conn  net.Conn
	frame []byte
	began time.Time
	// calling is set from the request to the answer.
	calling atomic.Bool
}

// outcome is how one call ended; one without an answer has no status.
type outcome struct {
	status block.Status
	// came is when in its phase the call was made, took how long the answer was
	// in coming, held how long the server says that it has had the request.
	came, took, held time.Duration
}

func newCrowd(to string) (*crowd, error) {
	f := &crowd{free: make(chan *caller, crowdSize*crowdConn)}
	for n := range crowdSize {
		frame, err := recordedCall(fmt.Sprint("client", n))
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		for range crowdConn {
			conn, err := net.Dial("tcp", to)
			if err != nil {
				return nil, errors.Join(err, f.close())
			}
			f.conns = append(f.conns, conn)
			go f.listen(&caller{conn: conn, frame: frame}) // ends with its connection
		}
	}
	return f, nil
}

func (f *crowd) close() (err error) {
	for _, c := range f.conns {
		err = errors.Join(err, c.Close())
	}
	return err
}

// recordedCall returns what a node of that name sends to ask for the block of
// the device.
func recordedCall(name string) ([]byte, error) {
	ln, err := ways.Listen()
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	to, err := block.ParseAddr(ln.Addr().String())
	if err != nil {
		return nil, err
	}
	buffers, err := pools.NewBuffers(pools.BuffersOptions{Name: "blocks", BlockSize: callSize})
	if err != nil {
		return nil, err
	}
	c, err := rpc.NewClient(rpc.ClientOptions{Identity: ways.Identity(name), Alloc: buffers.Get})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), ways.CallTimeout)
	defer cancel()
	s, err := c.FetchFrom(ctx, to, &block.Fetch{
		Object: ways.Object(), Meta: block.Meta{Size: callSize, Version: block.Immutable}, BlockSize: callSize, Run: block.NewRun(0, 1),
	})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	conn, err := ln.Accept()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return readFrame(conn, make([]byte, replySize))
}

// readFrame reads a message with the length in front of it into b.
func readFrame(r io.Reader, b []byte) ([]byte, error) {
	if _, err := io.ReadFull(r, b[:4]); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(b)) + 4
	if n > int64(len(b)) {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	_, err := io.ReadFull(r, b[4:n])
	return b[:n], err
}

// listen reads the answers of one connection.
func (f *crowd) listen(c *caller) {
	r, b := bufio.NewReaderSize(c.conn, replySize), make([]byte, replySize)
	for {
		f.free <- c
		reply, err := readFrame(r, b)
		if !c.calling.Swap(false) {
			return
		}
		o := outcome{came: c.began.Sub(f.start), took: time.Since(c.began)}
		if err == nil {
			o.status, o.held, err = readAnswer(reply)
		}
		f.note(o)
		if err != nil {
			return
		}
	}
}

func (f *crowd) note(o outcome) {
	f.mu.Lock()
	f.mu.all = append(f.mu.all, o)
	f.mu.Unlock()
	f.running.Done()
}

// readAnswer returns what a reply says of its only block, and how long the
// request has waited.
func readAnswer(frame []byte) (block.Status, time.Duration, error) {
	head := 4 + 4 + 4 + int(binary.BigEndian.Uint32(frame[8:])) + 4
	if head > len(frame) {
		return 0, 0, io.ErrUnexpectedEOF
	}
	var r headstart.PeerFetchBlocksResult
	if _, err := r.FastRead(frame[head:]); err != nil {
		return 0, 0, err
	}
	if r.Success == nil || r.Success.Failure != nil || len(r.Success.Blocks) != 1 {
		return 0, 0, errors.New("a reply without a block")
	}
	return block.Status(r.Success.Blocks[0].Status), time.Duration(r.Success.GetWaitedUs()) * time.Microsecond, nil
}

// offer makes the calls of one phase and waits for their answers. late is how
// late the calls were made, sorted.
func (f *crowd) offer(p phase) (all []outcome, late []time.Duration) {
	rate := p.times * float64(capacity)
	without := 0
	f.start = time.Now()
	for next := time.Duration(0); next < p.lasts; {
		next += time.Duration(rand.ExpFloat64() * float64(time.Second) / rate)
		time.Sleep(next - time.Since(f.start))
		select {
		case c := <-f.free:
			f.running.Add(1)
			c.began = time.Now()
			c.calling.Store(true)
			late = append(late, c.began.Sub(f.start)-next)
			if _, err := c.conn.Write(c.frame); err != nil {
				c.conn.Close() // ends the wait for the answer
			}
		default:
			without++
		}
	}
	f.running.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	all, f.mu.all = f.mu.all, nil
	slices.Sort(late)
	return append(all, make([]outcome, without)...), late
}

// ruler measures how late the timers of a process are: what a machine that has
// other things to do adds to everything that is done in time.
type ruler struct {
	mu struct {
		sync.Mutex
		late []time.Duration
	}
}

// rulerStep is how often a ruler looks.
const rulerStep = 2 * time.Millisecond

// run measures until the process ends.
func (r *ruler) run() {
	for {
		due := time.Now().Add(rulerStep)
		time.Sleep(rulerStep)
		late := time.Since(due)
		r.mu.Lock()
		r.mu.late = append(r.mu.late, late)
		r.mu.Unlock()
	}
}

// p99 returns how late all but one in a hundred timers were at most since it
// was asked last.
func (r *ruler) p99() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	late := r.mu.late
	r.mu.late = nil
	slices.Sort(late)
	if len(late) == 0 {
		return 0
	}
	return late[len(late)*99/100]
}
