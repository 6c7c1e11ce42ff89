package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"headstart/bench/latency"
	"headstart/bench/s3law"
)

// Door is one way into a cluster. Many goroutines use it at once.
type Door interface {
	// Read reads r.Length bytes of o into dst and returns how many came, and from
	// where as the node says: "local", "peer" or "s3", "" when it does not.
	Read(ctx context.Context, o *Object, r Read, dst []byte) (n int, from string, err error)
	// Close closes its connections.
	Close()
}

// MaxRate is the most reads that may come due in a second.
const MaxRate = 10_000_000

// maxBuffers bounds what the reads in flight may hold, in bytes.
const maxBuffers = 4 << 30

// Plan is one run at one rate.
type Plan struct {
	Work *Work
	// Rate is how many reads come due in a second.
	Rate float64
	// Even reads are due at equal distances; else their arrivals are random, as
	// those of many independent clients are (Poisson).
	Even bool
	// Warm is how long the run goes on before it counts, Time how long it counts.
	Warm, Time time.Duration
	// InFlight bounds the reads under way. One that is due when as many are
	// under way waits, and that counts.
	InFlight int
	// Timeout bounds one read.
	Timeout time.Duration
	Seed    uint64
}

// Validate says what is wrong with the plan.
func (p *Plan) Validate() error {
	switch {
	case p.Work == nil || p.Work.Len() == 0:
		return fmt.Errorf("load: there is nothing to read")
	case !(p.Rate > 0) || p.Rate > MaxRate:
		return fmt.Errorf("load: a rate of %v reads a second: want more than 0 and at most %d", p.Rate, MaxRate)
	case p.Time <= 0 || p.Warm < 0 || p.Timeout <= 0:
		return fmt.Errorf("load: times of %v, %v and %v: want more than 0", p.Time, p.Warm, p.Timeout)
	case p.InFlight < 1 || p.InFlight > 1<<16:
		return fmt.Errorf("load: %d reads in flight: want 1 to %d", p.InFlight, 1<<16)
	case p.Work.longest() > maxBuffers/int64(p.InFlight):
		return fmt.Errorf("load: %d reads in flight of up to %d bytes each: want less than %d bytes together",
			p.InFlight, p.Work.longest(), int64(maxBuffers))
	}
	return nil
}

// Result is what a run has seen while it counted.
type Result struct {
	Rate float64
	// Reads came due. Late of them were not begun when the run ended, or were under
	// way when it was interrupted: they are in Latency with the time until then.
	Reads, Late int64
	// Served reads brought Bytes, in Took, and Errors failed. These count when they
	// end: where more comes due than is served, they may have come due during the
	// warm-up. One that failed is in Latency with the time-out at least.
	Served, Errors, Bytes int64
	Took                  time.Duration
	// From counts the served reads by source.
	From map[string]int64
	// Latency is from the moment a read was due to its last byte, Began to the
	// moment that it was sent: when that is long, the generator or InFlight is what
	// was measured.
	Latency, Began latency.Recorder
	// FirstError is an example.
	FirstError error
}

// Progress is what a run has seen since the last look.
type Progress struct {
	Elapsed, Of  time.Duration
	Reads, Error int64
	P99          time.Duration
}

// run is a run under way.
type run struct {
	Plan
	door  Door
	start time.Time
	count time.Time // when counting begins
	end   time.Time
	mu    struct {
		sync.Mutex
		rng    *rand.Rand
		issued int64
		due    time.Time
		result Result
		// lately and the two counts are what progress looks at.
		lately latency.Recorder
		errors int64
	}
}

// Run reads through door as p says. It ends early with ctx only, and then
// returns what it has seen so far. look, if it is not nil, is called each second.
func Run(ctx context.Context, door Door, p Plan, look func(Progress)) (Result, error) {
	if err := p.Validate(); err != nil {
		return Result{}, err
	}
	r := &run{Plan: p, door: door, start: time.Now()}
	r.count, r.end = r.start.Add(p.Warm), r.start.Add(p.Warm+p.Time)
	r.mu.rng, r.mu.due, r.mu.lately = rand.New(rand.NewPCG(p.Seed, 1)), r.start, latency.New()
	r.mu.result = Result{Rate: p.Rate, From: make(map[string]int64), Latency: latency.New(), Began: latency.New()}
	var workers sync.WaitGroup
	for range p.InFlight {
		workers.Go(func() { r.work(ctx) }) // ends with the run's end, or with ctx
	}
	over, watched := make(chan struct{}), make(chan struct{})
	go func() { // ends with over
		defer close(watched)
		r.watch(over, look)
	}()
	workers.Wait()
	ended := time.Now()
	if ctx.Err() == nil && ended.Before(r.end) {
		ended = r.end // nothing more was due
	}
	r.mu.result.Took = max(ended.Sub(r.count), 1)
	r.rest(ended)
	close(over)
	<-watched
	return r.mu.result, nil
}

