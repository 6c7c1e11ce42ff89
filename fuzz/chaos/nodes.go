package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"headstart/bench/s3law"
)

const (
	// startTimeout bounds the start of a node, and of the cluster.
	startTimeout = 30 * time.Second
	// readTimeout is more than a node gives itself for a block.
	readTimeout = 70 * time.Second
	bucketName  = "chaos"
	blockSize   = 64 << 10
	objectSize  = 16 * blockSize
	// setObjects is how many objects each of the two sets has: one is held by the
	// node that will be cut off and read by the others, one the other way round.
	setObjects = 16
	// newsObject is one that nobody reads before the FE is lost.
	newsObject = 2 * setObjects
	// victimIndex is the node that is cut off, holderIndex the one that holds what
	// it reads.
	victimIndex, holderIndex = 2, 0
)

// cluster is the processes of a run. Peers and the FE see each other by one
// network; by the other each node reaches object storage and its readers.
type cluster struct {
	dir         string
	exe         string
	peers, near *network
	store       *s3law.Server
	data        []byte
	fe          *node
	bes         []*node
	http        *http.Client
}

// node is one process.
type node struct {
	name   string
	number int
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
}

// key is the name of an object, tablet its tablet.
func key(object int) string { return fmt.Sprintf("set/object-%02d.dat", object) }

func tablet(object int) int { return 1000 + object }

func startCluster(ctx context.Context, exe string) (c *cluster, err error) {
	c = &cluster{http: &http.Client{Timeout: readTimeout}, data: make([]byte, objectSize)}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if c.exe, err = filepath.Abs(exe); err != nil {
		return nil, err
	}
	if c.dir, err = os.MkdirTemp("", "headstart-chaos-"); err != nil {
		return nil, err
	}
	if c.peers, err = newNetwork("peers", 0); err != nil {
		return nil, err
	}
	if c.near, err = newNetwork("near", 1); err != nil {
		return nil, err
	}
	rand.NewChaCha8([32]byte{1}).Read(c.data)
	objects := make([]s3law.Object, newsObject+1)
	for i := range objects {
		objects[i] = s3law.Object{Key: key(i), Data: c.data}
	}
	c.store, err = s3law.Start(s3law.Options{
		Bucket: bucketName, Objects: objects, Law: s3law.Law{Seed: 1}, Listen: net.JoinHostPort(c.near.addr(hub), "0"),
	})
	if err != nil {
		return nil, err
	}
	if err := c.startFE(); err != nil {
		return nil, err
	}
	for i := 1; i <= 3; i++ {
		be, err := c.node("be", i, []*network{c.peers, c.near}, c.conf(i))
		if err != nil {
			return nil, err
		}
		c.bes = append(c.bes, be)
	}
	return c, c.awaitAlive(ctx)
}

// startFE starts the FE, with the state that its folder has.
func (c *cluster) startFE() (err error) {
	c.fe, err = c.node("fe", hub, nil, "host = "+c.peers.addr(hub)+"\nlisten_host = 0.0.0.0\nmeta_dir = meta\n")
	return err
}

// conf leaves all that matters at its default, but for small blocks.
func (c *cluster) conf(number int) string {
	return fmt.Sprintf(`host = %s
listen_host = 0.0.0.0
fe_endpoints = %s:9020
compute_group_id = cg%d
s3_endpoint = %s
s3_bucket = %s
s3_access_key = chaos
s3_secret_key = chaos
file_cache_path = [{"path":"cache","total_size":268435456}]
file_cache_each_block_size = %d
enable_cache_read_from_peer = true
`, c.peers.addr(number), c.peers.addr(hub), number, c.store.URL(), bucketName, blockSize)
}

