// Command cacherestart fills a block cache in a process of its own, kills that
// with SIGKILL while readers and writers are at work, and opens what is left:
// how soon the first block is found, when all are, and whether each is right.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

func main() {
	var p plan
	flag.IntVar(&p.blocks, "blocks", 262_144, "how many blocks the cache holds")
	flag.IntVar(&p.size, "size", 64<<10, "their size in bytes")
	flag.IntVar(&p.waiting, "waiting", 1024, "how many of them may wait to be written, at least 4")
	flag.DurationVar(&p.load, "load", 2*time.Second, "how long readers and writers are at work before the kill")
	tmp := flag.String("tmp", "", "directory on the disk to measure")
	victim := flag.String("victim", "", "be the process that is killed, on this directory")
	flag.Parse()
	if err := start(p, *tmp, *victim); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func start(p plan, tmp, victim string) (err error) {
	if victim != "" {
		return p.beVictim(victim, os.Stdout)
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(tmp, "cacherestart")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r, err := p.run(exec.Command(exe, p.args(dir)...), dir)
	if err != nil {
		return err
	}
	fmt.Println(r)
	return r.verdict()
}

// args are those of the victim.
func (p plan) args(dir string) []string {
	return []string{"-victim", dir, "-blocks", fmt.Sprint(p.blocks), "-size", fmt.Sprint(p.size), "-waiting", fmt.Sprint(p.waiting), "-load", p.load.String()}
}

// run lets the victim work, kills it in the middle of that, and looks at what it
// has left in dir.
func (p plan) run(victim *exec.Cmd, dir string) (result, error) {
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	if err != nil {
		return result{}, err
	}
	if err := victim.Start(); err != nil {
		return result{}, err
	}
	complete, err := lastTold(out, p.load, victim.Process.Kill)
	werr := victim.Wait()
	if err != nil {
		return result{}, err
	}
	if victim.ProcessState.Exited() {
		return result{}, fmt.Errorf("the victim has ended by itself: %w", errors.Join(werr, io.ErrUnexpectedEOF))
	}
	return p.look(dir, complete)
}