// rest books all that came due until the end and that nobody has begun: in a run
// that was interrupted as well as in one that could not keep up.
func (r *run) rest(ended time.Time) {
	if ended.Before(r.end) {
		r.end = ended
	}
	for {
		_, due, ok := r.next()
		if !ok {
			return
		}
		r.late(due, r.end, r.end)
	}
}

// next returns the number of the next read and when it is due; false once that
// is behind the end of the run.
func (r *run) next() (number int64, due time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	gap := 1 / r.Rate
	if !r.Even {
		gap *= r.mu.rng.ExpFloat64()
	}
	// One that is behind the end of the run is as good there: a Duration has room for
	// 292 years.
	gap = min(gap, (r.Warm+r.Time).Seconds()+1)
	r.mu.due = r.mu.due.Add(time.Duration(gap * float64(time.Second)))
	if !r.mu.due.Before(r.end) {
		return 0, r.mu.due, false
	}
	r.mu.issued++
	return r.mu.issued - 1, r.mu.due, true
}

// work takes reads until there are no more.
func (r *run) work(ctx context.Context) {
	dst := make([]byte, r.Work.longest())
	for ctx.Err() == nil {
		number, due, ok := r.next()
		if !ok {
			return
		}
		if now := time.Now(); now.After(r.end) {
			r.late(due, now, now)
			return
		}
		waited := s3law.SleepUntil(ctx, due)
		began := time.Now()
		if !waited {
			r.late(due, began, began)
			return
		}
		one := r.Work.At(number)
		bound, cancel := context.WithTimeout(ctx, r.Timeout)
		n, from, err := r.door.Read(bound, &r.Work.Objects[one.Object], one, dst[:one.Length])
		cancel()
		if err == nil && int64(n) != one.Length {
			err = fmt.Errorf("%d bytes at %d of %s: %d came", one.Length, one.Offset, r.Work.Objects[one.Object].Key, n)
		}
		if err != nil && ctx.Err() != nil {
			r.late(due, began, time.Now())
			return
		}
		r.note(due, began, n, from, err)
	}
}

// note books a read that has ended.
func (r *run) note(due, began time.Time, n int, from string, err error) {
	now := time.Now()
	took := now.Sub(due)
	if err != nil { // a node that refuses at once is not a fast one
		took = max(took, r.Timeout)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.lately.Add(took)
	if err != nil {
		r.mu.errors++
	}
	res := &r.mu.result
	switch {
	case now.Before(r.count):
	case err != nil:
		res.Errors++
		if res.FirstError == nil {
			res.FirstError = err
		}
	default:
		res.Served++
		res.Bytes += int64(n)
		res.From[from]++
	}
	if !due.Before(r.count) {
		res.Reads++
		res.Latency.Add(took)
		res.Began.Add(began.Sub(due))
	}
}

// late books a read that was due and has not ended, at the end of the run; began
// is when it was sent, if it was.
func (r *run) late(due, began, end time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if due.Before(r.count) || due.After(end) {
		return
	}
	res := &r.mu.result
	res.Reads++
	res.Late++
	res.Latency.Add(end.Sub(due))
	res.Began.Add(began.Sub(due))
}

// watch lets look see each second of the run.
func (r *run) watch(over <-chan struct{}, look func(Progress)) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
			if look != nil {
				look(r.progress())
			}
		}
	}
}

func (r *run) progress() Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := Progress{
		Elapsed: time.Since(r.start), Of: r.Warm + r.Time,
		Reads: r.mu.lately.Count(), Error: r.mu.errors, P99: r.mu.lately.At(0.99),
	}
	r.mu.lately.Reset()
	return p
}
