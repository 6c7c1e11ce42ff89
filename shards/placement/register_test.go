package placement

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// countingStore keeps nothing, counts what it is told, and fails on demand.
type countingStore struct {
	saves, backends int
	err             error
}

func (s *countingStore) Load(_ context.Context, clusterID string) (State, error) {
	return State{ClusterID: clusterID, LastID: 10_000}, nil
}

func (s *countingStore) Save(_ context.Context, c Change) error {
	s.saves++
	s.backends += len(c.Backends)
	return s.err
}

func beat(i int) Heartbeat {
	return Heartbeat{NodeID: fmt.Sprint("n", i), Host: fmt.Sprintf("10.0.%d.%d", i/200, 1+i%200), BrpcPort: 8060,
		GroupID: fmt.Sprint("cg", i%3), Started: time.Unix(1000, 0)}
}

// registerAll lets backends register that all have to wait for a change under way.
func registerAll(d *Directory, beats []Heartbeat) (ids []int64, errs []error) {
	ids, errs = make([]int64, len(beats)), make([]error, len(beats))
	d.change.Lock()
	var all sync.WaitGroup
	for i, h := range beats {
		all.Go(func() {
			reply, err := d.Heartbeat(context.Background(), h)
			ids[i], errs[i] = reply.BackendID, err
		})
	}
	for waiting := 0; waiting < len(beats); runtime.Gosched() {
		d.waiting.Lock()
		waiting = len(d.waiting.list)
		d.waiting.Unlock()
	}
	d.change.Unlock()
	all.Wait()
	return ids, errs
}

// TestS80_RegistrationsAtOnceAreSavedTogether: a cluster starts, and a write of the
// FE's state takes its time.
func TestS80_RegistrationsAtOnceAreSavedTogether(t *testing.T) {
	store := &countingStore{}
	d, err := NewDirectory(t.Context(), store, NewSettings(), Options{MaxBackends: 700})
	if err != nil {
		t.Fatal(err)
	}
	const count = 600
	beats := make([]Heartbeat, count)
	for i := range beats {
		beats[i] = beat(i)
	}
	twice := append(beats, beats[0]) // its first heartbeat was given up
	ids, errs := registerAll(d, twice)
	seen := make(map[int64]bool)
	for i, id := range ids {
		if errs[i] != nil || id <= 10_000 || id > 10_000+count || i < count && seen[id] {
			t.Errorf("backend %d has number %d (%v)", i, id, errs[i])
		}
		seen[id] = true
	}
	if want := (count + maxRegistrations - 1) / maxRegistrations; ids[count] != ids[0] || store.saves > want+1 || store.backends > count+1 {
		t.Errorf("%d saves of %d backends, want %d or %d of %d; the first one's number is %d and %d", store.saves, store.backends, want, want+1, count, ids[0], ids[count])
	}
	if b, g := d.Backends(), d.Groups(); len(b) != count || len(g) != 3 || !b[count-1].Alive || b[0].Tag == "" {
		t.Errorf("%d backends, %d groups", len(b), len(g))
	}

	// Some more are too many: those are refused, and nobody else.
	more := make([]Heartbeat, 200)
	for i := range more {
		more[i] = beat(count + i)
	}
	_, errs = registerAll(d, more)
	full := 0
	for _, err := range errs {
		if errors.Is(err, ErrFull) {
			full++
		} else if err != nil {
			t.Error(err)
		}
	}
	if full != 100 || len(d.Backends()) != 700 {
		t.Errorf("%d of 200 were refused, %d backends are known; the bound is 700", full, len(d.Backends()))
	}
}

// TestS80_TheDiskOfTheFEIsFullWhileManyRegister: who is known goes on, who is new is
// refused.
func TestS80_TheDiskOfTheFEIsFullWhileManyRegister(t *testing.T) {
	store := &countingStore{}
	d, err := NewDirectory(t.Context(), store, NewSettings(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	known, again := []Heartbeat{beat(0), beat(1), beat(2)}, []Heartbeat{}
	registerAll(d, known)
	for i, h := range known {
		h.NodeID, h.Started = fmt.Sprint("again", i), time.Unix(2000, 0)
		again = append(again, h)
	}
	store.err = errors.New("no space left on device")
	_, errs := registerAll(d, append(again, beat(7)))
	for i, err := range errs {
		if (err == nil) != (i < len(again)) {
			t.Errorf("backend %d: %v", i, err)
		}
	}
	store.err, store.backends = nil, 0
	if _, errs = registerAll(d, again); store.backends != len(again) || errors.Join(errs...) != nil {
		t.Errorf("%d backends were saved when the disk was well again (%v)", store.backends, errors.Join(errs...))
	}
}
