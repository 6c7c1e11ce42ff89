package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// The three files of the conformance book. The first two are written by hand.
const (
	codesFile = "docs/conformance-codes.txt"
	openFile  = "docs/conformance-open.txt"
	bookFile  = "docs/CONFORMANCE.md"
)

// statement is one numbered statement or field case, S12 or LC-09.
type statement struct {
	section, code, title string
	line                 int
	tests                []string
}

// open is a line of the open list.
type open struct {
	line int
	// state is open (no test yet), part (tested, something is missing) or n/a
	// (can't apply to this design).
	state, reason string
}

// book says which test stands for which statement.
type book struct {
	statements []*statement
	open       map[string]open
	// openText and page are the files as they are now.
	openText, page []byte
	// bad is what the files or the test names have wrong by themselves.
	bad []finding
}

func readBook(root fs.FS, t *tree) (*book, error) {
	b := &book{open: make(map[string]open)}
	codes, err := fs.ReadFile(root, codesFile)
	if err != nil {
		return nil, err
	}
	if b.openText, err = fs.ReadFile(root, openFile); err != nil {
		return nil, err
	}
	if b.page, err = fs.ReadFile(root, bookFile); err != nil {
		b.page = nil
	}
	b.readCodes(string(codes))
	b.readOpen(string(b.openText))
	b.readTests(t)
	return b, nil
}

func (b *book) find(code string) *statement {
	i := slices.IndexFunc(b.statements, func(s *statement) bool { return s.code == code })
	if i < 0 {
		return nil
	}
	return b.statements[i]
}

// readCodes reads "# section" and "CODE title" lines.
func (b *book) readCodes(data string) {
	section, no := "", 0
	for line := range strings.Lines(data) {
		no++
		code, title, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case code == "":
		case code == "#":
			section = title
		case b.find(code) != nil:
			b.bad = append(b.bad, finding{codesFile, no, "conformance", code + " is listed twice"})
		default:
			b.statements = append(b.statements, &statement{section: section, code: code, title: strings.TrimSpace(title), line: no})
		}
	}
}

// readOpen reads "CODE state reason" lines.
func (b *book) readOpen(data string) {
	no := 0
	for line := range strings.Lines(data) {
		no++
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		if len(fields) < 3 || !slices.Contains([]string{"open", "part", "n/a"}, fields[1]) || b.find(fields[0]) == nil {
			b.bad = append(b.bad, finding{openFile, no, "conformance", "want a code of " + codesFile + ", one of open, part and n/a, and the reason"})
			continue
		}
		b.open[fields[0]] = open{no, fields[1], strings.Join(fields[2:], " ")}
	}
}

// readTests collects the tests that carry codes: TestS12_…, TestLC09_…,
// FuzzHT05_…, TestS20S23_… or TestS20_S23_… for two.
func (b *book) readTests(t *tree) {
	name := regexp.MustCompile(`^(?:Test|Fuzz)((?:(?:[A-Z]{1,3}\d{2})+(?:_|$))+)`)
	code := regexp.MustCompile(`([A-Z]{1,3})(\d{2})`)
	families := make(map[string]bool)
	for _, s := range b.statements {
		families[strings.TrimRight(s.code, "-0123456789")] = true
	}
	for _, s := range t.sources {
		if !s.test {
			continue
		}
		for _, d := range s.ast.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil {
				continue
			}
			m := name.FindStringSubmatch(f.Name.Name)
			if m == nil {
				continue
			}
			for _, c := range code.FindAllStringSubmatch(m[1], -1) {
				if !families[c[1]] {
					continue
				}
				st := b.find(c[1] + "-" + c[2])
				if st == nil {
					st = b.find(c[1] + c[2])
				}
				if st == nil {
					b.bad = append(b.bad, finding{s.path, s.line(f.Pos()), "conformance", f.Name.Name + " carries a code that " + codesFile + " does not have"})
					continue
				}
				st.tests = append(st.tests, s.dir+"."+f.Name.Name)
			}
		}
	}
	for _, st := range b.statements {
		slices.Sort(st.tests)
	}
}

// check returns what is missing or out of date.
func (b *book) check() []finding {
	found := b.bad
	for _, s := range b.statements {
		o, listed := b.open[s.code]
		switch {
		case !listed && len(s.tests) == 0:
			found = append(found, finding{codesFile, s.line, "conformance", s.code + " has no test, and " + openFile + " does not say why"})
		case listed && o.state == "open" && len(s.tests) > 0:
			found = append(found, finding{openFile, o.line, "conformance", s.code + " has a test by now: take it off, or say part and what is missing"})
		case listed && o.state == "part" && len(s.tests) == 0:
			found = append(found, finding{openFile, o.line, "conformance", s.code + " is said to be tested in part, but has no test"})
		}
	}
	if len(found) == 0 && !bytes.Equal(b.page, b.render()) {
		found = append(found, finding{bookFile, 1, "conformance", "out of date: run make gen"})
	}
	return found
}

// prune returns the open list without what has a test by now.
func (b *book) prune() []byte {
	var kept bytes.Buffer
	no := 0
	for line := range bytes.Lines(b.openText) {
		no++
		drop := false
		for _, s := range b.statements {
			if o, ok := b.open[s.code]; ok && o.line == no && o.state == "open" && len(s.tests) > 0 {
				delete(b.open, s.code)
				drop = true
			}
		}
		if !drop {
			kept.Write(line)
		}
	}
	return kept.Bytes()
}

// render returns the page.
func (b *book) render() []byte {
	var p bytes.Buffer
	tested := 0
	for _, s := range b.statements {
		if len(s.tests) > 0 {
			tested++
		}
	}
	fmt.Fprintf(&p, `# Conformance

Generated by `+"`make gen`"+` from the names of the tests: a test whose name carries a code stands for that statement of the
specification (S…) or that case from the field (LC-…, PR-…, …: a failure that other systems had). What has no test is on
%s with the reason, or make check fails.

%d of %d have tests; %d are on that list.
`, "[`conformance-open.txt`](conformance-open.txt)", tested, len(b.statements), len(b.open))
	section := ""
	for _, s := range b.statements {
		if s.section != section {
			section = s.section
			fmt.Fprintf(&p, "\n## %s\n\n| code | what | tests |\n|---|---|---|\n", section)
		}
		var cells []string
		for _, t := range s.tests {
			cells = append(cells, "`"+t+"`")
		}
		if o, ok := b.open[s.code]; ok {
			cells = append(cells, "*"+o.state+"*: "+o.reason)
		}
		fmt.Fprintf(&p, "| %s | %s | %s |\n", s.code, s.title, strings.Join(cells, "<br>"))
	}
	return p.Bytes()
}
