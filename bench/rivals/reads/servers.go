package main

import (
	"bufio"
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
	"time"
)

//go:embed conf
var conf embed.FS

// server is one kind of what is measured. args has {{dir}}, {{addr}} and, last, the
// configuration; program is "" for object storage itself.
type server struct {
	name, config, why string
	program, file     string
	args              []string
}

func servers(headstart string) []server {
	return []server{
		{name: "headstart, S3 front", config: "one BE without peers, a cache of 1 GiB on disk", program: headstart, file: "be.conf", args: []string{"be", "-conf"}},
		{name: "nginx, proxy_cache + slice", config: "slices of 1 MiB, one request a slice (proxy_cache_lock), 1 GiB on disk, 2 workers",
			why: "it verifies nothing, and keeps nothing of what an object is", program: "nginx", file: "nginx.conf", args: []string{"-g", "daemon off;", "-c"}},
		{name: "Varnish", config: "whole objects in memory: any range fetches all of its object", why: "it fetches whole objects with one GET each, and verifies nothing",
			program: "varnishd", file: "varnish.vcl", args: []string{"-F", "-n", "{{dir}}/varnish", "-s", "malloc,1g", "-a", "{{addr}}", "-f"}},
		{name: "object storage itself", config: "no cache: a GET for each read", why: "nothing is faster than nothing"},
	}
}

// missing says what is not there, "" when all is.
func (s *server) missing() string {
	if s.program == "" {
		return ""
	}
	if _, err := exec.LookPath(s.program); err != nil {
		return err.Error()
	}
	return ""
}

// start runs the server in a folder of its own in front of the store, and returns
// where it answers.
func (s *server) start(store string) (addr string, stop func(), err error) {
	origin := strings.TrimPrefix(store, "http://")
	if s.program == "" {
		return origin, func() {}, nil
	}
	program, err := exec.LookPath(s.program)
	if err == nil {
		program, err = filepath.Abs(program) // it runs in another folder
	}
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "headstart-reads-")
	if err != nil {
		return "", nil, err
	}
	addr, port, err := freePort()
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), s.write(dir, port, store, origin)) // servers change their user
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	args := append([]string{}, s.args...)
	for i := range args {
		args[i] = strings.NewReplacer("{{addr}}", addr, "{{dir}}", dir).Replace(args[i])
	}
	cmd := exec.Command(program, append(args, filepath.Join(dir, s.file))...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}
	if s.file == "be.conf" {
		addr, err = startNode(cmd)
	} else {
		err = startOther(cmd, addr)
	}
	if err != nil {
		if cmd.Process != nil {
			stop()
		}
		return "", nil, fmt.Errorf("start %s: %w", s.program, err)
	}
	return addr, stop, nil
}

// freePort is one that was free a moment ago.
func freePort() (addr, port string, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	_, port, _ = net.SplitHostPort(ln.Addr().String()) // it is one
	return ln.Addr().String(), port, ln.Close()
}

// write fills the configuration in.
func (s *server) write(dir, port, store, origin string) error {
	t, err := template.ParseFS(conf, "conf/"+s.file)
	if err != nil {
		return err
	}
	host, originPort, err := net.SplitHostPort(origin)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	err = t.Execute(&b, map[string]string{
		"Dir": dir, "Port": port, "Store": store, "Origin": origin, "OriginHost": host, "OriginPort": originPort,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, s.file), b.Bytes(), 0o644)
}

// startNode returns the S3 port of a node's ready line.
func startNode(cmd *exec.Cmd) (string, error) {
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", err
	}
	var ready struct {
		S3Port int `json:"s3_port"`
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	return fmt.Sprintf("127.0.0.1:%d", ready.S3Port), err
}

// startOther waits until a server answers at its port.
func startOther(cmd *exec.Cmd, addr string) error {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return err
	}
	for range 200 {
		if c, err := net.Dial("tcp", addr); err == nil {
			return c.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("nobody answers at %s", addr)
}
