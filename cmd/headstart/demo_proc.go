package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// demoStartTimeout bounds the start of a node.
	demoStartTimeout = 2 * time.Minute
	// demoStopTimeout is how long a node may drain before it is killed.
	demoStopTimeout = 5 * time.Second
	demoHost        = "127.0.0.1"
)

// errNodeDied is the cause of a demo's end when a node ends unasked.
var errNodeDied = errors.New("a node died")

// demoReady is the line that a node prints on stdout once it serves.
type demoReady struct {
	Event         string `json:"event"`
	Role          string `json:"role"`
	PID           int    `json:"pid"`
	WebserverPort int    `json:"webserver_port"`
	BrpcPort      int    `json:"brpc_port"`
	S3Port        int    `json:"s3_port"`
	HTTPPort      int    `json:"http_port"`
	QueryPort     int    `json:"query_port"`
	RPCPort       int    `json:"rpc_port"`
}

// demoNode is one process.
type demoNode struct {
	name  string
	group string
	dir   string
	cmd   *exec.Cmd
	// ready gets the node's ready line; ports is that line, once start is over.
	ready chan demoReady
	ports demoReady
	// leaving is set before the node is told to end: its end is no failure then.
	leaving atomic.Bool
	// exited is closed when the process has been reaped.
	exited chan struct{}
}

// startNode starts exe as role with the configuration in dir. died is called
// if the process ends before it is told to.
func startNode(exe, role, name, group, dir string, died func(error)) (*demoNode, error) {
	n := &demoNode{name: name, group: group, dir: dir,
		ready: make(chan demoReady, 1), exited: make(chan struct{})}
	log, err := os.Create(n.path("node.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	n.cmd = exec.Command(exe, role, "-conf", n.path(role+".conf"))
	n.cmd.Dir = dir
	n.cmd.Stderr = log
	// A group of its own keeps Ctrl-C away from the node: the demo ends it, in
	// order. The kernel does if the demo is killed.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { // ends with the process
		n.listen(out)
		err := n.cmd.Wait()
		if !n.leaving.Load() {
			died(fmt.Errorf("%w: %s (pid %d): %v%s", errNodeDied, n.name, n.cmd.Process.Pid, err, n.lastWords()))
		}
		close(n.exited)
	}()
	return n, nil
}

// listen waits for the ready line and drops the rest of stdout, so that the
// node never blocks on it.
func (n *demoNode) listen(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var r demoReady
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.Event == "ready" {
			n.ready <- r
			break
		}
	}
	_, _ = io.Copy(io.Discard, out)
}

// await waits for the node to be ready.
func (n *demoNode) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, demoStartTimeout)
	defer cancel()
	select {
	case n.ports = <-n.ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s is not ready: %w%s", n.name, context.Cause(ctx), n.lastWords())
	}
}

// lastWords returns the end of the node's log.
func (n *demoNode) lastWords() string {
	const lines = 8
	log, err := os.ReadFile(n.path("node.log"))
	if err != nil || len(log) == 0 {
		return ""
	}
	all := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	return "\nits log ends with:\n" + string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

func (n *demoNode) path(file string) string { return n.dir + "/" + file }

// web returns the address of the node's HTTP interface.
func (n *demoNode) web() string {
	return net.JoinHostPort(demoHost, strconv.Itoa(max(n.ports.WebserverPort, n.ports.HTTPPort)))
}

// String says which process the node is.
func (n *demoNode) String() string {
	return fmt.Sprintf("%-4s  pid %-7d  http://%s", n.name, n.cmd.Process.Pid, n.web())
}

// kill is kill -9.
func (n *demoNode) kill() {
	n.leaving.Store(true)
	_ = n.cmd.Process.Kill()
}

// gone reports whether the node was told to end.
func (n *demoNode) gone() bool { return n.leaving.Load() }

// terminate asks the node to drain and end.
func (n *demoNode) terminate() {
	n.leaving.Store(true)
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
}

// reap waits for the end of a node that was told to, and kills it after a
// while.
func (n *demoNode) reap() {
	select {
	case <-n.exited:
	case <-time.After(demoStopTimeout):
		n.kill()
		<-n.exited
	}
}
