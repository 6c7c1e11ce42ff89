package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnlyItsSectionIsReplaced(t *testing.T) {
	text := replace("", "One", "facts of 1", "a  \nb\n")
	text = replace(text, "Two", "facts of 2", "c\n")
	text = replace(text, "Three", "facts of 3", "d\n")
	again := replace(text, "Two", "new facts", "e\n\nf\n")
	if !strings.HasPrefix(again, heading+"\n## One\n\nfacts of 1\n\n```\na\nb\n```\n\n## Two\n\nnew facts\n\n```\ne\n\nf\n```\n\n## Three\n\nfacts of 3\n") {
		t.Fatal(again)
	}
	if third := replace(again, "Two", "new facts", "e\n\nf\n"); third != again {
		t.Errorf("the same again changes it:\n%s", third)
	}
}

func TestWhatFailsLeavesTheFileAsItWas(t *testing.T) {
	file := filepath.Join(t.TempDir(), "R.md")
	if err := run("S", "c", file, []string{"go", "version"}); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(before), "go version go") || !strings.Contains(string(before), "`c` at commit ") {
		t.Fatalf("%s (%v)", before, err)
	}
	if err := run("S", "c", file, []string{"go", "no-such-command"}); err == nil {
		t.Error("a program that fails is no error")
	}
	if after, _ := os.ReadFile(file); string(after) != string(before) {
		t.Errorf("the file became\n%s", after)
	}
}
