// Command results runs a measurement and keeps what it prints: the section of
// that name in bench/RESULTS.md is replaced, with the commit, the machine and
// the command above it. The file is written by this command only.
//
//	go run ./bench/results -section "Hot paths" -command "make bench" -- go run ./bench/micro
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

func main() {
	section := flag.String("section", "", "heading of the section")
	command := flag.String("command", "", "what a user types to get it; the program and its arguments if it is empty")
	file := flag.String("file", "bench/RESULTS.md", "the file that keeps it")
	flag.Parse()
	if *section == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "results: usage: results -section NAME [-command TEXT] -- PROGRAM [ARGUMENTS]")
		os.Exit(2)
	}
	if *command == "" {
		*command = strings.Join(flag.Args(), " ")
	}
	if err := run(*section, *command, *file, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
		os.Exit(1)
	}
}

// run keeps the output of program; one that fails leaves the file as it was.
func run(section, command, file string, program []string) error {
	facts := machine(command) // before the run: the load is that of others
	// An interrupt goes to the program as well, which cleans up; this process
	// outlives it to say so.
	signal.Ignore(os.Interrupt)
	var out bytes.Buffer
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &out), os.Stderr
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w; %s keeps what it had", strings.Join(program, " "), err, file)
	}
	facts += fmt.Sprintf(" It took %v.", time.Since(began).Round(time.Second))
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(file, []byte(replace(string(old), section, facts, out.String())), 0o644)
}

const heading = "# Results\n\nThe last run of each command, written by `bench/results` and not by hand. " +
	"Absolute figures are of that machine at that time; ratios count.\n"

// replace returns text with one section exchanged, or added at its end.
func replace(text, section, facts, output string) string {
	if !strings.HasPrefix(text, "# ") {
		text = heading
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n\n```\n", section, facts)
	for line := range strings.Lines(strings.Trim(output, "\n")) {
		b.WriteString(strings.TrimRight(line, " \t\n") + "\n")
	}
	b.WriteString("```\n")
	before, rest, found := strings.Cut(text, "\n## "+section+"\n")
	if !found {
		return text + "\n" + b.String()
	}
	after := ""
	if i := strings.Index(rest, "\n## "); i >= 0 {
		after = rest[i:]
	}
	return before + "\n" + b.String() + after
}

// machine says what ran where.
func machine(command string) string {
	return fmt.Sprintf("`%s` at commit %s, %s, on %d × %s, %.0f GiB, %s, %s; load of other work before it: %s.",
		command, commit(), time.Now().UTC().Format("2006-01-02 15:04 UTC"), runtime.NumCPU(), field("/proc/cpuinfo", "model name"),
		memory(), kernel(), runtime.Version(), load())
}

// commit names the commit, and whether the tree differs from it. The file of
// results may.
func commit() string {
	id, err := exec.Command("git", "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	changed, err := exec.Command("git", "status", "--porcelain", "--", ".", ":!bench/RESULTS.md").Output()
	name := strings.TrimSpace(string(id))
	if err != nil || len(changed) > 0 {
		name += " with changes"
	}
	return name
}

// field returns the first value of a name in a file of lines "name : value".
func field(path, name string) string {
	data, _ := os.ReadFile(path) // not there: not known
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// memory is in GiB; 0 when it is not known.
func memory() float64 {
	var kb float64
	_, _ = fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%g kB", &kb)
	return kb / (1 << 20)
}

func kernel() string {
	var u syscall.Utsname
	if syscall.Uname(&u) != nil {
		return runtime.GOOS
	}
	var name []byte
	for _, c := range u.Release {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	release, _, _ := strings.Cut(string(name), "-")
	return "Linux " + release
}

// load is the load average of a minute.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(data), " ")
	return one
}
