// Command flame draws a flame graph out of a CPU profile of pprof: an SVG picture
// in which each function is as wide as its share of the time, above who called it.
//
//	go test -run xxx -bench Get -cpuprofile cpu.pprof ./blockcache
//	go run ./bench/flame -title "a hit" -o hit.svg cpu.pprof
//
// pprof itself draws flame graphs in a browser only.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/google/pprof/profile"
)

func main() {
	title := flag.String("title", "", "what stands above the picture")
	out := flag.String("o", "", "the SVG `file`; standard output if empty")
	focus := flag.String("focus", "", "begin at this `function`: leave out what does not run below it")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "flame: want one file of pprof")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *out, *title, *focus); err != nil {
		fmt.Fprintln(os.Stderr, "flame:", err)
		os.Exit(1)
	}
}

func run(in, out, title, focus string) error {
	f, err := os.Open(in)
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := read(f, focus)
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	if out == "" {
		return draw(os.Stdout, title, root)
	}
	w, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(draw(w, title, root), w.Close())
}

// frame is a function, called by the one below it.
type frame struct {
	name  string
	value int64
	above map[string]*frame
}

// add adds a stack, the outermost function first.
func (f *frame) add(stack []string, value int64) {
	f.value += value
	for _, name := range stack {
		next := f.above[name]
		if next == nil {
			next = &frame{name: name, above: make(map[string]*frame)}
			f.above[name] = next
		}
		next.value += value
		f = next
	}
}

// read sums the stacks of a profile up, by its last kind of value.
func read(r io.Reader, focus string) (*frame, error) {
	p, err := profile.Parse(r)
	if err != nil {
		return nil, err
	}
	root := &frame{name: "all", above: make(map[string]*frame)}
	for _, s := range p.Sample {
		var stack []string // from the innermost function on
		for _, l := range s.Location {
			for _, line := range l.Line {
				stack = append(stack, line.Function.Name)
			}
		}
		for i, k := 0, len(stack)-1; i < k; i, k = i+1, k-1 {
			stack[i], stack[k] = stack[k], stack[i]
		}
		if stack = below(stack, focus); stack != nil {
			root.add(stack, s.Value[len(s.Value)-1])
		}
	}
	if root.value == 0 {
		return nil, fmt.Errorf("no sample has %q in it", focus)
	}
	return root, nil
}

// below cuts a stack off under focus; nil when that is not in it.
func below(stack []string, focus string) []string {
	if focus == "" {
		return stack
	}
	for i, name := range stack {
		if name == focus {
			return stack[i:]
		}
	}
	return nil
}
