package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// maxText is the size up to which files that are not Go are looked into.
const maxText = 1 << 20

// source is one Go file that people wrote.
type source struct {
	path string
	// dir is the package's folder, "." for the root.
	dir  string
	test bool
	// own is set for files of this module, not of one nested in it.
	own  bool
	fset *token.FileSet
	ast  *ast.File
	size int
}

// line returns the line of a position.
func (s *source) line(p token.Pos) int { return s.fset.Position(p).Line }

// lines returns how many lines n takes.
func (s *source) lines(n ast.Node) int { return s.line(n.End()) - s.line(n.Pos()) + 1 }

// text is a file as lines, for the rules that don't need Go's syntax.
type text struct {
	path string
	data []byte
}

// tree is the repository.
type tree struct {
	module  string
	sources []*source
	texts   []text
}

// finding is one breach of a rule.
type finding struct {
	path string
	line int
	rule string
	why  string
}

// String is the form that editors jump to.
func (f finding) String() string { return fmt.Sprintf("%s:%d: %s: %s", f.path, f.line, f.rule, f.why) }

// skipped tells which folders hold nothing that the rules are about.
func skipped(name string) bool {
	switch name {
	case ".git", ".cache", "bin", "vendor", "node_modules", "kitex_gen":
		return true
	}
	return false
}

func readTree(root fs.FS) (*tree, error) {
	t := &tree{}
	var nested []string
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skipped(d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || d.Name() == ".git" {
			return nil
		}
		if path.Base(name) == "go.mod" && name != "go.mod" {
			nested = append(nested, path.Dir(name)+"/")
		}
		return t.add(root, name, d)
	})
	if err != nil {
		return nil, err
	}
	for _, s := range t.sources {
		s.own = !slices.ContainsFunc(nested, func(dir string) bool { return strings.HasPrefix(s.path, dir) })
	}
	t.module, err = moduleName(root)
	return t, err
}

// add reads one file.
func (t *tree) add(root fs.FS, name string, d fs.DirEntry) error {
	info, err := d.Info()
	isGo := strings.HasSuffix(name, ".go")
	if err != nil || (!isGo && info.Size() > maxText) {
		return err
	}
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return err
	}
	if !bytes.ContainsRune(data, 0) {
		t.texts = append(t.texts, text{name, data})
	}
	if !isGo || slices.Contains(strings.Split(path.Dir(name), "/"), "testdata") {
		return nil
	}
	s := &source{path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"), fset: token.NewFileSet(),
		size: bytes.Count(data, []byte("\n"))}
	s.ast, err = parser.ParseFile(s.fset, name, data, parser.ParseComments|parser.SkipObjectResolution)
	if err == nil && !ast.IsGenerated(s.ast) {
		t.sources = append(t.sources, s)
	}
	return err
}

// moduleName reads the first line of go.mod.
func moduleName(root fs.FS) (string, error) {
	data, err := fs.ReadFile(root, "go.mod")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(name), nil
		}
	}
	return "", fmt.Errorf("go.mod names no module")
}
