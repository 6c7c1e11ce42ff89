package placement

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"headstart/engine/block"
)

// MaxLookup is the largest number of routes in one Lookup.
const MaxLookup = 10_000

// Settings are the values that may change while the FE runs. Only their owner
// writes them; they are read with each judgement of liveness.
type Settings struct {
	// HeartbeatIntervalMS is how often the FE wants to hear of a BE, in
	// milliseconds.
	HeartbeatIntervalMS atomic.Int64
	// HeartbeatTimeoutMS is how long a BE may be silent and still count as
	// alive. Less than two intervals count as two.
	HeartbeatTimeoutMS atomic.Int64
	// BalanceType is how tablets move in groups that don't say so themselves.
	BalanceType atomic.Pointer[string]
}

// NewSettings returns the defaults.
func NewSettings() *Settings {
	s := &Settings{}
	s.HeartbeatIntervalMS.Store(1000)
	s.HeartbeatTimeoutMS.Store(5000)
	balance := string(AsyncWarmup)
	s.BalanceType.Store(&balance)
	return s
}

// balanceType returns the setting, AsyncWarmup for a name that there isn't.
func (s *Settings) balanceType() BalanceType {
	if t, err := ParseBalanceType(*s.BalanceType.Load()); err == nil {
		return t
	}
	return AsyncWarmup
}

func (s *Settings) limits() limits {
	interval := time.Duration(max(s.HeartbeatIntervalMS.Load(), 1)) * time.Millisecond
	timeout := time.Duration(s.HeartbeatTimeoutMS.Load()) * time.Millisecond
	return limits{interval: interval, timeout: max(timeout, 2*interval)}
}

// Options are fixed when a Directory is made. The zero value works.
type Options struct {
	// MaxBackends bounds the backends known, and the groups; 0 means 10,000.
	MaxBackends int
	// MaxAssignments bounds the explicit assignments; 0 means 4,000,000.
	MaxAssignments int
	// MaxTablets bounds the tablets known, those that are counted, warmed up and
	// listed; 0 means 4,000,000.
	MaxTablets int
	// TabletExpiryDays is after how many days a tablet that nobody asks for is
	// not known any more; 0 means 7.
	TabletExpiryDays int
	// Logger gets one line for each change of state; nil discards them.
	Logger *slog.Logger
}

// Validate refuses what can't be meant.
func (o *Options) Validate() error {
	if min(o.MaxBackends, o.MaxAssignments, o.MaxTablets, o.TabletExpiryDays) < 0 {
		return fmt.Errorf("placement: MaxBackends %d, MaxAssignments %d, MaxTablets %d, TabletExpiryDays %d: want 0 (default) or more",
			o.MaxBackends, o.MaxAssignments, o.MaxTablets, o.TabletExpiryDays)
	}
	return nil
}

