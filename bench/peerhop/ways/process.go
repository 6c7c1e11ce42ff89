package ways

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"headstart/bench/turns"
)

// Hello is what a serving process says when it is ready: where each way is served.
type Hello struct {
	Addrs  map[string]string
	Blocks uint64
	// Dir has the certificate of both sides.
	Dir string
}

// Usage is a serving process's answer to each line that it reads after its hello.
type Usage struct {
	// CPU is the processor time of the process so far, Allocated the bytes that
	// its heap has handed out so far.
	CPU       time.Duration
	Allocated uint64
	// Longest is the longest wait of a call that was served since the last answer
	// in an overload, Late how long the queue kept one at most that it should have
	// rejected, Timers how late the process's timers were, but for one in a hundred.
	Longest, Late, Timers time.Duration
}

// UsageOfSelf is what this process has used.
func UsageOfSelf() Usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Usage{CPU: turns.ProcessorTime(), Allocated: m.TotalAlloc}
}

// Answer says hello and then what has been used, until nobody asks any more: a
// serving process ends with its standard input.
func Answer(h Hello, used func() Usage) error {
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(h); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := out.Encode(used()); err != nil {
			return err
		}
	}
	return nil
}

// Process is a serving process.
type Process struct {
	Hello Hello
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *json.Decoder
}

// Start starts this program again as a serving process.
func Start(args ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(self, args...)}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.out = json.NewDecoder(bufio.NewReader(out))
	if err := p.out.Decode(&p.Hello); err != nil {
		return nil, errors.Join(fmt.Errorf("the serving process says nothing: %w", err), p.Stop())
	}
	return p, nil
}

// Stop ends the process.
func (p *Process) Stop() error {
	p.in.Close()
	return p.cmd.Wait()
}

// Usage returns what both processes have used so far.
func (p *Process) Usage() (u Usage, err error) {
	if _, err = io.WriteString(p.in, "\n"); err != nil {
		return u, err
	}
	if err = p.out.Decode(&u); err != nil {
		return u, err
	}
	own := UsageOfSelf()
	u.CPU, u.Allocated = u.CPU+own.CPU, u.Allocated+own.Allocated
	return u, nil
}
