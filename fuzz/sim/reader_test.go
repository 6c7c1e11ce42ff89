package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"headstart/engine/block"
	"headstart/fuzz/fault"
)

const (
	// revalidate is the longest external_revalidate_ms of switches.
	revalidate = time.Second
	// fillTimeout bounds what one answer of a peer can take.
	fillTimeout = time.Second
	// aftermath is how long a fault of object storage may be felt: its slowest
	// failure, and as long again for whoever came last to wait for it.
	aftermath = 3 * time.Second
	// longest is how long a read may take, whatever the faults; longer is a hang.
	longest = time.Minute
)

// read is one read of one reader, and what became of it.
type read struct {
	l            *life
	node         string
	o            *stored
	offset, size int64 // a negative size is up to the end
	begin, end   time.Duration
	got          []byte
	err          error
	// cancelled: the reader has given up, or the node was killed.
	cancelled bool
}

// reader reads on its node until span is over, every choice drawn from rng.
func (w *world) reader(n *node, rng *rand.Rand, span time.Duration) {
	for w.now() < span {
		time.Sleep(time.Duration(rng.Int64N(int64(400 * time.Millisecond))))
		r := read{o: w.bucket.objects[rng.IntN(len(w.bucket.objects))]}
		r.offset = rng.Int64N(int64(len(r.o.current().data)) + 1 + rng.Int64N(blockSize)) // past the end, now and then
		switch rng.IntN(4) {
		case 0:
			r.size = -1
		case 1:
			r.size = 1 + rng.Int64N(12*blockSize)
		default:
			r.size = 1 + rng.Int64N(3*blockSize)
		}
		if r.l, r.node = n.enter(), n.name; r.l != nil {
			r.do(rng)
			if wrong := r.judge(w.plan, w.tight); wrong != "" {
				w.fail("%s: %s", &r, wrong)
			}
			w.reads.Add(1)
			if r.err != nil {
				w.failed.Add(1)
			}
			r.l.leave()
		}
	}
}

// do reads, in one of the ways there are.
func (r *read) do(rng *rand.Rand) {
	w := r.l.n.w
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if rng.IntN(6) == 0 {
		timer := time.AfterFunc(time.Duration(rng.Int64N(int64(60*time.Millisecond))), cancel)
		defer timer.Stop()
	}
	req := &block.Read{
		Object: r.o.Object, Route: r.o.route, Offset: r.offset, Size: r.size,
		Kind: block.Kind(rng.IntN(4)), Queue: block.Queue(rng.IntN(4)), QueryID: "q", NoPeer: rng.IntN(10) == 0,
	}
	if r.o.tablet {
		req.Version = block.Immutable
	}
	r.begin = w.now()
	if r.size > 0 && rng.IntN(2) == 0 {
		dst := make([]byte, r.size)
		var n int
		n, _, r.err = r.l.engine.Read(ctx, req, dst)
		r.got = dst[:n]
	} else {
		r.stream(ctx, req, rng)
	}
	r.end = w.now()
	r.cancelled = ctx.Err() != nil || r.l.ctx.Err() != nil
}

// stream reads block by block, at a reader's pace.
func (r *read) stream(ctx context.Context, req *block.Read, rng *rand.Rand) {
	s, err := r.l.engine.Open(ctx, req)
	if err != nil {
		r.err = err
		return
	}
	defer s.Close()
	for {
		v, err := s.Next(ctx)
		if err != nil {
			if err != io.EOF {
				r.err = err
			}
			return
		}
		if rng.IntN(8) == 0 {
			time.Sleep(time.Duration(rng.Int64N(int64(20 * time.Millisecond))))
		}
		part := make([]byte, v.To-v.From)
		n, err := v.Lease.CopyAt(part, v.From)
		if err != nil {
			r.l.n.w.fail("%s: bytes that it has lent can't be read: %v", r.l.id, err)
		}
		v.Lease.Release()
		r.got = append(r.got, part[:n]...)
	}
}

// judge holds a read against the truth and says what is wrong, "" when nothing
// is. Whatever happened, its bytes are those of one version that was current while
// it ran, or as long before as a node may go without asking; and it fails only for
// a reason.
func (r *read) judge(plan *fault.Plan, tight bool) string {
	versions := r.o.between(r.begin-revalidate-fillTimeout, r.end)
	right, whole := len(r.got) == 0, false
	for _, v := range versions {
		rest := v.data[min(r.offset, int64(len(v.data))):]
		if r.size >= 0 {
			rest = rest[:min(r.size, int64(len(rest)))]
		}
		if bytes.HasPrefix(rest, r.got) {
			right = true
			whole = whole || len(rest) == len(r.got)
		}
	}
	switch {
	case r.end-r.begin > longest:
		return "it took too long"
	case !right:
		return "wrong bytes: " + r.o.identify(r)
	case r.err == nil && !whole:
		return fmt.Sprintf("%d bytes are not all", len(r.got))
	case r.err != nil && !r.excused(versions, plan, tight):
		return "no reason to fail: " + r.err.Error()
	}
	return ""
}

// excused reports whether a read may fail as it has.
func (r *read) excused(versions []version, plan *fault.Plan, tight bool) bool {
	past := slices.ContainsFunc(versions, func(v version) bool { return r.offset >= int64(len(v.data)) })
	switch {
	case errors.Is(r.err, block.ErrNotFound):
		return false
	case errors.Is(r.err, block.ErrRange):
		return past
	case r.cancelled:
		return true
	case errors.Is(r.err, block.ErrChanged):
		return len(versions) > 1
	case errors.Is(r.err, block.ErrBusy) && tight:
		return true
	}
	return plan.Active(fault.DoorStore, r.node, r.begin-aftermath, r.end)
}

// String says what was read, and when.
func (r *read) String() string {
	return fmt.Sprintf("read on %s of %s from %d, %d bytes, from %v to %v", r.node, r.o.Key, r.offset, r.size, r.begin, r.end)
}

// identify finds out whose the bytes of a read are, run by run.
func (o *stored) identify(r *read) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var text strings.Builder
	fmt.Fprintf(&text, "%d versions;", len(o.mu.versions))
	for from := 0; from < len(r.got); {
		longest, best := 0, version{}
		for _, v := range o.mu.versions {
			rest := v.data[min(r.offset+int64(from), int64(len(v.data))):]
			n := 0
			for n < min(len(rest), len(r.got)-from) && rest[n] == r.got[from+n] {
				n++
			}
			if n > longest {
				longest, best = n, v
			}
		}
		if longest == 0 {
			fmt.Fprintf(&text, " from %d on of none (%x)", r.offset+int64(from), r.got[from:min(len(r.got), from+48)])
			break
		}
		fmt.Fprintf(&text, " %d of %s, current since %v;", longest, best.etag, best.since)
		from += longest
	}
	return text.String()
}
