package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/tools/txtar"
)

// sample reads one of testdata's archives: files of a repository, and what is
// to be said of them.
func sample(t *testing.T, name string) (root fstest.MapFS, want string) {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	root = fstest.MapFS{"go.mod": {Data: []byte("module headstart\n")}}
	for _, f := range archive.Files {
		if f.Name == "want" {
			want = string(f.Data)
			continue
		}
		root[f.Name] = &fstest.MapFile{Data: f.Data}
	}
	return root, want
}

func said(findings []finding) string {
	var b strings.Builder
	for _, f := range findings {
		b.WriteString(f.String() + "\n")
	}
	return b.String()
}

func TestBadSamples(t *testing.T) {
	for _, name := range []string{"imports.txt", "state.txt", "comments.txt", "names.txt"} {
		root, want := sample(t, name)
		tree, err := readTree(root)
		if err != nil {
			t.Fatal(err)
		}
		found, err := houseRules(tree)
		if got := said(found); err != nil || got != want {
			t.Errorf("%s: got\n%s%v\nwant\n%s", name, got, err, want)
		}
	}
}

func TestSizes(t *testing.T) {
	// A function of n lines in a file of 2n+4.
	file := func(n int) string {
		return "// Package pools is a sample.\npackage pools\n\nfunc f() {\n" + strings.Repeat("\n", n-2) + "}\n" + strings.Repeat("\n", n)
	}
	for n, want := range map[int]string{
		70:  "",
		71:  "pools/a.go:4: size: f has 71 lines, at most 70\n",
		248: "pools/a.go:4: size: f has 248 lines, at most 70\n",
		249: "pools/a.go:4: size: f has 249 lines, at most 70\npools/a.go:501: size: file of 501 lines, at most 500\n",
	} {
		tree, err := readTree(fstest.MapFS{"go.mod": {Data: []byte("module headstart\n")}, "pools/a.go": {Data: []byte(file(n))}})
		if err != nil {
			t.Fatal(err)
		}
		found, err := houseRules(tree)
		if got := said(found); err != nil || got != want {
			t.Errorf("%d lines: got\n%s%v\nwant\n%s", n, got, err, want)
		}
	}
}

func TestTreesThatCannotBeRead(t *testing.T) {
	for name, root := range map[string]fstest.MapFS{
		"no module": {"a.go": {Data: []byte("package a")}},
		"no name":   {"go.mod": {Data: []byte("go 1.26")}},
		"no Go":     {"go.mod": {Data: []byte("module headstart\n")}, "a.go": {Data: []byte("packag a")}},
	} {
		if _, err := readTree(root); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, table := range []string{"a b c", "-> a", "a -> b\na -> c"} {
		if _, err := parseImports(table); err == nil {
			t.Errorf("table %q: no error", table)
		}
	}
}

func TestConformance(t *testing.T) {
	root, want := sample(t, "conformance.txt")
	tree, err := readTree(root)
	if err != nil {
		t.Fatal(err)
	}
	book, err := readBook(root, tree)
	if err != nil {
		t.Fatal(err)
	}
	if got := said(book.check()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	pruned := string(book.prune())
	if strings.Contains(pruned, "S02") || !strings.Contains(pruned, "S03 part") || !strings.Contains(pruned, "# comment") {
		t.Errorf("pruned to\n%s", pruned)
	}
	page := string(book.render())
	for _, row := range []string{
		"3 of 7 have tests; 2 are on that list.",
		"## Read path",
		"| S01 | first | `pools.FuzzS01`<br>`pools.TestS01_Alone` |",
		"| S04 | fourth | *n/a*: has no such thing |",
		"| LC-09 | disk full | `pools.TestS02LC09_Both` |",
	} {
		if !strings.Contains(page, row+"\n") {
			t.Errorf("no line %q in\n%s", row, page)
		}
	}
}

// The command writes the book, is content with it, and notices when it ages.
func TestWriteThenCheck(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{
		"go.mod":                     "module headstart\n",
		"docs/conformance-codes.txt": "# Read path\nS01 first\nS02 second\n",
		"docs/conformance-open.txt":  "S01 open not built yet\nS02 open not built yet\n",
		"pools/a_test.go":            "package pools\n\nfunc TestS01_Alone() {}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	step := func(want int, args ...string) {
		t.Helper()
		var out bytes.Buffer
		if got := run(append(args, "-root", dir), &out, &out); got != want {
			t.Errorf("%v: exit code %d, want %d:\n%s", args, got, want, out.String())
		}
	}
	step(0, "-write")
	step(1, "-conformance")
	step(0, "-write", "-prune")
	step(0, "-conformance")
	step(0)
	if err := os.WriteFile(filepath.Join(dir, "docs/CONFORMANCE.md"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	step(1, "-conformance")
	step(2, "-no-such-flag")
}

// TestRepository applies the house rules to this repository.
func TestRepository(t *testing.T) {
	found, err := checkRules("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}
