// Package servers starts what people put in front of object storage, Headstart
// first, each in a folder of its own, with a configuration from conf that is filled
// in. All are set up as fast as they go: no logs, no headers that nobody asks for,
// as many threads as they have processors.
//
// It installs nothing, and listens on loopback, but for Cachey, which can't.
package servers

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"text/template"
)

//go:embed conf
var conf embed.FS

// Server is a program and how it is set up.
type Server struct {
	Name string
	// Config is for readers of a table. WhyHit says what makes it faster where ours
	// loses to it with hits, WhyRead with reads of data that is cold at first.
	Config, WhyHit, WhyRead string
	// WholeAsRange is set if it wants a range with every request, of all bytes too.
	WholeAsRange bool

	// program is looked for; "" is the origin itself, with nothing before it. needs
	// are other files that must be there.
	program string
	needs   []string
	from    string // where people get it
	// files are those of conf that it reads, all of a folder if it is one. They are
	// templates of fields, as are args and env.
	files     string
	args, env []string
	fields    fields
	// prefix is what stands before the bucket in paths.
	prefix string
	// ready is set if it tells its port when it is.
	ready bool
}

// fields are what configurations leave open.
type fields struct {
	// Dir is the server's folder, Conf the file that configures it.
	Dir, Conf  string
	Addr, Port string
	// Store is the URL of object storage. Origin is the host and port of what is read.
	Store, Origin, OriginHost, OriginPort string
	Workers                               int
	Files, Sendfile, Plugins              string
	Slices                                bool
}

// Reasons that several have. What hits are made of was counted by strace -f -c, and
// is in the columns of hits.
const (
	whySendfile = "sendfile lends the file's pages to the receiver, for as long as that takes to read, so that the kernel's part is smaller; " +
		"a cache that writes over its blocks must copy, since nothing tells when they were read. Its own code does little but HTTP"
	whyOneCall = "one system call sends an answer out of its own memory; ours sends two for a large block, since the last 4 KiB follow as a copy, " +
		"which notices a file that was cut short"
	whyOneRead = whyOneCall + "; and it takes a request with one read, where ours looks for the next one before it is there"
	whyMemory  = "it keeps all in memory, verifies nothing, writes nothing to a disk, and sends an answer with one system call where ours needs two a block"
)

// Headstart is one BE without peers; program is its binary.
func Headstart(program string) Server {
	return Server{
		Name: "headstart", Config: "one BE without peers, a cache of 1 GiB on disk; each block is verified before it is sent for the first time",
		program: program, from: "make build", files: "be.conf", args: []string{"be", "-conf", "{{.Conf}}"}, ready: true,
	}
}

// NginxStatic serves files, with sendfile or without.
func NginxStatic(sendfile bool) Server {
	s := nginx("static.conf")
	s.Name, s.Config, s.fields.Sendfile = "nginx static", "files in the page cache, sendfile, open_file_cache", "on"
	s.WhyHit = whySendfile
	if !sendfile {
		s.Name, s.Config, s.fields.Sendfile = "nginx, no sendfile", "the same with sendfile off: it copies, as ours does", "off"
		s.WhyHit = "its own code, which does little but HTTP, takes half the time of a Go server's or less (\"its own\"); the kernel's part is alike"
	}
	return s
}

// NginxCache is proxy_cache with slices of 1 MiB.
func NginxCache() Server {
	s := nginx("nginx.conf")
	s.Name, s.Config = "nginx proxy_cache", "slices of 1 MiB, one request a slice (proxy_cache_lock), 1 GiB on disk, sendfile"
	s.WhyHit, s.WhyRead = whySendfile, "it verifies nothing, and its sendfile copies nothing"
	return s
}

func nginx(file string) Server {
	return Server{program: "nginx", from: "Debian package nginx", files: file, args: []string{"-g", "daemon off;", "-c", "{{.Conf}}"}}
}

// Varnish keeps whole objects in memory.
func Varnish() Server {
	return Server{
		Name: "Varnish", Config: "1 GiB of memory: a range fetches all of its object; one thread pool a processor",
		WhyHit: whyOneRead, WhyRead: "it fetches each object whole, with one GET; " + whyMemory,
		program: "varnishd", from: "Debian package varnish", files: "varnish.vcl",
		args: []string{"-F", "-n", "{{.Dir}}/varnish", "-s", "malloc,1g", "-p", "thread_pools={{.Workers}}", "-a", "{{.Addr}}", "-f", "{{.Conf}}"},
	}
}

// plugins is where Debian has those of Traffic Server.
const plugins = "/usr/lib/trafficserver/modules"

