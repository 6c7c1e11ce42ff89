package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

// The limits that every file keeps to.
const (
	maxFuncLines    = 70
	maxFileLines    = 500
	maxPackageLines = 10
)

// houseRules applies all rules and returns what breaks them, in file order.
func houseRules(t *tree) ([]finding, error) {
	table, err := parseImports(importTable)
	if err != nil {
		return nil, err
	}
	found := append(packageComments(t), machinePaths(t)...)
	for _, s := range t.sources {
		found = append(found, table.check(t.module, s)...)
		found = append(found, sizes(s)...)
		found = append(found, state(s)...)
		found = append(found, comments(s)...)
		found = append(found, names(s)...)
	}
	slices.SortStableFunc(found, func(a, b finding) int {
		return cmp.Or(strings.Compare(a.path, b.path), cmp.Compare(a.line, b.line))
	})
	return found, nil
}

// sizes: functions and files that fit in a head.
func sizes(s *source) []finding {
	var found []finding
	if s.size > maxFileLines {
		found = append(found, finding{s.path, s.size, "size", fmt.Sprintf("file of %d lines, at most %d", s.size, maxFileLines)})
	}
	for _, d := range s.ast.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && s.lines(f) > maxFuncLines {
			found = append(found, finding{s.path, s.line(f.Pos()), "size", fmt.Sprintf("%s has %d lines, at most %d", f.Name.Name, s.lines(f), maxFuncLines)})
		}
	}
	return found
}

// state: no init functions and no package variables, so that three nodes run
// in one process.
func state(s *source) []finding {
	var found []finding
	for _, d := range s.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				found = append(found, finding{s.path, s.line(d.Pos()), "init", "no init functions"})
			}
		case *ast.GenDecl:
			if d.Tok != token.VAR {
				continue
			}
			for _, spec := range d.Specs {
				v := spec.(*ast.ValueSpec)
				if !unchanging(v) && !embeds(d.Doc) && !embeds(v.Doc) {
					found = append(found, finding{s.path, s.line(v.Pos()), "variable", "no package variables: " + v.Names[0].Name})
				}
			}
		}
	}
	return found
}

// unchanging admits `var _ I = …` and sentinel errors.
func unchanging(v *ast.ValueSpec) bool {
	for i, name := range v.Names {
		if name.Name == "_" {
			continue
		}
		if !strings.HasPrefix(strings.ToLower(name.Name), "err") || i >= len(v.Values) {
			return false
		}
		call, ok := v.Values[i].(*ast.CallExpr)
		if !ok {
			return false
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || (f.Sel.Name != "New" && f.Sel.Name != "Errorf") {
			return false
		}
	}
	return true
}

func embeds(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
}

// comments: every exported name says what it is for; nothing is put off.
func comments(s *source) []finding {
	var found []finding
	for _, group := range s.ast.Comments {
		for _, c := range group.List {
			if later(c.Text) {
				found = append(found, finding{s.path, s.line(c.Pos()), "comment", "do it now, or leave it out"})
			}
		}
	}
	if s.test {
		return found
	}
	for _, d := range s.ast.Decls {
		for _, name := range undocumented(d) {
			found = append(found, finding{s.path, s.line(name.Pos()), "comment", "exported " + name.Name + " has no comment"})
		}
	}
	return found
}

// later finds the marks that put work off.
func later(comment string) bool {
	for _, word := range strings.FieldsFunc(comment, func(r rune) bool { return r < 'A' || r > 'Z' }) {
		if word == "TODO" || word == "FIXME" || word == "XXX" || word == "HACK" {
			return true
		}
	}
	return false
}

// undocumented returns the exported names of a declaration without a comment.
func undocumented(d ast.Decl) []*ast.Ident {
	var bare []*ast.Ident
	note := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		if name.IsExported() && !slices.ContainsFunc(docs, func(g *ast.CommentGroup) bool { return g != nil }) {
			bare = append(bare, name)
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil || receiver(d).IsExported() {
			note(d.Name, d.Doc)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				note(spec.Name, spec.Doc, d.Doc)
				// The comment of an interface with one method is the method's.
				methods, ok := spec.Type.(*ast.InterfaceType)
				if !ok || !spec.Name.IsExported() || len(methods.Methods.List) == 1 {
					continue
				}
				for _, m := range methods.Methods.List {
					for _, name := range m.Names {
						note(name, m.Doc, m.Comment)
					}
				}
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					note(name, spec.Doc, spec.Comment, d.Doc)
				}
			}
		}
	}
	return bare
}

// receiver returns the name of a method's type.
func receiver(f *ast.FuncDecl) *ast.Ident {
	t := f.Recv.List[0].Type
	for {
		switch u := t.(type) {
		case *ast.StarExpr:
			t = u.X
		case *ast.IndexExpr:
			t = u.X
		case *ast.IndexListExpr:
			t = u.X
		case *ast.Ident:
			return u
		default:
			return ast.NewIdent("_")
		}
	}
}

// names: a package is called by what it does.
func names(s *source) []finding {
	switch path.Base(s.dir) {
	case "util", "utils", "common", "helper", "helpers", "misc", "shared", "base":
		return []finding{{s.path, s.line(s.ast.Package), "name", "a package name that says nothing: " + s.dir}}
	}
	return nil
}

// packageComments: one comment for each package, short enough to be read.
func packageComments(t *tree) []finding {
	var found []finding
	first := make(map[string]*source)
	docs := make(map[string]int)
	for _, s := range t.sources {
		if s.test {
			continue
		}
		if first[s.dir] == nil {
			first[s.dir] = s
		}
		if s.ast.Doc == nil {
			continue
		}
		docs[s.dir]++
		if n := s.lines(s.ast.Doc); n > maxPackageLines || docs[s.dir] > 1 {
			found = append(found, finding{s.path, s.line(s.ast.Doc.Pos()), "comment", fmt.Sprintf("package comment: want one of at most %d lines (this has %d)", maxPackageLines, n)})
		}
	}
	for dir, s := range first {
		if docs[dir] == 0 {
			found = append(found, finding{s.path, s.line(s.ast.Package), "comment", "package " + dir + " has no package comment"})
		}
	}
	return found
}

// machinePaths: nothing may name a folder of the machine that it was written on.
func machinePaths(t *tree) []finding {
	local := regexp.MustCompile(`(^|[^\w.~$/-])/(work|root|home|Users)/\w`)
	var found []finding
	for _, f := range t.texts {
		if strings.HasPrefix(f.path, "cmd/tidy/testdata/") {
			continue
		}
		no := 0
		for line := range bytes.Lines(f.data) {
			no++
			if local.Match(line) {
				found = append(found, finding{f.path, no, "path", "names a folder of somebody's machine"})
			}
		}
	}
	return found
}
