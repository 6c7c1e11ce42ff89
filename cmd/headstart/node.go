package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"headstart/cmd/config"
	"headstart/rpc"
)

// The exit codes. Only a node that was told to stop and had time to drain
// exits with exitOK.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// node is a running BE or FE.
type node interface {
	// ready is the line that the node prints on standard output once it serves.
	ready() any
	// failed delivers the error of a part that has ended by itself.
	failed() <-chan error
	// drain stops taking work and waits for what is under way, or for ctx.
	drain(ctx context.Context) error
}

// role is what tells a BE from an FE before it runs.
type role struct {
	name  string
	role  config.Role
	start func(ctx context.Context, conf *config.Set, log *slog.Logger) (node, error)
}

// runNode runs a node until a signal or a failure ends it. The first SIGTERM or
// SIGINT drains, the second one exits at once.
func runNode(r role, args []string, stdout, stderr io.Writer) int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)

	conf, code := loadConfig(r, args, stdout, stderr)
	if conf == nil {
		return code
	}
	log := newLogger(conf, stderr).With("role", r.name)
	conf.LogTo(log)
	rpc.LogKitex(log)
	for _, w := range conf.Warnings() {
		log.Warn("configuration", "warning", w)
	}

	n, err := launch(r, conf, log, signals)
	if err != nil {
		log.Error("cannot start", "error", err)
		return exitFailed
	}
	if err := json.NewEncoder(stdout).Encode(n.ready()); err != nil {
		log.Error("cannot print the ready line", "error", err)
	}
	log.Info("ready", "version", version())
	warnUnused(conf, log)
	code = exitOK
	select {
	case s := <-signals:
		log.Info("draining", "signal", s.String())
	case err := <-n.failed():
		log.Error("a part of the node has ended", "error", err)
		code = exitFailed
	}
	return stopNode(n, conf, log, signals, code)
}

// warnUnused says so, now and at each change, when somebody sets a key that this
// version accepts but does not act on yet. What is looked at when it is needed
// has no follower either, and is not among them.
func warnUnused(conf *config.Set, log *slog.Logger) {
	for _, name := range conf.Unbound() {
		if name == "drain_timeout_ms" {
			continue
		}
		conf.Bind(name, func(v config.Value) {
			if !v.Default() {
				log.Warn("this version does not act on the key", "key", name, "value", v.Shown())
			}
		})
	}
}

// launch starts the node; a signal in the meantime gives it up.
func launch(r role, conf *config.Set, log *slog.Logger, signals <-chan os.Signal) (node, error) {
	type started struct {
		n   node
		err error
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan started, 1)
	go func() { // ends with the start; the process does not outlive a start given up
		n, err := r.start(ctx, conf, log)
		done <- started{n, err}
	}()
	select {
	case s := <-done:
		return s.n, s.err
	case s := <-signals:
		return nil, fmt.Errorf("stopped by %s while starting", s)
	}
}

func stopNode(n node, conf *config.Set, log *slog.Logger, signals <-chan os.Signal, code int) int {
	ctx, cancel := context.WithTimeout(context.Background(), conf.Duration("drain_timeout_ms"))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- n.drain(ctx) }() // ends with ctx at the latest
	select {
	case err := <-done:
		if err != nil {
			log.Error("the drain did not end in time", "error", err)
			return exitFailed
		}
		log.Info("stopped")
		return code
	case s := <-signals:
		log.Warn("stopped at once", "signal", s.String())
		return exitFailed
	}
}

// loadConfig reads flags, environment and files. A nil set means that the
// program is to exit with code.
func loadConfig(r role, args []string, stdout, stderr io.Writer) (conf *config.Set, code int) {
	fs := flag.NewFlagSet("headstart "+r.name, flag.ContinueOnError)
	fs.SetOutput(stderr)
	path := fs.String("conf", "", "the configuration `file`; "+r.name+"_custom.conf beside it overrides it")
	show := fs.Bool("print-config", false, "print the configuration in force and exit")
	keys := config.Flags(fs, r.role)
	if err := fs.Parse(args); err != nil {
		if err == flag.ErrHelp {
			return nil, exitOK
		}
		return nil, exitUsage
	}
	if fs.NArg() > 0 {
		fmt.Fprintf(stderr, "headstart %s: unexpected argument %q\n", r.name, fs.Arg(0))
		return nil, exitUsage
	}
	conf, err := config.Load(r.role, *path, config.Environ(os.Environ()), keys)
	if err != nil {
		fmt.Fprintf(stderr, "headstart %s: %v\n", r.name, err)
		return nil, exitUsage
	}
	if *show {
		if err := conf.Print(stdout); err != nil {
			return nil, exitFailed
		}
		return nil, exitOK
	}
	return conf, exitOK
}

// newLogger writes one line per state change to w; log_level may change at run
// time.
func newLogger(conf *config.Set, w io.Writer) *slog.Logger {
	level := new(slog.LevelVar)
	conf.Bind("log_level", func(v config.Value) {
		var l slog.Level
		if l.UnmarshalText([]byte(v.Text())) == nil {
			level.Set(l)
		}
	})
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}