// TrafficServer is Apache's. By itself it caches no part of an object, and passes
// ranges on until it has the whole; with slices it does as nginx's slice does.
func TrafficServer(slices bool) Server {
	s := Server{
		Name: "Traffic Server", Config: "whole objects in 512 MiB of memory and on disk; a net thread a processor",
		WhyHit: whyOneCall, WhyRead: "it verifies nothing",
		program: "traffic_server", from: "Debian package trafficserver", files: "ats", fields: fields{Plugins: plugins},
		args: []string{"--run-root={{.Dir}}/runroot.yaml", "--clear_cache"},
	}
	if slices {
		s.fields.Slices, s.from = true, "Debian packages trafficserver and trafficserver-experimental-plugins"
		s.needs = []string{plugins + "/slice.so", plugins + "/cache_range_requests.so"}
		s.Config = "slices of 1 MiB (slice.so and cache_range_requests.so: without them it caches no ranges), in memory and on disk"
	}
	return s
}

// Cachey is a cache for S3 alone, with an API of its own; program is its binary, or
// where it is looked for.
func Cachey(program string) Server {
	return Server{
		Name: "Cachey 0.13.2", Config: "pages of 16 MiB in 1 GiB of memory, hedged GETs, as cargo install makes it; no disk",
		WhyHit: whyOneRead, WhyRead: "pages of 16 MiB need fewer GETs, which is what a cold read waits for; " + whyMemory,
		program: program, from: "cargo install cachey --version 0.13.2 --locked", WholeAsRange: true, prefix: "/fetch",
		args: []string{"--memory", "1GiB", "--port", "{{.Port}}"},
		env: []string{
			"AWS_ENDPOINT_URL={{.Store}}", "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=cachey", "AWS_SECRET_ACCESS_KEY=cacheysecret",
			"TOKIO_WORKER_THREADS={{.Workers}}", "RUST_LOG=error",
		},
	}
}

// Origin is what the others read from, with nothing before it.
func Origin() Server {
	return Server{
		Name: "object storage itself", Config: "no cache: a GET for each read; measured once in each run, and its second pass is its first",
		WhyRead: "nothing is faster than nothing",
	}
}

// LeftOut says why the server can't be measured, "" when it can: something is
// missing, or it does not start here.
func (s Server) LeftOut() string {
	err := s.missing()
	if err == nil {
		var r *Running
		if r, err = s.Start(Options{Store: "http://127.0.0.1:1", Files: os.TempDir()}); err == nil {
			err = r.Stop()
		}
	}
	if err != nil {
		return fmt.Sprintf("%s is left out (%s): %v", s.Name, s.from, err)
	}
	return ""
}

// missing is what is not there.
func (s Server) missing() error {
	if s.program == "" {
		return nil
	}
	_, err := exec.LookPath(s.program)
	for _, file := range s.needs {
		if err == nil {
			_, err = os.Stat(file)
		}
	}
	return err
}

// listen finds a port that was free a moment ago.
func (f *fields) listen() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	f.Addr = ln.Addr().String()
	_, f.Port, _ = net.SplitHostPort(f.Addr) // it has one
	return ln.Close()
}

// write fills the configuration in, into the server's folder, and says which file
// it is.
func (s Server) write(f fields) (file string, err error) {
	if s.files == "" {
		return "", nil
	}
	root := path.Join("conf", s.files)
	err = fs.WalkDir(conf, root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := conf.ReadFile(name)
		if err != nil {
			return err
		}
		out, err := f.fill(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		file = filepath.Join(f.Dir, path.Base(name))
		return os.WriteFile(file, []byte(out), 0o644)
	})
	return file, err
}

// fill fills one text in.
func (f fields) fill(text string) (string, error) {
	t, err := template.New("").Parse(text)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = t.Execute(&b, f)
	return b.String(), err
}

func (f fields) fillAll(list []string) (out []string, err error) {
	for _, text := range list {
		one, err := f.fill(text)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// Options say where a server runs.
type Options struct {
	// Store is the URL of object storage. Origin is that of what servers that are not
	// for S3 alone read from, Store if it is empty.
	Store, Origin string
	// Core is the processor that it may use, all if it is empty.
	Core string
	// Workers is how many processors that are.
	Workers int
	// Files is the folder that NginxStatic serves.
	Files string
}

// fieldsFor adds what o says.
func (s Server) fieldsFor(o Options, dir string) (fields, error) {
	f := s.fields
	f.Dir, f.Store, f.Files, f.Workers = dir, o.Store, o.Files, max(o.Workers, 1)
	f.Origin = strings.TrimPrefix(cmp.Or(o.Origin, o.Store), "http://")
	var err error
	if f.Origin != "" {
		if f.OriginHost, f.OriginPort, err = net.SplitHostPort(f.Origin); err != nil {
			return f, err
		}
	}
	return f, f.listen()
}