// node starts a process, in a namespace of its own if it is plugged into
// networks, and waits until it is ready.
func (c *cluster) node(role string, number int, into []*network, conf string) (*node, error) {
	n := &node{name: role + strconv.Itoa(number), number: number}
	dir := filepath.Join(c.dir, n.name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, role+".conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "node.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	n.cmd = exec.Command(c.exe, role, "-conf", file)
	if len(into) > 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		args := []string{"enter"}
		for _, w := range into {
			args = append(args, w.device(), w.addr(number))
		}
		n.cmd = exec.Command(self, append(append(args, "--"), n.cmd.Args...)...)
		n.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	} else {
		n.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	n.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	n.cmd.Dir, n.cmd.Stderr = dir, log
	if n.in, err = n.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	n.out = bufio.NewReader(out)
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	return n, errors.Join(n.settle(into), n.awaitReady(log.Name()))
}

// settle plugs a node in and lets it begin.
func (n *node) settle(into []*network) error {
	for _, w := range into {
		if err := w.plug(n); err != nil {
			return err
		}
	}
	_, err := io.WriteString(n.in, "\n")
	return err
}

// awaitReady waits for the line that a node prints once it serves.
func (n *node) awaitReady(log string) error {
	slow := time.AfterFunc(startTimeout, func() { n.cmd.Process.Kill() })
	defer slow.Stop()
	if _, err := n.out.ReadString('\n'); err != nil {
		text, _ := os.ReadFile(log)
		return fmt.Errorf("%s does not start: %w\n%s", n.name, err, text)
	}
	return nil
}

// enter is the sub-command of a node's process before it becomes one: it waits
// until its cables are there, and takes its addresses.
func enter(args []string) error {
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	if err := ip("link", "set", "lo", "up"); err != nil {
		return err
	}
	for ; args[0] != "--"; args = args[2:] {
		if err := errors.Join(ip("addr", "add", args[1]+"/24", "dev", args[0]), ip("link", "set", args[0], "up")); err != nil {
			return err
		}
	}
	return syscall.Exec(args[1], args[1:], os.Environ())
}

// awaitAlive waits until the FE hands all BEs out.
func (c *cluster) awaitAlive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for poll := time.NewTicker(50 * time.Millisecond); ; {
		var backends []struct {
			Alive bool `json:"alive"`
		}
		body, _, err := c.call(ctx, http.MethodGet, c.near.addr(hub)+":8030", "/api/backends")
		if err == nil {
			err = json.Unmarshal(body, &backends)
		}
		alive := 0
		for _, b := range backends {
			if b.Alive {
				alive++
			}
		}
		if alive == len(c.bes) {
			poll.Stop()
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d BEs are alive: %w", alive, len(c.bes), errors.Join(err, ctx.Err()))
		}
	}
}

// web is where readers reach a BE.
func (c *cluster) web(be *node) string { return c.near.addr(be.number) + ":8040" }

// read reads one block through a BE.
func (c *cluster) read(ctx context.Context, be *node, object, block int) (body []byte, source string, err error) {
	body, head, err := c.call(ctx, http.MethodGet, c.web(be), "/read?"+url.Values{
		"path": {key(object)}, "tablet_id": {strconv.Itoa(tablet(object))},
		"offset": {strconv.Itoa(block * blockSize)}, "size": {strconv.Itoa(blockSize)},
	}.Encode())
	return body, head.Get("X-Headstart-Source"), err
}

// forget takes an object out of a BE's cache.
func (c *cluster) forget(ctx context.Context, be *node, object int) error {
	_, _, err := c.call(ctx, http.MethodPost, c.web(be), "/api/file_cache?"+url.Values{"op": {"clear"}, "value": {key(object)}}.Encode())
	return err
}

// served is how many peers' requests a BE has answered with blocks.
func (c *cluster) served(ctx context.Context, be *node) (int, error) {
	body, _, err := c.call(ctx, http.MethodGet, c.web(be), "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, "file_cache_get_by_peer_success_num "); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return int(f), err
		}
	}
	return 0, errors.New("there is no file_cache_get_by_peer_success_num")
}

// call returns body and header of an answer 200; any other answer is an error.
func (c *cluster) call(ctx context.Context, method, host, path string) ([]byte, http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, nil)
	if err != nil {
		return nil, nil, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %.200s", method, path, resp.Status, body)
	}
	return body, resp.Header, err
}

// warm lets the holders read what they hold.
func (c *cluster) warm(ctx context.Context) error {
	c.store.Enable(false)
	defer c.store.Enable(true)
	for object := range 2 * setObjects {
		holder := c.bes[victimIndex]
		if object >= setObjects {
			holder = c.bes[holderIndex]
		}
		for block := range objectSize / blockSize {
			if _, _, err := c.read(ctx, holder, object, block); err != nil {
				return fmt.Errorf("warming %s: %w", holder.name, err)
			}
		}
	}
	return nil
}

func (c *cluster) stop() {
	for _, n := range append(c.bes, c.fe) {
		if n != nil && n.cmd.Process != nil {
			n.cmd.Process.Kill()
			n.cmd.Wait()
		}
	}
	if c.store != nil {
		c.store.Close()
	}
	os.RemoveAll(c.dir)
}
