// Package conduct does what the FE's knowledge asks for: it lets rounds of
// balance move tablets by their balance type, and runs warm-up jobs.
//
// One goroutine, Run, holds all its state; the calls to backends are made
// beside it, one at a time to each. What must survive is in the Directory: a
// Conductor that takes over from another goes on from there, and does again
// what the other had begun. It never decides who is alive or who serves what,
// and a backend that fails costs the others nothing.
package conduct

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"headstart/shards/placement"
)

// Options are fixed when a Conductor is made. The zero value works.
type Options struct {
	// BatchTablets is about how many tablets a batch has; 0 means 64.
	BatchTablets int
	// MaxBatches bounds the batches of a round or a job that backends work on at
	// the same time; 0 means 32.
	MaxBatches int
	// Attempts is how often a backend may fail to warm up a part; 0 means 3.
	Attempts int
	// Logger gets a line for each change of state; nil discards them.
	Logger *slog.Logger
}

// Validate refuses what can't be meant.
func (o *Options) Validate() error {
	if min(o.BatchTablets, o.MaxBatches, o.Attempts) < 0 {
		return fmt.Errorf("conduct: BatchTablets %d, MaxBatches %d, Attempts %d: want 0 (default) or more",
			o.BatchTablets, o.MaxBatches, o.Attempts)
	}
	return nil
}

const (
	// pollEvery is how often backends are asked how far they are, and how often
	// the Directory is looked at for new work.
	pollEvery = time.Second
	// callTimeout bounds one call.
	callTimeout = 5 * time.Second
	// unanswered is how long the calls to a backend that is alive may fail before
	// its parts are given up.
	unanswered = 30 * time.Second
	// retryAfter is the pause before a failed part or batch is tried again.
	retryAfter = 5 * time.Second
)

// Conductor runs the rounds and the jobs of one Directory. All its fields
// belong to the goroutine of Run.
type Conductor struct {
	directory *placement.Directory
	backends  placement.Backends
	options   Options
	wake      chan struct{}

	// name and batches number the batches of this Conductor apart from those of
	// any other.
	name    string
	batches int
	rounds  map[string]*round
	jobs    map[int64]*job
	lines   map[int64]*line
	heard   chan func()
	calls   sync.WaitGroup
}

// New returns a Conductor that Run sets to work.
func New(d *placement.Directory, b placement.Backends, o Options) (*Conductor, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.BatchTablets = cmp.Or(o.BatchTablets, 64)
	o.MaxBatches = cmp.Or(o.MaxBatches, 32)
	o.Attempts = cmp.Or(o.Attempts, 3)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Conductor{directory: d, backends: b, options: o, wake: make(chan struct{}, 1)}, nil
}

// Wake makes Run look for work now, instead of within a second.
func (c *Conductor) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends; of several FEs the one that leads runs it. It may
// be called again afterwards, but not twice at the same time.
func (c *Conductor) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		c.calls.Wait()
	}()
	c.name, c.batches = rand.Text(), 0
	c.rounds, c.jobs, c.lines = make(map[string]*round), make(map[int64]*job), make(map[int64]*line)
	c.heard = make(chan func())
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		now := time.Now()
		c.stepRounds(ctx, now)
		c.stepJobs(ctx, now)
		c.call(ctx, now)
		select {
		case <-ctx.Done():
			return
		case news := <-c.heard:
			news()
		case <-ticker.C:
		case <-c.wake:
		}
	}
}

// tell hands news of a call to Run, unless Run has ended.
func (c *Conductor) tell(ctx context.Context, news func()) {
	select {
	case c.heard <- news:
	case <-ctx.Done():
	}
}

// lost reports whether an error of the Directory means that what was to be
// changed is no longer there. Any other one is the store's, which the Directory
// logs: the change is tried again.
func lost(err error) bool {
	return errors.Is(err, placement.ErrOver) || errors.Is(err, placement.ErrUnknown)
}
