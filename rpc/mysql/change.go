package mysql

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"headstart/engine/block"
	"headstart/shards/placement"
)

// group finds a compute group by its id or, when only one has it, by its name.
func (s *session) group(name string) (placement.GroupView, error) {
	var found []placement.GroupView
	for _, g := range s.server.directory.Groups() {
		if g.ID == name {
			return g, nil
		}
		if g.Name == name {
			found = append(found, g)
		}
	}
	switch len(found) {
	case 0:
		return placement.GroupView{}, fmt.Errorf("%w compute group %q", placement.ErrUnknown, name)
	case 1:
		return found[0], nil
	}
	return placement.GroupView{}, fmt.Errorf("%w compute group name %q: %d groups have it; take the id", placement.ErrInvalid, name, len(found))
}

// alterGroup is ALTER COMPUTE GROUP.
type alterGroup struct {
	group  string
	values map[string]string
}

// The properties of a compute group.
const (
	propBalanceType = "balance_type"
	propTimeout     = "balance_warm_up_task_timeout"
)

func parseAlterGroup(p *parser) statement {
	st := alterGroup{group: p.name("a compute group")}
	p.expect("PROPERTIES")
	st.values = p.properties()
	for key := range st.values {
		if key != propBalanceType && key != propTimeout {
			p.refuse(syntaxError(fmt.Sprintf("compute groups have no property %s: there are %s and %s", excerpt(key), propBalanceType, propTimeout)))
		}
	}
	return st
}

func (alterGroup) columns() []string { return nil }

// run leaves what is not mentioned as it is.
func (a alterGroup) run(ctx context.Context, s *session) ([]row, error) {
	g, err := s.group(a.group)
	if err != nil {
		return nil, err
	}
	kind, timeout, err := s.server.directory.Balance(g.ID)
	if err != nil {
		return nil, err
	}
	if v, ok := a.values[propBalanceType]; ok {
		kind = placement.BalanceType(v)
	}
	if v, ok := a.values[propTimeout]; ok {
		if timeout, err = strconv.Atoi(v); err != nil {
			return nil, fmt.Errorf("%w %s %q: want a number of seconds", placement.ErrInvalid, propTimeout, v)
		}
	}
	return nil, s.server.directory.SetBalance(ctx, g.ID, kind, timeout)
}

// warmUp is WARM UP COMPUTE GROUP.
type warmUp struct {
	dst, src string
	job      placement.Job
}

func parseWarmUp(p *parser) statement {
	st := warmUp{dst: p.name("the compute group to warm up")}
	p.expect("WITH")
	switch {
	case p.accept("COMPUTE GROUP"):
		st.job.Type, st.src = placement.JobCluster, p.name("the compute group to copy from")
	case p.accept("TABLET"):
		st.job.Type = placement.JobTablet
		p.expect("(")
		p.list(func() { st.job.Tablets = append(st.job.Tablets, uint64(p.number("a tablet id"))) })
		p.expect(")")
	case p.accept("PREFIX"):
		st.job.Type = placement.JobPrefix
		st.job.Prefix = parsePrefix(p)
	default:
		p.fail("COMPUTE GROUP, TABLET or PREFIX")
	}
	if p.accept("PROPERTIES") {
		st.job.IntervalS = parseSync(p)
	}
	return st
}

func parsePrefix(p *parser) block.Object {
	url := p.text("a prefix")
	path, ok := strings.CutPrefix(url, "s3://")
	bucket, key, _ := strings.Cut(path, "/")
	if (!ok || bucket == "") && p.failed == nil {
		p.failed = fmt.Errorf("prefix %s: want s3://bucket/prefix", excerpt(url))
	}
	return block.Object{Bucket: bucket, Key: key}
}

// parseSync takes the properties of a job and returns its interval in seconds.
func parseSync(p *parser) int {
	values := p.properties()
	for key := range values {
		if key != "sync_mode" && key != "sync_interval_sec" {
			p.refuse(syntaxError(fmt.Sprintf("warm-up jobs have no property %s: there are sync_mode and sync_interval_sec", excerpt(key))))
		}
	}
	text, given := values["sync_interval_sec"]
	switch mode := values["sync_mode"]; {
	case mode != "" && mode != "once" && mode != "periodic":
		p.refuse(syntaxError(fmt.Sprintf("sync_mode %s: want once or periodic", excerpt(mode))))
	case mode == "periodic":
		seconds, err := strconv.ParseInt(text, 10, 32)
		if err != nil || seconds < 1 {
			p.refuse(syntaxError(fmt.Sprintf("sync_interval_sec %s: want 1 or more seconds", excerpt(text))))
		}
		return int(seconds)
	case given:
		p.refuse(syntaxError("sync_interval_sec is for sync_mode periodic"))
	}
	return 0
}

