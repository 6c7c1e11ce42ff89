//go:build linux && amd64 && !race

package guard

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestMain is also the child's.
func TestMain(m *testing.M) {
	if name := os.Getenv("HEADSTART_GUARD"); name != "" {
		paths()[name].child()
	}
	os.Exit(m.Run())
}

// path is a hot path: child sets it up and calls Child.
type path struct {
	child func()
	// limit is what one call may execute. The number of instructions leaves a
	// quarter of room for another compiler; the others are exact.
	limit Counts
}

// paths are the calls to count, with two that test the counting itself.
func paths() map[string]path {
	var word atomic.Int64
	var mu sync.Mutex
	held := 0
	all := map[string]path{
		"nothing": {func() { Child(func() {}) }, Counts{Instructions: 20}},
		"known": {func() {
			Child(func() {
				word.Add(1)   // LOCK XADD
				word.Store(1) // XCHG
				mu.Lock()     // LOCK CMPXCHG
				held++
				mu.Unlock()      // LOCK XADD
				syscall.Getpid() // SYSCALL
				_ = time.Now()   // the clock
			})
		}, Counts{Instructions: 400, Locked: 4, SystemCalls: 1, Clocks: 1}},
	}
	hot(all)
	return all
}

func counted(t *testing.T, name string) Counts {
	t.Helper()
	c, err := Count("HEADSTART_GUARD="+name, "HEADSTART_GUARD_DIR="+t.TempDir())
	if errors.Is(err, ErrNotAllowed) {
		t.Skip("this system lets no process trace its child, which is how instructions are counted")
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return c
}

func TestCountingCounts(t *testing.T) {
	if c := counted(t, "nothing"); c.Instructions < 3 || c.Instructions > 20 || c.Locked+c.SystemCalls+c.Clocks != 0 {
		t.Errorf("nothing: %+v", c)
	}
	c := counted(t, "known")
	if c.Locked != 4 || c.SystemCalls != 1 || c.Clocks != 1 {
		t.Errorf("two atomic operations, a mutex, a system call and the time: %+v", c)
	}
}

func TestKindsOfInstructions(t *testing.T) {
	for text, want := range map[string]kind{
		"\xf0\x48\x0f\xc1\x01\x90": locked, "\x48\x87\x01\x90": locked, "\x48\x87\xc1\x90": plain, "\x0f\x05\x90\x90": systemCall,
		"\x48\x89\xe5\x90": plain, "\xf3\x90\x90\x90": plain, "\x65\xf0\x0f\xb1\x01": locked,
	} {
		if got := kindOf([]byte(text), ""); got != want {
			t.Errorf("% x is of kind %d, want %d", text, got, want)
		}
	}
}
