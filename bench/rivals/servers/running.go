package servers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Running is a server that answers.
type Running struct {
	Server
	addr string
	dir  string
	cmd  *exec.Cmd // nil of Origin
	// ended is closed when it has.
	ended chan struct{}
}

const (
	// startTime is how long a server may take to start, stopTime to end.
	startTime = 20 * time.Second
	stopTime  = 3 * time.Second
)

// Start starts the server with an empty cache and waits until it answers.
func (s Server) Start(o Options) (*Running, error) {
	r := &Running{Server: s}
	if s.program == "" {
		f, err := s.fieldsFor(o, "")
		r.addr = f.Origin
		return r, err
	}
	if err := r.start(o); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", s.Name, err), r.Stop())
	}
	return r, nil
}

func (r *Running) start(o Options) error {
	program, err := exec.LookPath(r.program)
	if err == nil {
		program, err = filepath.Abs(program) // it runs in another folder
	}
	if err == nil {
		r.dir, err = os.MkdirTemp("", "headstart-rival-")
	}
	if err == nil {
		err = os.Chmod(r.dir, 0o755) // servers change their user
	}
	if err != nil {
		return err
	}
	f, err := r.fieldsFor(o, r.dir)
	if err != nil {
		return err
	}
	if f.Conf, err = r.write(f); err != nil {
		return err
	}
	args, err := f.fillAll(r.args)
	if err != nil {
		return err
	}
	env, err := f.fillAll(r.env)
	if err != nil {
		return err
	}
	if o.Core != "" {
		program, args = "taskset", append([]string{"-c", o.Core, program}, args...)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = r.dir, append(os.Environ(), env...)
	// In a session of its own it has a share of its own of a busy machine (autogroup).
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setsid: true}
	r.addr = f.Addr
	if err := r.wait(cmd); err != nil || o.Core == "" {
		return err
	}
	// Threads of Traffic Server choose their processors themselves, out of all.
	out, err := exec.Command("taskset", "-a", "-p", "-c", o.Core, strconv.Itoa(cmd.Process.Pid)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("taskset: %w: %.300s", err, out)
	}
	return nil
}

// wait starts cmd and waits for its answer.
func (r *Running) wait(cmd *exec.Cmd) error {
	said, err := os.Create(filepath.Join(r.dir, "said"))
	if err != nil {
		return err
	}
	defer said.Close()
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		return err
	}
	r.cmd, r.ended = cmd, make(chan struct{})
	go func() { // ends with the server, which Stop ends
		defer close(r.ended)
		_ = cmd.Wait() // how it ends is its own affair
	}()
	late := time.After(startTime)
	for !r.answers() {
		select {
		case <-time.After(20 * time.Millisecond):
			continue
		case <-r.ended:
		case <-late:
		}
		text, _ := os.ReadFile(said.Name()) // what it says is all that is known
		return fmt.Errorf("it does not answer at %s: %.1000s", r.addr, text)
	}
	return nil
}

// answers tells whether somebody listens. Our node says where, in its first line.
func (r *Running) answers() bool {
	if r.ready {
		text, _ := os.ReadFile(filepath.Join(r.dir, "said")) // asked again
		for line := range bytes.Lines(text) {
			var ready struct {
				S3Port int `json:"s3_port"`
			}
			if json.Unmarshal(line, &ready) == nil && ready.S3Port > 0 {
				r.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(ready.S3Port))
				return true
			}
		}
		return false
	}
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		return false
	}
	_ = c.Close() // it was only to see
	return true
}

// Addr is where it answers.
func (r *Running) Addr() string { return r.addr }

// URL is the address of an object, or of all if the key is empty.
func (r *Running) URL(bucket, key string) string {
	return "http://" + r.addr + r.prefix + "/" + bucket + "/" + key
}

// Stop ends the server and removes its folder.
func (r *Running) Stop() error {
	if r.cmd != nil {
		_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-r.ended:
		case <-time.After(stopTime): // some wait for their clients
			_ = r.cmd.Process.Kill() // it may have ended
			<-r.ended
		}
	}
	if r.dir == "" {
		return nil
	}
	return os.RemoveAll(r.dir)
}

// Time is processor time, of a program itself and of the kernel for it.
type Time struct{ User, Kernel time.Duration }

// Both is their sum.
func (t Time) Both() time.Duration { return t.User + t.Kernel }

// Since is what has been added since before.
func (t Time) Since(before Time) Time { return Time{t.User - before.User, t.Kernel - before.Kernel} }

// CPU is the processor time that the server and its children have taken.
func (r *Running) CPU() (Time, error) {
	if r.cmd == nil {
		return Time{}, nil
	}
	list, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return Time{}, err
	}
	var all []process
	for _, path := range list {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		p, err := parseStat(string(text))
		if err != nil {
			return Time{}, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, p)
	}
	return family(all, r.cmd.Process.Pid), nil
}

// process is what the kernel says of one.
type process struct {
	pid, parent int
	cpu         Time
}

// parseStat reads a line of /proc/PID/stat.
func parseStat(line string) (p process, err error) {
	// Behind the name, which may hold anything: state, parent, …, user and system time.
	end := strings.LastIndexByte(line, ')')
	f := strings.Fields(line[end+1:])
	first, _, _ := strings.Cut(line, " ")
	if end < 0 || len(f) < 13 {
		return p, fmt.Errorf("%q is no line of a process", line)
	}
	var n [4]int
	for i, text := range []string{first, f[1], f[11], f[12]} {
		if n[i], err = strconv.Atoi(text); err != nil {
			return p, err
		}
	}
	const tick = time.Second / 100 // USER_HZ
	return process{pid: n[0], parent: n[1], cpu: Time{time.Duration(n[2]) * tick, time.Duration(n[3]) * tick}}, nil
}

// family is the time of a process and all below it.
func family(all []process, root int) (sum Time) {
	parents := make(map[int]int, len(all))
	for _, p := range all {
		parents[p.pid] = p.parent
	}
	for _, p := range all {
		for at := p.pid; at > 1; at = parents[at] {
			if at == root {
				sum.User, sum.Kernel = sum.User+p.cpu.User, sum.Kernel+p.cpu.Kernel
				break
			}
		}
	}
	return sum
}
