// Tidy checks the house rules of this repository: the import table, sizes,
// package variables, comments (go run ./cmd/tidy), and that every statement of
// the specification has a test that carries its number (go run ./cmd/tidy
// -conformance). It reads the source as it lies there and changes nothing,
// except with -write: that renews docs/CONFORMANCE.md and takes what has a
// test by now off docs/conformance-open.txt.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit code: 0 when there is nothing to report, 1 when there
// is, 2 when the tree can't be read.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("tidy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	root := flags.String("root", ".", "the root of the repository")
	conformance := flags.Bool("conformance", false, "check the statements of the specification against the tests")
	write := flags.Bool("write", false, "write docs/CONFORMANCE.md and prune docs/conformance-open.txt")
	if flags.Parse(args) != nil {
		return 2
	}
	findings, err := check(*root, *conformance || *write, *write)
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

func check(root string, conformance, write bool) ([]finding, error) {
	tree, err := readTree(os.DirFS(root))
	if err != nil {
		return nil, err
	}
	if !conformance {
		return houseRules(tree)
	}
	book, err := readBook(os.DirFS(root), tree)
	if err != nil {
		return nil, err
	}
	if write {
		return nil, book.write(root)
	}
	return book.check(), nil
}
