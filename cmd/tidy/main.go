// Tidy checks the house rules of this repository: the import table, sizes,
// package variables, comments (go run ./cmd/tidy), and that every statement of
// the specification has a test that carries its number (go run ./cmd/tidy
// -conformance). It reads the source as it lies there and changes nothing,
// except with -write, which renews docs/CONFORMANCE.md, and -prune, which
// takes what has a test by now off docs/conformance-open.txt.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit code: 0 when there is nothing to report, 1 when there
// is, 2 when the tree can't be read.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("tidy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	root := flags.String("root", ".", "the root of the repository")
	conformance := flags.Bool("conformance", false, "check the statements of the specification against the tests")
	write := flags.Bool("write", false, "write docs/CONFORMANCE.md")
	prune := flags.Bool("prune", false, "take what has a test off docs/conformance-open.txt: look at each, a test may cover only a part")
	if flags.Parse(args) != nil {
		return 2
	}
	var findings []finding
	var err error
	switch {
	case *write || *prune:
		err = renew(*root, *write, *prune)
	case *conformance:
		findings, err = checkConformance(*root)
	default:
		findings, err = checkRules(*root)
	}
	if err != nil {
		fmt.Fprintln(stderr, "tidy:", err)
		return 2
	}
	for _, f := range findings {
		fmt.Fprintln(stdout, f)
	}
	if len(findings) > 0 {
		return 1
	}
	return 0
}

func checkRules(root string) ([]finding, error) {
	tree, err := readTree(os.DirFS(root))
	if err != nil {
		return nil, err
	}
	return houseRules(tree)
}

func checkConformance(root string) ([]finding, error) {
	book, err := openBook(root)
	if err != nil {
		return nil, err
	}
	return book.check(), nil
}

func openBook(root string) (*book, error) {
	tree, err := readTree(os.DirFS(root))
	if err != nil {
		return nil, err
	}
	return readBook(os.DirFS(root), tree)
}

// renew writes the files of the conformance book that are asked for.
func renew(root string, write, prune bool) error {
	book, err := openBook(root)
	if err != nil {
		return err
	}
	if prune {
		if err := os.WriteFile(filepath.Join(root, openFile), book.prune(), 0o644); err != nil {
			return err
		}
	}
	if write {
		return os.WriteFile(filepath.Join(root, bookFile), book.render(), 0o644)
	}
	return nil
}
