package mysql

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestParse reads testdata/parse.txt: a statement, then, indented, what it is
// taken for. UPDATE=1 writes what is taken now.
func TestParse(t *testing.T) {
	data, err := os.ReadFile("testdata/parse.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		switch {
		case strings.HasPrefix(line, "\t"):
			continue
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "//"):
			out.WriteString(line)
			continue
		}
		out.WriteString(line)
		st, g, _, err := parse(strings.TrimSuffix(line, "\n"), nil)
		if err != nil {
			fmt.Fprintf(&out, "\terror: %v\n", err)
			continue
		}
		fmt.Fprintf(&out, "\t%s changes=%t\n", described(st), g.changes)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile("testdata/parse.txt", []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if out.String() != string(data) {
		t.Errorf("statements are taken for something else than testdata/parse.txt says:\n%s", out.String())
	}
}

func described(st statement) string {
	switch st := st.(type) {
	case selection:
		return fmt.Sprintf("select %q", st.names)
	case warmUp:
		return fmt.Sprintf("warmUp{dst:%s src:%s %s tablets:%d prefix:%s every:%ds}", st.dst, st.src, st.job.Type, st.job.Tablets, st.job.Prefix, st.job.IntervalS)
	}
	return strings.TrimPrefix(fmt.Sprintf("%T%+v", st, st), "mysql.")
}

func TestOverviewFitsIntoAnError(t *testing.T) {
	_, _, _, err := parse("DELETE FROM everything WHERE 'a long text that is cut off somewhere' = 1", nil)
	if err == nil || len(err.Error()) > 511 {
		t.Errorf("clients show 511 bytes of an error, this one has %d:\n%v", len(err.Error()), err)
	}
	for _, g := range grammars() {
		if !strings.Contains(err.Error(), g.lead) && !strings.Contains(g.lead, "DROPP") {
			t.Errorf("the error does not name %s:\n%v", g.lead, err)
		}
	}
}

func TestLike(t *testing.T) {
	for _, tt := range []struct {
		s, pattern string
		want       bool
	}{
		{"", "", true}, {"", "%", true}, {"a", "", false}, {"abc", "abc", true}, {"ABC", "abc", true},
		{"abc", "a%", true}, {"abc", "%c", true}, {"abc", "%b%", true}, {"abc", "a_c", true}, {"abc", "a_", false},
		{"abc", "%%%", true}, {"abc", "____", false}, {"a_c", `a\_c`, true}, {"abc", `a\_c`, false}, {"50%", `50\%`, true},
		{"aab", "%ab", true}, {"mississippi", "m%iss%ip%", true}, {"mississippi", "m%iss%x%", false}, {"abc", "abc%", true},
		{`a\b`, `a\b`, true},
	} {
		if got := like(tt.s, tt.pattern); got != tt.want {
			t.Errorf("%q LIKE %q: %t", tt.s, tt.pattern, got)
		}
	}
}

// FuzzParse: no text makes the parser panic or hang, and what it takes once it
// takes again.
func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("testdata/parse.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		f.Add(strings.TrimSpace(line), "5")
	}
	f.Add("SHOW WARM UP JOB WHERE id = ?", "7")
	f.Fuzz(func(t *testing.T, statement, arg string) {
		st, g, params, err := parse(statement, []string{arg})
		if (err == nil) != (st != nil && g != nil) {
			t.Fatalf("%q: %v and %v", statement, st, err)
		}
		if err != nil {
			return
		}
		again, _, _, err := parse(" /* again */ "+statement+" ;", []string{arg})
		if params <= 1 && (err != nil || fmt.Sprintf("%T", again) != fmt.Sprintf("%T", st)) {
			t.Fatalf("%q is a %T, and with a comment before it a %T (%v)", statement, st, again, err)
		}
		st.columns()
	})
}

// FuzzLike: a pattern made of a text matches that text.
func FuzzLike(f *testing.F) {
	f.Add("enable_cache_read_from_peer", uint8(3))
	f.Add(`%_\`, uint8(1))
	f.Fuzz(func(t *testing.T, s string, cut uint8) {
		if len(s) > 200 {
			return
		}
		at := min(int(cut), len(s))
		if pattern := escapeLike(s[:at]) + "%"; !like(s, pattern) {
			t.Errorf("%q is not LIKE %q", s, pattern)
		}
		if pattern := "%" + escapeLike(s[at:]); !like(s, pattern) {
			t.Errorf("%q is not LIKE %q", s, pattern)
		}
		if at < len(s) && like(s[:at], escapeLike(s)) && !strings.EqualFold(s[:at], s) {
			t.Errorf("%q is LIKE %q", s[:at], s)
		}
	})
}

func escapeLike(s string) string {
	return strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(s)
}