func (o *Options) setDefaults() {
	for _, d := range [...]struct {
		value *int
		def   int
	}{{&o.MaxBackends, 10_000}, {&o.MaxAssignments, 4_000_000}, {&o.MaxTablets, 4_000_000}, {&o.TabletExpiryDays, 7}} {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Directory is the FE's service: BEs report to it, and it answers who serves
// a tablet. It is safe for concurrent use. Lookup takes no lock, except that
// one of the lookups of each second judges anew who is alive.
type Directory struct {
	store     Store
	settings  *Settings
	options   Options
	clusterID string

	// change is held by whoever alters what is kept, from before the plan until
	// it is saved and applied: what is planned holds when it is applied. It is
	// taken before mu.
	change struct {
		sync.Mutex
		// failing is set while the last save has failed.
		failing bool
	}
	// waiting are the registrations that nobody has taken up.
	waiting struct {
		sync.Mutex
		list []*registration
	}
	// mu guards the registry. It is never held while the store is written.
	mu struct {
		sync.Mutex
		*registry
	}
	// tablets is shared with the registry.
	tablets known
	counts  tabletCounts
	// table is written under mu. A reader may conclude that who is in it could be
	// handed out when it was made, and until its goodUntil.
	table atomic.Pointer[table]

	metrics struct{ heartbeats, refused, lookups, routes, saves, saveFailures atomic.Int64 }
}

// Metrics are counts since the start.
type Metrics struct {
	// Heartbeats counts all, Refused those of them that were refused.
	Heartbeats, Refused int64
	// Lookups counts calls, Routes what they asked for.
	Lookups, Routes int64
	// Saves counts writes to the store, SaveFailures those that failed.
	Saves, SaveFailures int64
}

// NewDirectory loads the state from the store. A new store gets a new cluster
// id. The caller goes on owning the store and closes it afterwards.
func NewDirectory(ctx context.Context, store Store, settings *Settings, options Options) (*Directory, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	options.setDefaults()
	state, err := store.Load(ctx, rand.Text())
	if err != nil {
		return nil, fmt.Errorf("load the FE's state: %w", err)
	}
	d := &Directory{store: store, settings: settings, options: options, clusterID: state.ClusterID}
	d.tablets.max = int64(options.MaxTablets)
	now := time.Now()
	if d.mu.registry, err = newRegistry(state, settings, &d.tablets, now); err != nil {
		return nil, fmt.Errorf("load the FE's state: %w", err)
	}
	d.table.Store(d.mu.table(now, settings.limits()))
	options.Logger.Info("FE state loaded", "cluster_id", state.ClusterID, "backends", len(state.Backends),
		"groups", len(state.Groups), "assignments", len(state.Assignments))
	return d, nil
}

// ClusterID returns the id of the cluster, made at its first start.
func (d *Directory) ClusterID() string { return d.clusterID }

// Metrics returns a snapshot.
func (d *Directory) Metrics() Metrics {
	m := &d.metrics
	return Metrics{
		Heartbeats: m.heartbeats.Load(), Refused: m.refused.Load(),
		Lookups: m.lookups.Load(), Routes: m.routes.Load(),
		Saves: m.saves.Load(), SaveFailures: m.saveFailures.Load(),
	}
}

// Heartbeat registers a BE, or notes that it is alive. The error tells an
// operator of the BE what to do.
func (d *Directory) Heartbeat(ctx context.Context, h Heartbeat) (HeartbeatReply, error) {
	d.metrics.heartbeats.Add(1)
	id, err := d.hear(ctx, h)
	if err != nil {
		d.metrics.refused.Add(1)
		return HeartbeatReply{}, err
	}
	return HeartbeatReply{BackendID: id, ClusterID: d.clusterID, Interval: d.settings.limits().interval}, nil
}

func (d *Directory) hear(ctx context.Context, h Heartbeat) (int64, error) {
	if err := h.Validate(); err != nil {
		return 0, err
	}
	h = h.normal()
	if id, err := d.hearKnown(&h); id != 0 || err != nil {
		return id, err
	}
	var id int64
	err := d.again(ctx, func() (err error) {
		id, err = d.register(ctx, h)
		return err
	})
	return id, err
}

// hearKnown is the usual case: a backend says what it has said before. It
// returns 0 when there is something to keep.
func (d *Directory) hearKnown(h *Heartbeat) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	b, err := d.mu.find(h, now)
	if b == nil || err != nil || b.unsaved || !b.Heartbeat.same(*h) {
		return 0, err
	}
	if d.aliveLocked(b, h, now) {
		d.judgeLocked(now)
	}
	return b.ID, nil
}

// aliveLocked notes a sign of life. It reports whether that made the backend
// alive.
func (d *Directory) aliveLocked(b *backend, h *Heartbeat, now time.Time) bool {
	revived := d.mu.hear(b, h, now, d.settings.limits())
	if revived {
		d.options.Logger.Info("backend alive", "backend_id", b.ID, "addr", b.Heartbeat.Addr().String(),
			"compute_group_id", b.Heartbeat.GroupID, "node", b.Heartbeat.NodeID)
	}
	return revived
}

// judgeLocked finds out who may be handed out now and gives lookups the table.
func (d *Directory) judgeLocked(now time.Time) *table {
	l := d.settings.limits()
	for _, b := range d.mu.fallenSilent(now, l) {
		d.options.Logger.Warn("backend silent", "backend_id", b.ID, "addr", b.Heartbeat.Addr().String(),
			"compute_group_id", b.Heartbeat.GroupID, "last_heartbeat", b.heard)
	}
	t := d.mu.table(now, l)
	d.table.Store(t)
	return t
}

// saveLocked is called with change held. It logs when the store begins to
// fail and when it is well again.
func (d *Directory) saveLocked(ctx context.Context, c Change) error {
	d.metrics.saves.Add(1)
	err := d.store.Save(ctx, c)
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrOver) {
		return err // the store is well
	}
	if err != nil {
		d.metrics.saveFailures.Add(1)
		err = fmt.Errorf("save the FE's state: %w", err)
	}
	switch failing := err != nil; {
	case failing && !d.change.failing:
		d.options.Logger.Error("FE store fails; new backends are refused, known ones go on", "error", err)
	case !failing && d.change.failing:
		d.options.Logger.Info("FE store works again")
	}
	d.change.failing = err != nil
	return err
}

// Lookup answers who serves each of the routes: the primary of every compute
// group that has a backend to hand out, in the order of the groups' ids.
func (d *Directory) Lookup(_ context.Context, routes []block.Route) ([][]Holder, error) {
	d.metrics.lookups.Add(1)
	d.metrics.routes.Add(int64(len(routes)))
	if len(routes) > MaxLookup {
		return nil, fmt.Errorf("%w lookup of %d routes: want at most %d", ErrInvalid, len(routes), MaxLookup)
	}
	now := time.Now()
	t, today := d.current(now), day(now)
	holders := make([]Holder, 0, len(routes)*len(t.groups))
	answer := make([][]Holder, len(routes))
	for i, route := range routes {
		if err := checkRoute(route); err != nil {
			return nil, err
		}
		key, from := keyOf(route), len(holders)
		if route.Kind == block.RouteTablet {
			d.tablets.note(route.ID, key, today)
		}
		holders = t.appendHolders(holders, route, key)
		answer[i] = holders[from:len(holders):len(holders)]
	}
	return answer, nil
}

func checkRoute(r block.Route) error {
	if r.Kind != block.RouteTablet && r.Kind != block.RouteExternal {
		return fmt.Errorf("%w route: kind %d is not known", ErrInvalid, r.Kind)
	}
	return nil
}

// current returns the table, after judging liveness anew when that is due. It
// waits for nobody: when the lock is taken, the table in force is as good as
// it was a moment ago.
func (d *Directory) current(now time.Time) *table {
	t := d.table.Load()
	if now.Before(t.goodUntil) || !d.mu.TryLock() {
		return t
	}
	defer d.mu.Unlock()
	return d.judgeLocked(now)
}

// Backends lists all backends, in the order of their numbers.
func (d *Directory) Backends() []BackendView {
	tablets := d.counts.get(d.current(time.Now()), &d.tablets)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.backends(tablets, time.Now(), d.settings.limits())
}

// Tablets returns how many tablets are known, and how often one was not taken
// in because there were too many.
func (d *Directory) Tablets() (known, refused int64) {
	return d.tablets.size.Load(), d.tablets.refused.Load()
}

// Groups lists all compute groups, in the order of their ids.
func (d *Directory) Groups() []GroupView {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.groupViews(time.Now(), d.settings.limits())
}
