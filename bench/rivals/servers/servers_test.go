package servers

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headstart/bench/s3law"
)

// all are those that read from object storage, where make rivals has them.
func all() []Server {
	return []Server{
		Headstart("../../../bin/headstart"), NginxCache(), Varnish(), TrafficServer(false), TrafficServer(true),
		Cachey("/tmp/headstart-rivals/bin/server"), Origin(),
	}
}

func TestServersAnswerRangesAndKeepWhatTheyRead(t *testing.T) {
	data := make([]byte, 3<<20+17)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // never fails
	store, err := s3law.Start(s3law.Options{Bucket: "b", Objects: []s3law.Object{{Key: "k", Data: data}}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	store.Enable(false)
	for _, s := range all() {
		t.Run(s.Name, func(t *testing.T) {
			if missing := s.missing(); missing != nil {
				t.Skip(missing)
			}
			if text := s.LeftOut(); text != "" {
				t.Error(text)
			}
			r, err := s.Start(Options{Store: store.URL(), Core: "0"})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Stop()
			var gets [5]int64 // what is written behind a read's back is there in the last
			for pass := range gets {
				before := store.Metrics().GETs
				get(t, r, "bytes=0-99", data[:100])
				get(t, r, "bytes=1048000-2100000", data[1048000:2100001])
				get(t, r, "bytes=0-3145744", data)
				gets[pass] = store.Metrics().GETs - before
			}
			caches := s.Name != Origin().Name && s.Config != TrafficServer(false).Config
			if gets[0] == 0 || (gets[4] == 0) != caches {
				t.Errorf("GETs in each pass: %d", gets)
			}
			if _, err := r.CPU(); err != nil {
				t.Error(err)
			}
			checkCore(t, r)
		})
	}
}

// checkCore looks where the server's threads may run: one that leaves its core would
// have more than the others.
func checkCore(t *testing.T, r *Running) {
	if r.cmd == nil {
		return
	}
	list, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", r.cmd.Process.Pid))
	if err != nil || len(list) == 0 {
		t.Fatalf("%d threads, %v", len(list), err)
	}
	for _, path := range list {
		text, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(text), "\nCpus_allowed_list:\t0\n") { // one that has ended runs nowhere
			t.Errorf("a thread leaves its core:\n%s", text)
		}
	}
}

func TestNginxServesFiles(t *testing.T) {
	dir, data := t.TempDir(), []byte("what is in the file")
	if err := os.MkdirAll(filepath.Join(dir, "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "b", "k"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, sendfile := range []bool{true, false} {
		s := NginxStatic(sendfile)
		if missing := s.missing(); missing != nil {
			t.Skip(missing)
		}
		if text := s.LeftOut(); text != "" {
			t.Error(text)
		}
		r, err := s.Start(Options{Files: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Stop()
		get(t, r, "bytes=5-6", data[5:7])
	}
}

func get(t *testing.T, r *Running, rng string, want []byte) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, r.URL("b", "k"), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Range", rng)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %s, %d bytes are not the %d that are there: %v", rng, resp.Status, len(got), len(want), err)
	}
}

func TestConfigurationsAreFilledIn(t *testing.T) {
	used := map[string]bool{}
	for _, s := range append(all(), NginxStatic(true), NginxStatic(false)) {
		dir := t.TempDir()
		f, err := s.fieldsFor(Options{Store: "http://127.0.0.1:9000", Origin: "http://127.0.0.1:8000", Files: "/files", Core: "0"}, dir)
		if err != nil {
			t.Fatal(err)
		}
		if f.Conf, err = s.write(f); err != nil {
			t.Fatal(err)
		}
		args, err := f.fillAll(append(s.args, s.env...))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(args, " ")
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(filepath.Join(dir, file.Name()))
			if err != nil {
				t.Fatal(err)
			}
			text, used[file.Name()] = text+string(content), true
		}
		for _, open := range []string{"{{", "<no value>", "worker_processes 0"} {
			if strings.Contains(text, open) {
				t.Errorf("%s: %q is left in\n%s", s.Name, open, text)
			}
		}
		if s.program != "" && !s.ready && !strings.Contains(text, f.Port) {
			t.Errorf("%s is not told its port:\n%s", s.Name, text)
		}
	}
	_ = fs.WalkDir(conf, "conf", func(path string, d fs.DirEntry, err error) error { // it is embedded
		if !d.IsDir() && !used[d.Name()] {
			t.Errorf("nobody reads %s", path)
		}
		return err
	})
}

func TestAFailureSaysWhatTheServerSaid(t *testing.T) {
	s := Server{Name: "broken", program: "sh", args: []string{"-c", "echo no such thing >&2; exit 1"}}
	_, err := s.Start(Options{Store: "http://127.0.0.1:1"})
	if err == nil || !strings.Contains(err.Error(), "broken") || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("%v", err)
	}
	if text := s.LeftOut(); !strings.Contains(text, "broken is left out") || !strings.Contains(text, "no such thing") {
		t.Errorf("%q", text)
	}
	s.program = "no-such-program"
	if text := s.LeftOut(); !strings.Contains(text, "broken is left out") {
		t.Errorf("%q", text)
	}
	s.program, s.needs = "sh", []string{filepath.Join(t.TempDir(), "plugin.so")}
	if text := s.LeftOut(); !strings.Contains(text, "plugin.so") {
		t.Errorf("%q", text)
	}
	if text := Origin().LeftOut(); text != "" {
		t.Errorf("object storage is left out: %s", text)
	}
}

func TestProcessorTimeIsOfAProcessAndItsChildren(t *testing.T) {
	line := "12 (a ) (b) S 7 12 12 0 -1 4194304 100 0 0 0 150 50 900 900 20 0 1 0 10 1 1"
	p, err := parseStat(line)
	if err != nil || p != (process{pid: 12, parent: 7, cpu: Time{1500 * time.Millisecond, 500 * time.Millisecond}}) {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{"", "12 (a", "12 (a) S 7", "x (a) S 7 12 12 0 -1 4194304 100 0 0 0 150 50 900"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
	list := []process{{1, 0, Time{1, 32}}, {7, 1, Time{2, 64}}, {12, 7, Time{4, 128}}, {13, 12, Time{8, 256}}, {20, 1, Time{16, 512}}}
	if sum := family(list, 7); sum != (Time{14, 448}) || sum.Since(Time{4, 8}).Both() != 450 {
		t.Errorf("family of 7: %+v", sum)
	}
}
