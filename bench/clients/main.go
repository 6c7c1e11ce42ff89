// Command clients runs S3 clients, unchanged, against a real BE before object
// storage in memory, and prints a table of what each did. make clients installs
// them (Python and JavaScript packages, a Go module) below a temporary directory;
// what is not to be had is said, not passed over. DuckDB runs the 22 TPC-H queries
// twice, directly and through the BE, and the digests of their results must agree.
package main

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"headstart/bench/s3law"
)

//go:embed scripts
var scripts embed.FS

const (
	bucket    = "clients"
	keyID     = "headstart"
	secret    = "headstartsecret"
	eachLimit = 4 * time.Minute
)

func main() {
	headstart := flag.String("headstart", "bin/headstart", "the binary")
	dir := flag.String("dir", "", "where clients are installed: v/bin (Python), node_modules, miniogo")
	tpch := flag.String("tpch", "", "a folder with queries.py and data, for DuckDB; empty leaves it out")
	law := flag.Bool("law", false, "object storage under DuckDB is as late as a real one")
	flag.Parse()
	failed, err := run(*headstart, *dir, *tpch, *law)
	if err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
	}
	if err != nil || failed > 0 {
		os.Exit(1)
	}
}

func run(headstart, dir, tpch string, law bool) (failed int, err error) {
	headstart, err = filepath.Abs(headstart)
	if err != nil {
		return 0, err
	}
	store := httptest.NewServer(&whole{s3: gofakes3.New(s3mem.New(), gofakes3.WithTimeSkewLimit(0)).Server()})
	defer store.Close()
	req, _ := http.NewRequest(http.MethodPut, store.URL+"/"+bucket, nil) // a good URL
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("make the bucket: %v, %w", resp, err)
	}
	work, err := os.MkdirTemp("", "headstart-clients")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)
	endpoint, stop, err := startBE(headstart, filepath.Join(work, "be"), store.URL)
	if err != nil {
		return 0, err
	}
	defer stop()
	fmt.Println("| client | result | what it did |\n|---|---|---|")
	for _, c := range clients(dir) {
		failed += c.report(work, endpoint)
	}
	if tpch != "" {
		failed += duckdb(headstart, dir, tpch, work, law)
	}
	return failed, nil
}

// client is one program.
type client struct {
	name string
	// needs is what must be there for it to run.
	needs string
	cmd   []string
}

func clients(dir string) []client {
	python := filepath.Join(dir, "v/bin/python")
	bin := func(name string) string { return filepath.Join(dir, "v/bin", name) }
	return []client{
		{"boto3 (PyPI)", bin("python"), []string{python, "boto3_client.py"}},
		{"AWS CLI (PyPI)", bin("aws"), []string{"sh", "awscli.sh"}},
		{"s3cmd (PyPI)", bin("s3cmd"), []string{"sh", "s3cmd.sh"}},
		{"minio-go", filepath.Join(dir, "miniogo"), []string{filepath.Join(dir, "miniogo")}},
		{"AWS SDK for JavaScript v3 (npm)", filepath.Join(dir, "node_modules/@aws-sdk/client-s3"), []string{"node", "sdk.mjs"}},
		{"rclone (Debian)", "rclone", []string{"sh", "rclone.sh"}},
	}
}

// report runs the client and prints its row. It returns 1 when it has failed.
func (c client) report(work, endpoint string) int {
	if _, err := os.Stat(c.needs); err != nil {
		if _, err := exec.LookPath(c.needs); err != nil {
			fmt.Printf("| %s | not installed | |\n", c.name)
			return 0
		}
	}
	dir := filepath.Join(work, strings.ReplaceAll(strings.ToLower(c.name), " ", "-"))
	if err := unpack(dir); err != nil {
		fmt.Printf("| %s | FAILED | %v |\n", c.name, err)
		return 1
	}
	if modules, ok := strings.CutSuffix(c.needs, "/@aws-sdk/client-s3"); ok {
		_ = os.Symlink(modules, filepath.Join(dir, "node_modules")) // what is missing shows
	}
	ctx, cancel := context.WithTimeout(context.Background(), eachLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.cmd[0], append(c.cmd[1:], endpoint, bucket)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID="+keyID, "AWS_SECRET_ACCESS_KEY="+secret,
		"PATH="+filepath.Dir(c.needs)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		fmt.Printf("| %s | FAILED: %v | %s |\n", c.name, err, lines[len(lines)-1])
		fmt.Fprintf(os.Stderr, "%s:\n%s\n", c.name, out)
		return 1
	}
	fmt.Printf("| %s | ok | %s |\n", c.name, lines[len(lines)-1])
	return 0
}

