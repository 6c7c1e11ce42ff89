package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestBenchThroughEveryDoor reads from one cluster by each of the doors.
func TestBenchThroughEveryDoor(t *testing.T) {
	c := startCluster(t, map[string]string{"s3_front_anonymous": "read"}, "g")
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	line := c.bes[0].line
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	dir := t.TempDir()
	objects, svg := filepath.Join(dir, "objects.csv"), filepath.Join(dir, "out.svg")
	var list strings.Builder
	for i := range 4 {
		fmt.Fprintf(&list, "data/%d,%d,%d\n", i+1, testObjectBytes, i+1)
	}
	if err := os.WriteFile(objects, []byte(list.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(c.dir, "be-1")
	conf, err := os.ReadFile(filepath.Join(own, "be.conf"))
	if err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(dir, "be.conf") // that of the BE, with a cache of its own
	if err := os.WriteFile(library, bytes.ReplaceAll(conf, []byte(own), []byte(dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, way := range []string{
		"-door http -to " + at(line.WebserverPort), "-door kitex -to " + at(line.BrpcPort), "-door s3 -to " + at(line.S3Port),
		"-door library -conf " + library,
	} {
		var out, progress bytes.Buffer
		args := strings.Fields(way + " -bucket bucket -load scan -size 100000 -rate 40,80 -warm 0s -time 1s -json -objects " + objects + " -plot " + svg)
		if code := runBench(args, &out, &progress); code != exitOK {
			t.Fatalf("%s: exit code %d: %s", way, code, progress.String())
		}
		var got struct {
			Runs []struct {
				Rate, Reads, Served, Errors, Bytes float64
			}
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got.Runs) != 2 {
			t.Fatalf("%s: %v: %s", way, err, out.String())
		}
		if r := got.Runs[0]; r.Rate != 40 || r.Reads == 0 || r.Errors != 0 || r.Served == 0 || r.Bytes == 0 {
			t.Errorf("%s: %s", way, out.String())
		}
		if picture, err := os.ReadFile(svg); err != nil || !bytes.HasPrefix(picture, []byte("<svg ")) {
			t.Errorf("%s: %v: %.60s", way, err, picture)
		}
		os.Remove(svg)
	}
}

func TestBenchFlags(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for args, want := range map[string]struct {
		code  int
		names string
	}{
		"-h":                                {0, "usage: headstart bench"},
		"":                                  {2, "-to"},
		"-to x":                             {2, `"x" is no address`},
		"-to a:1 extra":                     {2, `"extra"`},
		"-to a:1 -door x":                   {2, "-door x: want http, kitex, s3 or library"},
		"-to a:1 -load x":                   {2, "-load x: want trace, zipf or scan"},
		"-to a:1 -rate 0":                   {2, "-rate 0"},
		"-to a:1 -rate 10,x":                {2, `"x"`},
		"-to a:1 -rate nan":                 {2, "-rate nan"},
		"-to a:1 -size 0":                   {2, "-size 0"},
		"-to a:1 -skew 1":                   {2, "-skew 1"},
		"-to a:1 -time 0s":                  {2, "-time 0s"},
		"-to a:1 -inflight 0":               {2, "-inflight 0"},
		"-to a:1 -objects " + none:          {2, "-objects"},
		"-to a:1 -trace " + none:            {2, "-objects and -trace"},
		"-to a:1 -load scan -trace " + none: {2, "-trace"},
		"-door library":                     {2, "-conf"},
		"-to a:1 -conf x":                   {2, "-door library"},
		"-door library -conf " + none:       {1, "-conf " + none},
		"-to 127.0.0.1:1":                   {1, "the first read fails (-door http, -to 127.0.0.1:1"},
	} {
		var stderr bytes.Buffer
		if got := runBench(strings.Fields(args), io.Discard, &stderr); got != want.code || !strings.Contains(stderr.String(), want.names) {
			t.Errorf("%s: exit code %d, want %d; want %q in %q", args, got, want.code, want.names, stderr.String())
		}
	}
}