func (warmUp) columns() []string { return []string{"JobId"} }

func (w warmUp) run(ctx context.Context, s *session) ([]row, error) {
	job := w.job
	dst, err := s.group(w.dst)
	if err != nil {
		return nil, err
	}
	job.DstGroup = dst.ID
	if job.Type == placement.JobCluster {
		src, err := s.group(w.src)
		if err != nil {
			return nil, err
		}
		job.SrcGroup = src.ID
	}
	id, err := s.server.directory.CreateJob(ctx, job)
	if err != nil {
		return nil, err
	}
	return []row{{num(id)}}, nil
}

// cancelJob is CANCEL WARM UP JOB.
type cancelJob struct{ id int64 }

func parseCancelJob(p *parser) statement {
	p.expect("WHERE")
	return cancelJob{parseID(p)}
}

func (cancelJob) columns() []string { return nil }

func (c cancelJob) run(ctx context.Context, s *session) ([]row, error) {
	return nil, s.server.directory.CancelJob(ctx, c.id)
}

// alterBackends is one of the statements about backends.
type alterBackends struct {
	verb  verb
	names []string
}

// verb is what is done to backends.
type verb string

const (
	add          verb = "add"
	drop         verb = "drop"
	decommission verb = "decommission"
	recommission verb = "recommission"
)

func parseBackends(v verb) func(*parser) statement {
	return func(p *parser) statement {
		st := alterBackends{verb: v}
		p.list(func() { st.names = append(st.names, p.name("'host:port' or the id of a backend")) })
		return st
	}
}

func (alterBackends) columns() []string { return nil }

// run finds all backends before it touches one.
func (a alterBackends) run(ctx context.Context, s *session) ([]row, error) {
	found := make([]*placement.BackendView, len(a.names))
	for i, name := range a.names {
		b, err := s.backend(name)
		if err == nil {
			err = a.verb.allows(name, b)
		}
		if err != nil {
			return nil, err
		}
		found[i] = b
	}
	for _, b := range found {
		var err error
		if a.verb == drop {
			err = s.server.directory.Drop(ctx, b.BackendID)
		} else {
			err = s.server.directory.SetDecommissioned(ctx, b.BackendID, a.verb == decommission)
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// allows says why something can't be done to a backend, which is nil when there
// is none of that name. To add one means to take it in again after a
// decommission: others come by themselves.
func (v verb) allows(name string, b *placement.BackendView) error {
	switch {
	case b == nil && v == add:
		return fmt.Errorf("%w backend %q: a backend is added by starting it with fe_endpoints set to this FE", placement.ErrUnknown, name)
	case b == nil:
		return fmt.Errorf("%w backend %q", placement.ErrUnknown, name)
	case v == add && !b.SystemDecommissioned:
		return fmt.Errorf("%w: backend %q is there already, its id is %d", placement.ErrInvalid, name, b.BackendID)
	case v == drop && b.Alive:
		return fmt.Errorf("%w: backend %d is alive and would register again; stop it first, or DECOMMISSION it", placement.ErrInvalid, b.BackendID)
	}
	return nil
}

// backend finds a backend by its number, or by host and one of its ports; nil
// when there is none.
func (s *session) backend(name string) (found *placement.BackendView, err error) {
	id, _ := strconv.ParseInt(name, 10, 64)
	addr, _ := block.ParseAddr(name)
	if id == 0 && addr.Port == 0 {
		return nil, fmt.Errorf("%w backend %q: want its id or 'host:port'", placement.ErrInvalid, name)
	}
	for _, b := range s.server.directory.Backends() {
		switch {
		case b.BackendID == id, b.Host == addr.Host && b.BrpcPort == addr.Port:
			return &b, nil
		case b.Host != addr.Host || b.HeartbeatPort != addr.Port:
		case found != nil:
			return nil, fmt.Errorf("%w backend %q: both %d and %d say that port; take the id", placement.ErrInvalid, name, found.BackendID, b.BackendID)
		default:
			found = &b
		}
	}
	return found, nil
}