func unpack(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	list, err := scripts.ReadDir("scripts")
	if err != nil {
		return err
	}
	for _, f := range list {
		data, err := scripts.ReadFile("scripts/" + f.Name())
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, f.Name()), data, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// whole makes gofakes3 look at If-Match of a GET, as S3 does.
type whole struct {
	s3 http.Handler
	mu sync.RWMutex
}

// ServeHTTP implements http.Handler.
func (w *whole) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		body, err := io.ReadAll(r.Body) // before the lock: clients are slow
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		w.mu.Lock()
		defer w.mu.Unlock()
	} else {
		w.mu.RLock()
		defer w.mu.RUnlock()
		if match := r.Header.Get("If-Match"); match != "" {
			rec := httptest.NewRecorder()
			w.s3.ServeHTTP(rec, httptest.NewRequest(http.MethodHead, r.URL.EscapedPath(), nil))
			if rec.Header().Get("ETag") != match {
				rw.WriteHeader(http.StatusPreconditionFailed)
				return
			}
		}
	}
	w.s3.ServeHTTP(rw, r)
}

// startBE starts a node and returns the URL of its front.
func startBE(headstart, dir, store string) (string, func(), error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	conf := fmt.Sprintf("host = 127.0.0.1\nwebserver_port = 0\nbrpc_port = 0\ns3_port = 0\ns3_endpoint = %s\ns3_access_key = %s\ns3_secret_key = %s\n"+
		"file_cache_path = [{\"path\":\"cache\",\"total_size\":1073741824}]\n", store, keyID, secret)
	path := filepath.Join(dir, "be.conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		return "", nil, err
	}
	cmd := exec.Command(headstart, "be", "-conf", path)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", nil, err
	}
	stop := func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // its logs tell
	}
	var ready struct {
		S3Port int `json:"s3_port"`
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("the node does not start: %w", err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", ready.S3Port), stop, nil
}

// duckdb runs the queries directly and through a BE, cold and warm.
func duckdb(headstart, dir, tpch, work string, law bool) int {
	fail := func(err error) int {
		fmt.Printf("| DuckDB httpfs, 22 TPC-H queries | FAILED | %v |\n", err)
		return 1
	}
	var objects []s3law.Object
	err := filepath.Walk(filepath.Join(tpch, "data"), func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		key, _ := filepath.Rel(filepath.Join(tpch, "data"), path) // it lies below
		objects = append(objects, s3law.Object{Key: key, Data: data})
		return err
	})
	if err != nil {
		return fail(err)
	}
	store, err := s3law.Start(s3law.Options{Bucket: "bench", Objects: objects})
	if err != nil {
		return fail(err)
	}
	defer store.Close()
	store.Enable(law)
	endpoint, stop, err := startBE(headstart, filepath.Join(work, "duckdb"), store.URL())
	if err != nil {
		return fail(err)
	}
	defer stop()
	var digests, totals []string
	for _, url := range []string{store.URL(), endpoint, endpoint} {
		before := store.Metrics()
		ctx, cancel := context.WithTimeout(context.Background(), eachLimit)
		cmd := exec.CommandContext(ctx, filepath.Join(dir, "v/bin/python"), filepath.Join(tpch, "queries.py"),
			strings.TrimPrefix(url, "http://"), "bench", keyID, secret)
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			return fail(fmt.Errorf("%w: %.500s", err, out))
		}
		digest, total := results(string(out))
		digests = append(digests, digest)
		totals = append(totals, fmt.Sprintf("%s, %d GETs", total, store.Metrics().GETs-before.GETs))
	}
	if digests[0] != digests[1] || digests[0] != digests[2] || strings.Count(digests[0], " ") != 22 {
		return fail(fmt.Errorf("the results differ: %q", digests))
	}
	fmt.Printf("| DuckDB httpfs, 22 TPC-H queries | ok | digests as from the store itself; direct %s; through a cold BE %s; warm %s |\n",
		totals[0], totals[1], totals[2])
	return 0
}

// results takes digests and the time of all out of what queries.py prints.
func results(out string) (digests, total string) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) == 6 {
			digests += f[5] + " "
		} else if len(f) == 3 && f[0] == "total" {
			total = f[1] + " s"
		}
	}
	return digests, total
}
