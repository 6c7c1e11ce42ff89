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
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"
)

//go:embed conf
var conf embed.FS

// server is one that is measured.
type server struct {
	name, addr string
	cmd        *exec.Cmd
}

// startAll starts what is there, ours first. stop ends what has been started,
// with an error too.
func startAll(o options, dir, store string) (servers []*server, stop func(), err error) {
	stop = func() {
		for _, s := range servers {
			_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			_ = s.cmd.Wait()
		}
	}
	ours, err := startHeadstart(o, filepath.Join(dir, "be"), store)
	if err != nil {
		return servers, stop, err
	}
	servers = append(servers, ours)
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		return servers, stop, errors.New("nginx is missing, which the other rivals read from as well (Debian package nginx)")
	}
	static, err := start(o, dir, "static.conf", "nginx static", fields{Name: "static", Sendfile: "on"}, nginx, "-g", "daemon off;", "-c")
	if err != nil {
		return servers, stop, err
	}
	servers = append(servers, static)
	// sendfile lends the file's pages to the receiver, which a cache that writes over
	// its blocks can't: what that is worth.
	copies, err := start(o, dir, "static.conf", "nginx, no sendfile", fields{Name: "copies", Sendfile: "off"}, nginx, "-g", "daemon off;", "-c")
	if err != nil {
		return servers, stop, err
	}
	servers = append(servers, copies)
	from := fields{Origin: static.addr}
	from.OriginHost, from.OriginPort, _ = net.SplitHostPort(static.addr) // ours
	proxy, err := start(o, dir, "proxy.conf", "nginx proxy_cache", from, nginx, "-g", "daemon off;", "-c")
	if err != nil {
		return servers, stop, err
	}
	servers = append(servers, proxy)
	varnishd, err := exec.LookPath("varnishd")
	if err != nil {
		fmt.Println("left out: varnishd is missing (Debian package varnish)")
		return servers, stop, nil
	}
	varnish, err := start(o, dir, "varnish.vcl", "Varnish", from, varnishd, "-F", "-n", filepath.Join(dir, "varnish"),
		"-s", "malloc,512m", "-p", "thread_pools=1", "-a", "{{addr}}", "-f")
	if err == nil {
		servers = append(servers, varnish)
	}
	return servers, stop, err
}

// fields are what the configurations leave open.
type fields struct {
	Dir, Name, Port, Store, Origin, OriginHost, OriginPort, Sendfile string
}

// write fills in a configuration.
func (f fields) write(name, path string) error {
	text, err := conf.ReadFile("conf/" + name)
	if err != nil {
		return err
	}
	t, err := template.New(name).Parse(string(text))
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, f); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// start runs a rival, whose last argument is its configuration, and waits until
// it answers.
func start(o options, dir, file, name string, f fields, program string, args ...string) (*server, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{name: name, addr: ln.Addr().String()}
	_, f.Port, _ = net.SplitHostPort(s.addr) // ours
	f.Dir = dir
	path := filepath.Join(dir, f.Name+"-"+file)
	if err := errors.Join(ln.Close(), f.write(file, path)); err != nil {
		return nil, err
	}
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "{{addr}}", s.addr)
	}
	s.cmd = pinned(o, program, append(args, path)...)
	var said bytes.Buffer
	s.cmd.Stdout, s.cmd.Stderr = &said, &said
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for range 200 {
		if c, err := net.Dial("tcp", s.addr); err == nil {
			return s, c.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	_ = s.cmd.Process.Kill() // it does not answer
	_ = s.cmd.Wait()
	return nil, fmt.Errorf("%s does not answer at %s: %s", name, s.addr, said.String())
}

// pinned runs a program on the servers' core, until this one ends.
func pinned(o options, program string, args ...string) *exec.Cmd {
	cmd := exec.Command("taskset", append([]string{"-c", o.serverCore, program}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return cmd
}

func startHeadstart(o options, dir, store string) (*server, error) {
	program, err := filepath.Abs(o.headstart)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "be.conf")
	if err := (fields{Store: store}).write("be.conf", path); err != nil {
		return nil, err
	}
	s := &server{name: "headstart", cmd: pinned(o, program, "be", "-conf", path)}
	s.cmd.Dir, s.cmd.Stderr = dir, os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s (make build makes it): %w", program, err)
	}
	var ready struct {
		S3Port int `json:"s3_port"`
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil {
		_ = s.cmd.Process.Kill() // it does not serve
		_ = s.cmd.Wait()
		return nil, fmt.Errorf("the node does not start: %w", err)
	}
	s.addr = fmt.Sprintf("127.0.0.1:%d", ready.S3Port)
	return s, nil
}

// cpu is the processor time that the server and its children have taken.
func (s *server) cpu() (time.Duration, error) {
	const tick = time.Second / 100 // USER_HZ
	parents, ticks := map[int]int{}, map[int]int{}
	list, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, path := range list {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// Behind the name, which may hold anything: state, parent, …, user and system time.
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path))) // the pattern says so
		parents[pid], _ = strconv.Atoi(f[1])
		user, _ := strconv.Atoi(f[11])
		system, _ := strconv.Atoi(f[12])
		ticks[pid] = user + system
	}
	sum := 0
	for pid, n := range ticks {
		for at := pid; at > 1; at = parents[at] {
			if at == s.cmd.Process.Pid {
				sum += n
				break
			}
		}
	}
	return time.Duration(sum) * tick, nil
}
