//go:build linux && amd64

// Package guard counts what a hot path executes, one instruction at a time
// (ptrace), in a process of its own: instructions, locked ones, system calls and
// looks at the clock. The counts are those of the code, not of the machine, so a
// test can hold them on the slowest and busiest of all machines.
//
// It counts what one goroutine does on its own stack, and takes the shortest of
// some calls: what the scheduler does in between falls out.
package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// ErrNotAllowed: this system lets no process trace its child.
var ErrNotAllowed = errors.New("guard: ptrace is not allowed here")

// Counts is what one call executes.
type Counts struct {
	// Instructions of all kinds.
	Instructions int
	// Locked instructions: atomic operations that own a cache line, which are also
	// what mutexes are made of.
	Locked int
	// Calls of the kernel, and of what reads the clock.
	SystemCalls, Clocks int
}

const (
	// calls are counted, after warm ones that are not.
	calls = 8
	warm  = 2000
	// mostSteps ends a call that never ends.
	mostSteps = 5_000_000
	// What lies further below the stack pointer of the call, or above it, is another
	// stack: the scheduler's, or a signal's.
	stackBelow, stackAbove = 64 << 10, 4 << 10
)

// marker is what a traced child says before it stops: where its calls begin.
type marker struct{ Boundary uint64 }

// boundary is where the parent sees that the next call begins.
//
//go:noinline
func boundary() {}

// Child is what a child process does with the call that is to be counted: it makes
// it again and again, and never returns.
func Child(call func()) {
	runtime.LockOSThread()
	if syscall.Gettid() != os.Getpid() {
		os.Exit(3) // another thread than the traced one: the parent tries again
	}
	for range warm {
		call()
	}
	at, err := entry(boundary)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(marker{at})
	}
	if err != nil {
		os.Exit(4)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGUSR1) // stops here, and the parent begins to count
	for range calls + 10 {
		boundary()
		call()
	}
	os.Exit(0)
}

// Count starts this program again with env added to its environment, in which it
// has to call Child, and counts.
func Count(env ...string) (Counts, error) {
	runtime.LockOSThread() // only the thread that has started the child may trace it
	defer runtime.UnlockOSThread()
	for range 20 {
		c, again, err := count(env)
		if !again {
			return c, err
		}
	}
	return Counts{}, errors.New("guard: the child's first thread never ran its main function")
}

func count(env []string) (c Counts, again bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return c, false, err
	}
	cmd := exec.Command(self)
	// They would only make it slower.
	cmd.Env = append(append(os.Environ(), env...), "GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOMAXPROCS=2")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return c, false, err
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) {
			err = fmt.Errorf("%w: %w", ErrNotAllowed, err)
		}
		return c, false, err
	}
	pid := cmd.Process.Pid
	defer func() {
		_ = cmd.Process.Kill()
		_, _ = syscall.Wait4(pid, nil, syscall.WALL, nil)
		_ = out.Close()
	}()
	exit, err := runUntilMarked(pid)
	if err != nil || exit == 3 {
		return c, exit == 3, err
	}
	var m marker
	if err := json.NewDecoder(out).Decode(&m); err != nil {
		return c, false, fmt.Errorf("guard: the child exits with %d: %w", exit, err)
	}
	each, err := follow(pid, m.Boundary)
	return shortest(each), false, err
}

// runUntilMarked lets the child run up to its signal, and hands it all others.
func runUntilMarked(pid int) (exit int, err error) {
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, syscall.WALL, nil); err != nil {
			return 0, fmt.Errorf("guard: wait: %w", err)
		}
		if status.Exited() {
			return status.ExitStatus(), nil
		}
		sig := status.StopSignal()
		if sig == syscall.SIGUSR1 {
			return 0, nil
		}
		if sig == syscall.SIGTRAP { // it has become this program
			sig = 0
		}
		if err := syscall.PtraceCont(pid, int(sig)); err != nil {
			return 0, fmt.Errorf("guard: continue: %w", err)
		}
	}
}

// follow executes the child step by step, and returns what each call has taken.
func follow(pid int, at uint64) ([]Counts, error) {
	var each []Counts
	var now Counts
	var regs syscall.PtraceRegs
	begun, stack, kinds, signal := false, uint64(0), make(map[uint64]kind), 0
	for steps := 0; len(each) < calls; steps++ {
		if err := step(pid, &signal); err != nil {
			return nil, err
		}
		if err := syscall.PtraceGetRegs(pid, &regs); err != nil {
			return nil, fmt.Errorf("guard: registers: %w", err)
		}
		if regs.Rip == at {
			if begun {
				each = append(each, now)
			}
			begun, stack, now, steps = true, regs.Rsp, Counts{}, 0
		}
		if steps > mostSteps {
			return nil, fmt.Errorf("guard: a call has not ended after %d instructions", steps)
		}
		if regs.Rsp < stack-stackBelow || regs.Rsp > stack+stackAbove {
			continue
		}
		k, known := kinds[regs.Rip]
		if !known {
			var text [16]byte
			if _, err := syscall.PtracePeekText(pid, uintptr(regs.Rip), text[:]); err != nil {
				return nil, fmt.Errorf("guard: text at %#x: %w", regs.Rip, err)
			}
			k = kindOf(text[:], functionAt(regs.Rip))
			kinds[regs.Rip] = k
		}
		now.add(k)
	}
	return each, nil
}

// step executes one instruction. A signal that comes meanwhile is the child's.
func step(pid int, signal *int) error {
	// The raw call is the only one that hands on a signal.
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PTRACE, syscall.PTRACE_SINGLESTEP, uintptr(pid), 0, uintptr(*signal), 0, 0); e != 0 {
		return fmt.Errorf("guard: step: %w", e)
	}
	*signal = 0
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, syscall.WALL, nil); err != nil {
		return fmt.Errorf("guard: wait: %w", err)
	}
	if !status.Stopped() {
		return fmt.Errorf("guard: the child has ended (%#x) while it was counted", status)
	}
	if s := status.StopSignal(); s != syscall.SIGTRAP && s != syscall.SIGUSR1 {
		*signal = int(s)
	}
	return nil
}

// shortest is the call with the fewest instructions.
func shortest(each []Counts) (least Counts) {
	for i, c := range each {
		if i == 0 || c.Instructions < least.Instructions {
			least = c
		}
	}
	return least
}
