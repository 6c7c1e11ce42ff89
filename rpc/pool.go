package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"headstart/engine/block"
)

// pool keeps connections to other nodes. It knows an address only while it has
// a connection there, and gives out the one used last, so that those that are
// not needed grow old.
type pool struct {
	connect connector
	tls     *TLS
	idle    time.Duration
	// perAddr bounds the connections of one address.
	perAddr int

	mu struct {
		sync.Mutex
		addrs  map[block.Addr]*connections
		closed bool
	}
	dials, dialErrors atomic.Int64
	stop              chan struct{}
}

// connections are those of one address: all that are open, and of them those
// that are idle, the one used last at the end.
type connections struct {
	open map[*clientConn]struct{}
	idle []*clientConn
	// dialing counts connections that are being made.
	dialing int
}

func newPool(t *TLS, connectTimeout, idle time.Duration, perAddr int) *pool {
	dialer := net.Dialer{
		Timeout:         connectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: idle / 2, Interval: idle / 6, Count: 3},
		Control:         onlyNodes,
	}
	p := &pool{connect: t.over(dialer.DialContext), tls: t, idle: idle, perAddr: perAddr, stop: make(chan struct{})}
	p.mu.addrs = make(map[block.Addr]*connections)
	go p.sweep() // close stops it
	return p
}

// errNoNode is why nothing connects to an address.
var errNoNode = errors.New("an address that no node has")

// onlyNodes looks at the address that a name has turned out to stand for, and
// refuses those that are no node of a cluster: whoever names a candidate, or
// answers for its name, steers our connections, and on link-local addresses
// clouds tell a machine its credentials.
func onlyNodes(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	a := at.Addr().Unmap().WithZone("")
	if err != nil || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() || at.Port() == 0 ||
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || a == netip.MustParseAddr("fd00:ec2::254") {
		return fmt.Errorf("%q: %w", address, errNoNode)
	}
	return nil
}

// get returns a connection to addr for one call.
func (p *pool) get(ctx context.Context, addr block.Addr) (*clientConn, error) {
	for {
		c, err := p.takeIdle(addr)
		if err != nil {
			return nil, err
		}
		if c == nil {
			return p.dial(ctx, addr)
		}
		if time.Since(c.idleSince) < p.idle && c.wanted(p.tls) && c.alive() {
			return c, nil
		}
		p.drop(c)
	}
}

// takeIdle takes the connection used last, or the right to dial when it
// returns nil.
func (p *pool) takeIdle(addr block.Addr) (*clientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return nil, net.ErrClosed
	}
	cs := p.mu.addrs[addr]
	if cs == nil {
		cs = &connections{open: make(map[*clientConn]struct{})}
		p.mu.addrs[addr] = cs
	}
	if n := len(cs.idle); n > 0 {
		c := cs.idle[n-1]
		cs.idle[n-1], cs.idle = nil, cs.idle[:n-1]
		return c, nil
	}
	if len(cs.open)+cs.dialing >= p.perAddr {
		return nil, block.ErrBusy
	}
	cs.dialing++
	return nil, nil
}

func (p *pool) dial(ctx context.Context, addr block.Addr) (*clientConn, error) {
	p.dials.Add(1)
	raw, err := p.connect(ctx, "tcp", addr.String())
	p.mu.Lock()
	defer p.mu.Unlock()
	cs := p.mu.addrs[addr]
	cs.dialing--
	if err == nil && p.mu.closed {
		raw.Close()
		err = net.ErrClosed
	}
	if err != nil {
		p.dialErrors.Add(1)
		p.forgetLocked(addr, cs)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	c := newClientConn(raw, addr)
	cs.open[c] = struct{}{}
	return c, nil
}

// forgetLocked forgets an address that has no connection.
func (p *pool) forgetLocked(addr block.Addr, cs *connections) {
	if len(cs.open) == 0 && cs.dialing == 0 {
		delete(p.mu.addrs, addr)
	}
}

// put takes a connection back whose call has ended well.
func (p *pool) put(c *clientConn) {
	if !p.keep(c) {
		p.drop(c)
	}
}

// keep reports false when the pool is closed.
func (p *pool) keep(c *clientConn) bool {
	c.idleSince = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return false
	}
	cs := p.mu.addrs[c.addr]
	cs.idle = append(cs.idle, c)
	return true
}

// drop closes a connection that get has given out.
func (p *pool) drop(c *clientConn) {
	c.Close()
	c.halt()
	p.mu.Lock()
	defer p.mu.Unlock()
	cs := p.mu.addrs[c.addr]
	delete(cs.open, c)
	p.forgetLocked(c.addr, cs)
}

// sweep closes connections that have been idle for too long.
func (p *pool) sweep() {
	tick := time.NewTicker(p.idle / 2)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case now := <-tick.C:
			p.expire(now.Add(-p.idle))
		}
	}
}

func (p *pool) expire(before time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for addr, cs := range p.mu.addrs {
		n := 0
		for n < len(cs.idle) && cs.idle[n].idleSince.Before(before) {
			cs.idle[n].Close()
			cs.idle[n].halt()
			delete(cs.open, cs.idle[n])
			n++
		}
		cs.idle = append(cs.idle[:0], cs.idle[n:]...)
		clear(cs.idle[len(cs.idle):cap(cs.idle)])
		p.forgetLocked(addr, cs)
	}
}

// counts returns how many connections are open, and how many of them idle.
func (p *pool) counts() (open, idle int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cs := range p.mu.addrs {
		open += len(cs.open)
		idle += len(cs.idle)
	}
	return open, idle
}

// close closes all connections: running calls fail.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return
	}
	p.mu.closed = true
	close(p.stop)
	for _, cs := range p.mu.addrs {
		for c := range cs.open {
			c.Close()
		}
		for _, c := range cs.idle {
			c.halt()
		}
		cs.idle = nil
	}
}
