// Package ctl is "headstart ctl": what a person asks of a running cluster,
// over the HTTP interface that scripts use as well.
//
// It keeps nothing and decides nothing: every command is a request or a few,
// printed as a table, or with -json as the node has answered. Only doctor has
// opinions; they are in checks.go.
package ctl

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

// The exit codes: ExitFailed is also doctor's when it has found something.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// command is one verb.
type command struct {
	name string
	// args says what follows the verb, help what it does.
	args, help string
	// least and most bound the number of arguments; most -1 means any number.
	least, most int
	run         func(context.Context, *session) error
	// words are what may come as first argument, for the completion.
	words []string
}

// session is one run of a command.
type session struct {
	*client
	args   []string
	stdout io.Writer
	json   bool
	// Flags that only some commands have.
	fe                   string
	limit                int
	persist, sync        bool
	value, path          string
	capacity             int64
	lastGroup            string
	misses, cooldownTill int64
	over                 time.Duration
}

// commands are all verbs, in the order of the help.
func commands() []command {
	return []command{
		{name: "doctor", help: "look for what is wrong in a cluster, and say what to set (-fe, or -be a,b,c); silent when all is well", run: doctor},
		{name: "show", args: "[TABLET]", most: 1, help: "the candidates of a tablet, or of all that have any (-limit)", run: show},
		{name: "set", args: "TABLET HOST:PORT@GROUP…", least: 2, most: -1, help: "force the candidates of a tablet (-last-group, -misses, -cooldown-until)", run: set},
		{name: "remove", args: "TABLET", least: 1, most: 1, help: "remove the candidates of a tablet", run: verb("/api/peer_cache", "remove", "tablet_id")},
		{name: "reset", args: "TABLET", least: 1, most: 1, help: "end the cooldown of a tablet", run: verb("/api/peer_cache", "reset_cooldown", "tablet_id")},
		{name: "config", args: "get [KEY] | set KEY=VALUE…", least: 1, most: -1, help: "show keys, or change them (-persist)", run: configure, words: []string{"get", "set"}},
		{name: "cache", args: "VERB", least: 1, most: 1, help: "release, clear (-sync, -value PATH), reset (-capacity BYTES -path DIR), hash and list (-value PATH), dump", run: cache,
			words: []string{"release", "clear", "reset", "hash", "list", "dump"}},
		{name: "breaker", args: "[reset HOST:PORT]", most: 2, help: "the circuits to other nodes, or close one", run: breaker, words: []string{"reset"}},
		{name: "profile", args: "QUERY_ID", least: 1, most: 1, help: "the profile of a query", run: queryProfile},
		{name: "slow", help: "the last slow reads as waterfalls (-limit)", run: slow},
		{name: "vars", args: "[NAMES]", most: 1, help: "the node's variables; NAMES may have * and commas", run: vars},
		{name: "completion", args: "bash", least: 1, most: 1, help: "print a script for the shell: source <(headstart ctl completion bash)", run: completion, words: []string{"bash"}},
	}
}

// find returns the command of a name, nil when there is none.
func find(name string) *command {
	for _, c := range commands() {
		if c.name == name {
			return &c
		}
	}
	return nil
}

// Run is the sub-command "ctl"; it returns the exit code. token is the admin's
// unless -token-file names one: on a command line anybody could read it.
func Run(ctx context.Context, args []string, token string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return exitUsage
	}
	c := find(args[0])
	if c == nil {
		usage(stderr)
		switch args[0] {
		case "help", "-h", "-help", "--help":
			return exitOK
		}
		fmt.Fprintf(stderr, "\nheadstart ctl: unknown command %q\n", args[0])
		return exitUsage
	}
	s, err := c.parse(args[1:], token, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "headstart ctl %s: %v\n", c.name, err)
		return exitUsage
	}
	s.stdout = stdout
	switch err := c.run(ctx, s); {
	case err == nil:
		return exitOK
	case errors.Is(err, errFound): // it has said all itself
		return exitFailed
	case errors.Is(err, errUsage):
		fmt.Fprintf(stderr, "headstart ctl %s: %v\n", c.name, err)
		return exitUsage
	default:
		fmt.Fprintf(stderr, "headstart ctl %s: %v\n", c.name, err)
		return exitFailed
	}
}

