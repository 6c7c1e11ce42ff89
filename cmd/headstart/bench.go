package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"headstart/bench/load"
)

const benchUsage = `usage: headstart bench -to HOST:PORT[,…] [flags]
       headstart bench -door library -conf be.conf [flags]

Reads from a running cluster at a given rate, whether it keeps up or not, and prints how long reads took from the moment
at which they were due. With several rates it measures one after the other; -plot draws them.

  headstart demo -stay                                                     in one shell, which prints the ports
  headstart bench -to 127.0.0.1:PORT -rate 100,300,1000 -plot out.svg      in another one

The read_token comes from HEADSTART_READ_TOKEN, S3 credentials from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.

`

// benchOptions are the flags of "headstart bench".
type benchOptions struct {
	door, to, conf, bucket   string
	load, objects, trace     string
	rates, plot              string
	size                     int64
	skew                     float64
	even, json               bool
	warm, time, timeout      time.Duration
	inFlight                 int
	seed                     uint64
	readToken, keyID, secret string
	stdout, stderr           io.Writer
}

// runBench is the sub-command "bench". It returns the exit code: 1 if a read
// failed or nothing could be read at all, 2 for bad usage.
func runBench(args []string, stdout, stderr io.Writer) int {
	o := benchOptions{
		stdout: stdout, stderr: stderr, readToken: os.Getenv("HEADSTART_READ_TOKEN"),
		keyID: os.Getenv("AWS_ACCESS_KEY_ID"), secret: os.Getenv("AWS_SECRET_ACCESS_KEY"),
	}
	plans, err := o.parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintln(stderr, "headstart bench:", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := o.run(ctx, plans); err != nil {
		fmt.Fprintln(stderr, "headstart bench:", err)
		return exitFailed
	}
	return exitOK
}

func (o *benchOptions) flags() *flag.FlagSet {
	f := flag.NewFlagSet("headstart bench", flag.ContinueOnError)
	f.SetOutput(o.stderr)
	f.Usage = func() {
		fmt.Fprint(o.stderr, benchUsage)
		f.PrintDefaults()
	}
	f.StringVar(&o.door, "door", "http", "how to read: http (GET /read), kitex, s3 (the S3 front, or any S3), or library (a BE in this process)")
	f.StringVar(&o.to, "to", "", "the `nodes`, host:port with commas: webserver_port for http, brpc_port for kitex, s3_port for s3")
	f.StringVar(&o.conf, "conf", "", "with -door library: the BE's configuration `file`")
	f.StringVar(&o.bucket, "bucket", demoBucket, "the bucket")
	f.StringVar(&o.load, "load", "trace", "what is read: trace (recorded reads in their order), zipf (some places often), scan (everything in order)")
	f.StringVar(&o.objects, "objects", "", "a `file` of lines key,size or key,size,tablet; the objects of headstart demo if empty")
	f.StringVar(&o.trace, "trace", "", "with -load trace and -objects: a `file` of lines key,offset,length")
	f.Int64Var(&o.size, "size", 64<<10, "with -load zipf and scan: `bytes` of a read")
	f.Float64Var(&o.skew, "skew", 1.1, "with -load zipf: the exponent, above 1")
	f.StringVar(&o.rates, "rate", "100", "reads due in a second; several with commas are measured one after the other")
	f.BoolVar(&o.even, "even", false, "reads are due at equal distances, not at random as from many clients")
	f.DurationVar(&o.warm, "warm", 2*time.Second, "how long each rate runs before it counts")
	f.DurationVar(&o.time, "time", 10*time.Second, "how long it counts")
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "the limit of one read")
	f.IntVar(&o.inFlight, "inflight", 64, "how many reads may be under way at once; a read that waits for its turn is charged for that")
	f.Uint64Var(&o.seed, "seed", 1, "seed of what is drawn")
	f.StringVar(&o.plot, "plot", "", "draw latency against load into this SVG `file`")
	f.BoolVar(&o.json, "json", false, "print JSON")
	return f
}

