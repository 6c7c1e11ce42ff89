// Command clients runs S3 clients, unchanged, against a real BE before object
// storage in memory, and prints a table of what each did. make clients installs
// them (Python and JavaScript packages, a Go module) below a temporary directory;
// what is not to be had is said, not passed over. DuckDB runs the 22 TPC-H queries
// directly, through a cold and a warm BE, and through a cold one with a warm peer, and
// the digests of their results must agree.
package main

import (
	"bytes"
	"context"
	"embed"
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
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
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
	q := queries{}
	flag.BoolVar(&q.law, "law", false, "object storage under DuckDB is as late as a real one")
	flag.IntVar(&q.rounds, "rounds", 1, "rounds of DuckDB's queries: directly, through a cold BE, a warm one, and a cold one with a warm peer; medians are printed")
	only := flag.Bool("duckdb", false, "run DuckDB alone")
	slowly := flag.Int("slow", 0, "do nothing but let so many clients read 1 GiB slowly, and print the memory of the BE")
	flag.Parse()
	var err error
	if q.headstart, err = filepath.Abs(*headstart); err == nil && *slowly > 0 { // it runs in folders of its own
		if err = slow(q.headstart, *slowly, 20*time.Second); err == nil {
			return
		}
	}
	failed := 0
	if err == nil {
		q.python, q.tpch = filepath.Join(*dir, "v/bin/python"), *tpch
		failed, err = run(*dir, &q, *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
	}
	if err != nil || failed > 0 {
		os.Exit(1)
	}
}

func run(dir string, q *queries, only bool) (failed int, err error) {
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
	be, err := startBE(q.headstart, filepath.Join(work, "be"), store.URL, "")
	if err != nil {
		return 0, err
	}
	defer be.stop()
	fmt.Println("| client | result | what it did |\n|---|---|---|")
	for _, c := range clients(dir) {
		if !only {
			failed += c.report(work, be.s3())
		}
	}
	if q.tpch != "" {
		failed += q.report(work)
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
		{"s3fs (Debian)", "s3fs", []string{"bash", "s3fs.sh"}},
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