var (
	errUsage = errors.New("usage")
	errFound = errors.New("something is wrong with the cluster")
)

func usage(w io.Writer) {
	fmt.Fprint(w, "usage: headstart ctl COMMAND [flags] [arguments]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-34s %s\n", strings.TrimSpace(c.name+" "+c.args), c.help)
	}
	fmt.Fprint(w, "\nheadstart ctl COMMAND -h lists the flags of a command.\n")
}

// parse reads flags and arguments in any order.
func (c *command) parse(args []string, token string, stderr io.Writer) (*session, error) {
	s := &session{}
	f := c.flags(s)
	be := f.Lookup("be")
	tokenFile := f.String("token-file", "", "`file` with the admin_token; without it HEADSTART_ADMIN_TOKEN of the environment")
	f.SetOutput(stderr)
	for {
		if err := f.Parse(args); err != nil {
			return nil, err
		}
		if f.NArg() == 0 {
			break
		}
		s.args, args = append(s.args, f.Arg(0)), f.Args()[1:]
	}
	if n := len(s.args); n < c.least || c.most >= 0 && n > c.most {
		return nil, fmt.Errorf("want %s", strings.TrimSpace(c.name+" "+c.args))
	}
	if *tokenFile != "" {
		text, err := os.ReadFile(*tokenFile)
		if err != nil {
			return nil, err
		}
		token = strings.TrimSpace(string(text))
	}
	if err := s.check(c.name, be.Value.String()); err != nil {
		return nil, err
	}
	s.client = newClient(be.Value.String(), token)
	return s, nil
}

// check looks at flags whose values no node would see.
func (s *session) check(name, be string) error {
	nodes := []string{be}
	if name == "doctor" {
		nodes = strings.Split(be, ",")
	}
	if s.fe != "" {
		nodes = append(nodes, s.fe)
	}
	for _, addr := range nodes {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
			return fmt.Errorf("address %q: want host:port", addr)
		}
	}
	if s.over < 0 {
		return fmt.Errorf("-over %v: want a time from 0 on", s.over)
	}
	return nil
}

// flags are those of one command: what it does not use, it does not take.
func (c *command) flags(s *session) *flag.FlagSet {
	f := flag.NewFlagSet("headstart ctl "+c.name, flag.ContinueOnError)
	f.String("be", "127.0.0.1:8040", "`host:webserver_port` of the BE")
	f.BoolVar(&s.json, "json", false, "print JSON, for scripts")
	switch c.name {
	case "doctor":
		f.StringVar(&s.fe, "fe", "", "`host:http_port` of an FE, which knows all BEs; -be may name several with commas instead")
		f.DurationVar(&s.over, "over", 0, "look at what happens within this `time`, not at all since the nodes' start")
	case "show":
		f.IntVar(&s.limit, "limit", 1000, "list at most so many tablets")
	case "set":
		f.StringVar(&s.lastGroup, "last-group", "", "the `group` that served the tablet last")
		f.Int64Var(&s.misses, "misses", 0, "reads in a row that every candidate missed")
		f.Int64Var(&s.cooldownTill, "cooldown-until", 0, "end of the cooldown in Unix `milliseconds`")
	case "config":
		f.BoolVar(&s.persist, "persist", false, "write the change to be_custom.conf")
	case "cache":
		f.BoolVar(&s.sync, "sync", false, "wait until the space is free")
		f.StringVar(&s.value, "value", "", "the `path` of an object")
		f.Int64Var(&s.capacity, "capacity", 0, "new size in `bytes`")
		f.StringVar(&s.path, "path", "", "`directory` of file_cache_path")
	case "slow":
		f.IntVar(&s.limit, "limit", 20, "show at most so many of each kind")
	}
	return f
}