// parse reads the flags and returns a plan for each rate.
func (o *benchOptions) parse(args []string) ([]load.Plan, error) {
	f := o.flags()
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.door == "library" && (o.conf == "" || o.to != ""):
		return nil, errors.New("-door library needs -conf, and takes no -to: the BE runs in this process")
	case o.door != "library" && o.conf != "":
		return nil, fmt.Errorf("-conf goes with -door library only, not with -door %s", o.door)
	case o.size < 1 || o.size > 1<<30:
		return nil, fmt.Errorf("-size %d: want 1 to %d bytes", o.size, 1<<30)
	case !(o.skew > 1) || o.skew > 100:
		return nil, fmt.Errorf("-skew %v: want more than 1 and at most 100", o.skew)
	case o.time <= 0 || o.warm < 0 || o.timeout <= 0:
		return nil, fmt.Errorf("-time %v, -warm %v, -timeout %v: want more than 0; -warm may be 0", o.time, o.warm, o.timeout)
	case o.inFlight < 1 || o.inFlight > 1<<16:
		return nil, fmt.Errorf("-inflight %d: want 1 to %d", o.inFlight, 1<<16)
	}
	work, err := o.work()
	if err != nil {
		return nil, err
	}
	var plans []load.Plan
	for text := range strings.SplitSeq(o.rates, ",") {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || !(rate > 0) || rate > load.MaxRate {
			return nil, fmt.Errorf("-rate %s: %q: want reads a second, above 0 and at most %d, several with commas", o.rates, text, load.MaxRate)
		}
		p := load.Plan{
			Work: work, Rate: rate, Even: o.even, Warm: o.warm, Time: o.time, InFlight: o.inFlight, Timeout: o.timeout, Seed: o.seed,
		}
		if err := p.Validate(); err != nil {
			return nil, err
		}
		plans = append(plans, p)
	}
	if o.door != "library" {
		_, err = o.open(context.Background())
	}
	return plans, err
}

// work is what is to be read.
func (o *benchOptions) work() (*load.Work, error) {
	recorded, err := load.Recorded()
	if err != nil {
		return nil, err
	}
	objects := recorded.Objects
	if o.objects != "" {
		if objects, err = parseFile("-objects", o.objects, load.ParseObjects); err != nil {
			return nil, err
		}
	}
	if o.load != "trace" && o.trace != "" {
		return nil, fmt.Errorf("-trace goes with -load trace only, not with -load %s", o.load)
	}
	switch o.load {
	case "scan":
		return load.Scan(objects, o.size), nil
	case "zipf":
		return load.Zipf(objects, o.size, o.skew, o.seed), nil
	case "trace":
		if o.trace == "" && o.objects == "" {
			return recorded, nil
		}
		if o.trace == "" || o.objects == "" {
			return nil, errors.New("-load trace takes -objects and -trace together, or neither: then it reads as headstart demo does")
		}
		return parseFile("-trace", o.trace, func(r io.Reader) (*load.Work, error) { return load.ParseTrace(r, objects) })
	}
	return nil, fmt.Errorf("-load %s: want trace, zipf or scan", o.load)
}

// parseFile opens the file that a flag names.
func parseFile[T any](flag, path string, parse func(io.Reader) (T, error)) (T, error) {
	f, err := os.Open(path)
	if err != nil {
		var none T
		return none, fmt.Errorf("%s: %w", flag, err)
	}
	defer f.Close()
	got, err := parse(f)
	if err != nil {
		err = fmt.Errorf("%s %s: %w", flag, path, err)
	}
	return got, err
}

