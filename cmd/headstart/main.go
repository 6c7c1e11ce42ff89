// Command headstart runs a node of a Headstart cluster, or a whole cluster at
// once to show what it does.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"

	"headstart/cmd/ctl"
)

const usage = `usage: headstart COMMAND [flags]

  be -conf be.conf    run a BE: it caches blocks and serves reads
  fe -conf fe.conf    run an FE: it knows the BEs and who serves which tablet
  ctl COMMAND         ask a running cluster: doctor, slow reads, candidates, configuration, …
  demo                run a small cluster on recorded reads and print a table
  bench               read from a running cluster at a given rate and measure how long it takes
  version             print the version

headstart COMMAND -h lists the flags of a command.
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the whole program; it returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	switch cmd, rest := args[0], args[1:]; cmd {
	case "be":
		return runNode(beRole(), rest, stdout, stderr)
	case "fe":
		return runNode(feRole(), rest, stdout, stderr)
	case "ctl":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		return ctl.Run(ctx, rest, os.Getenv("HEADSTART_ADMIN_TOKEN"), stdout, stderr)
	case "demo":
		return runDemo(rest, stdout, stderr)
	case "bench":
		return runBench(rest, stdout, stderr)
	case "version":
		fmt.Fprintln(stdout, version())
		return exitOK
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, usage)
		return exitOK
	default:
		fmt.Fprintf(stderr, "headstart: unknown command %q\n\n%s", cmd, usage)
		return exitUsage
	}
}

// version returns the module's version as the build has recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "headstart (devel)"
	}
	return "headstart " + info.Main.Version
}