// open opens the door.
func (o *benchOptions) open(ctx context.Context) (load.Door, error) {
	options := load.Options{
		Bucket: o.bucket, ReadToken: o.readToken, KeyID: o.keyID, Secret: o.secret, InFlight: o.inFlight, Timeout: o.timeout,
	}
	if o.to != "" {
		options.Nodes = strings.Split(o.to, ",")
	}
	var door load.Door
	var err error
	switch o.door {
	case "http":
		door, err = load.OpenHTTP(ctx, options)
	case "kitex":
		door, err = load.OpenKitex(options)
	case "s3":
		door, err = load.OpenS3(options)
	case "library":
		return o.openLibrary(ctx)
	default:
		return nil, fmt.Errorf("-door %s: want http, kitex, s3 or library", o.door)
	}
	if err != nil {
		err = fmt.Errorf("-to %s: %w", o.to, err)
	}
	return door, err
}

// run measures all plans and prints what they have seen.
func (o *benchOptions) run(ctx context.Context, plans []load.Plan) error {
	door, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer door.Close()
	if err := o.try(ctx, door, plans[0].Work); err != nil {
		return err
	}
	if o.plot != "" { // better now than when everything is measured
		f, err := os.OpenFile(o.plot, os.O_WRONLY|os.O_CREATE, 0o666)
		if err != nil {
			return fmt.Errorf("-plot: %w", err)
		}
		if err := f.Close(); err != nil {
			return fmt.Errorf("-plot: %w", err)
		}
	}
	results := make([]load.Result, 0, len(plans))
	for _, p := range plans {
		r, err := load.Run(ctx, door, p, func(now load.Progress) {
			fmt.Fprintf(o.stderr, "%.6g/s due: %2.0f of %.0f s, %d reads in the last one, p99 %v, %d errors\n", p.Rate,
				now.Elapsed.Seconds(), now.Of.Seconds(), now.Reads, now.P99.Round(10*time.Microsecond), now.Error)
		})
		if err != nil {
			return err
		}
		results = append(results, r)
		if ctx.Err() != nil {
			fmt.Fprintln(o.stderr, "interrupted: the last line is of a part of its time, and of what came due in it")
			break
		}
	}
	if err := o.print(results); err != nil {
		return err
	}
	for i := range results {
		if r := &results[i]; r.Errors > 0 {
			return fmt.Errorf("%d reads failed at %.6g/s, the first: %w", r.Errors, r.Rate, r.FirstError)
		}
	}
	return nil
}

// ports say which of a node's ports a door is.
func ports(door string) string {
	switch door {
	case "http":
		return "; wants webserver_port"
	case "kitex":
		return "; wants brpc_port"
	case "s3":
		return "; wants s3_port"
	}
	return ""
}

// try reads once from each object's node, up to a few: what is wrong with the
// flags shows here, not as a thousand errors.
func (o *benchOptions) try(ctx context.Context, door load.Door, w *load.Work) error {
	for i := range min(w.Len(), 8) {
		r := w.At(i)
		r.Length = 1
		bound, cancel := context.WithTimeout(ctx, o.timeout)
		n, _, err := door.Read(bound, &w.Objects[r.Object], r, make([]byte, 1))
		cancel()
		if err == nil && n != 1 {
			err = fmt.Errorf("%d bytes of %s came, not one", n, w.Objects[r.Object].Key)
		}
		if err != nil {
			return fmt.Errorf("the first read fails (-door %s, -to %s, -bucket %s%s): %w", o.door, cmp.Or(o.to, o.conf), o.bucket, ports(o.door), err)
		}
	}
	return nil
}

// print prints the table, or JSON, and draws.
func (o *benchOptions) print(results []load.Result) error {
	if o.json {
		if err := json.NewEncoder(o.stdout).Encode(map[string]any{"door": o.door, "load": o.load, "runs": results}); err != nil {
			return err
		}
	} else if err := load.Report(o.stdout, results); err != nil {
		return err
	}
	if o.plot == "" {
		return nil
	}
	f, err := os.Create(o.plot)
	if err != nil {
		return fmt.Errorf("-plot: %w", err)
	}
	title := fmt.Sprintf("headstart bench: %s by %s, %v at each rate", o.load, o.door, o.time)
	return errors.Join(load.Plot(f, title, results), f.Close())
}
