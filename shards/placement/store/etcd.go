package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"headstart/shards/placement"
)

// EtcdOptions say where the state of several FEs is.
type EtcdOptions struct {
	// Endpoints are host:port of etcd's members.
	Endpoints []string
	// Prefix is what the keys begin with; "" means "/headstart/".
	Prefix string
	// Name says who this FE is, for the others.
	Name string
	// Logger is nil for none.
	Logger *slog.Logger
}

// Etcd is the state of FEs that share it. Each change is one transaction that
// holds only if this FE had applied all changes before it: whoever loses applies
// them (Watch) and plans anew. Tablets are merged, not compared.
type Etcd struct {
	client *clientv3.Client
	state  string // the prefix of what is kept
	leader string // the prefix of those who want to lead
	name   string
	log    *slog.Logger

	mu struct {
		sync.Mutex
		// seen is the revision of the last change applied, from where Watch goes on
		// behind Load; lastID is the highest number in it.
		seen, from, lastID int64
	}
}

var _ placement.Store = (*Etcd)(nil)

const (
	// etcdTimeout bounds one transaction.
	etcdTimeout = 5 * time.Second
	// rowsPerTxn is how many tablets' buckets one transaction has: etcd takes 128
	// operations by default.
	rowsPerTxn = 100
)

// OpenEtcd connects to etcd; Load is the first that waits for it.
func OpenEtcd(o EtcdOptions) (*Etcd, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: o.Endpoints, DialTimeout: etcdTimeout, Logger: zap.NewNop(),
		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("FE store etcd %s: %w", strings.Join(o.Endpoints, ","), err)
	}
	prefix := o.Prefix
	if prefix == "" {
		prefix = "/headstart/"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Etcd{client: client, state: prefix + "state/", leader: prefix + "leader", name: o.Name, log: o.Logger}, nil
}

// Close ends everything that goes on.
func (e *Etcd) Close() error {
	if err := e.client.Close(); err != nil {
		return e.wrap(err)
	}
	return nil
}

func (e *Etcd) wrap(err error) error { return fmt.Errorf("FE store etcd: %w", err) }

func (e *Etcd) key(table string, key []byte) string { return e.state + table + "/" + string(key) }

// revision is the key that every change but those of tablets writes.
func (e *Etcd) revision() string { return e.key("meta", []byte("revision")) }

// Load implements placement.Store.
func (e *Etcd) Load(ctx context.Context, clusterID string) (placement.State, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*etcdTimeout)
	defer cancel()
	meta := func(name string) string { return e.key("meta", []byte(name)) }
	found := clientv3.Compare(clientv3.CreateRevision(meta("cluster_id")), "=", 0)
	_, err := e.client.Txn(ctx).If(found).Then(
		clientv3.OpPut(meta("schema"), strconv.Itoa(schema)),
		clientv3.OpPut(meta("cluster_id"), clusterID),
		clientv3.OpPut(meta("last_id"), strconv.Itoa(firstID-1)),
		clientv3.OpPut(e.revision(), e.name),
	).Commit()
	if err != nil {
		return placement.State{}, e.wrap(err)
	}
	all, err := e.client.Get(ctx, e.state, clientv3.WithPrefix())
	if err != nil {
		return placement.State{}, e.wrap(err)
	}
	var r etcdReader
	for _, kv := range all.Kvs {
		if err := r.put(kv, e); err != nil {
			return placement.State{}, e.wrap(err)
		}
	}
	if version, err := strconv.Atoi(r.schema); err != nil || version < 1 || version > schema {
		return placement.State{}, e.wrap(fmt.Errorf("it has schema %q and this program knows up to %d; start the newer program", r.schema, schema))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.seen, e.mu.from, e.mu.lastID = r.revision, all.Header.Revision+1, r.lastID
	return r.state(r.clusterID, r.lastID), nil
}

// etcdReader makes a change of keys, and of what else stands in them.
type etcdReader struct {
	reader
	schema, clusterID string
	lastID, revision  int64
}

func (r *etcdReader) put(kv *mvccpb.KeyValue, e *Etcd) (err error) {
	table, key, ok := bytes.Cut(bytes.TrimPrefix(kv.Key, []byte(e.state)), []byte("/"))
	switch {
	case !ok:
		return fmt.Errorf("key %q", kv.Key)
	case string(table) != "meta":
		return r.add(string(table), key, kv.Value)
	}
	switch string(key) {
	case "schema":
		r.schema = string(kv.Value)
	case "cluster_id":
		r.clusterID = string(kv.Value)
	case "revision":
		r.revision = kv.ModRevision
	case "last_id":
		r.lastID, err = strconv.ParseInt(string(kv.Value), 10, 64)
	}
	return err
}

// remove takes a key in that was deleted.
func (r *etcdReader) remove(kv *mvccpb.KeyValue, e *Etcd) error {
	table, key, _ := bytes.Cut(bytes.TrimPrefix(kv.Key, []byte(e.state)), []byte("/"))
	return r.drop(string(table), key)
}

// Save implements placement.Store.
func (e *Etcd) Save(ctx context.Context, c placement.Change) error {
	rows, lastID, err := rowsOf(c)
	if err != nil {
		return e.wrap(err)
	}
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	if len(c.Tablets) > 0 {
		return e.saveTablets(ctx, rows)
	}
	e.mu.Lock()
	seen, known := e.mu.seen, e.mu.lastID
	e.mu.Unlock()
	ops := []clientv3.Op{clientv3.OpPut(e.revision(), e.name)}
	if lastID > known {
		ops = append(ops, clientv3.OpPut(e.key("meta", []byte("last_id")), strconv.FormatInt(lastID, 10)))
	}
	ops = append(ops, e.ops(rows)...)
	when := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(e.revision()), "=", seen)}
	if f, ok := ctx.Value(fenceKey{}).(fence); ok {
		when = append(when, clientv3.Compare(clientv3.CreateRevision(f.key), "=", f.revision))
	}
	done, err := e.client.Txn(ctx).If(when...).Then(ops...).Else(clientv3.OpGet(e.revision())).Commit()
	if err != nil {
		return e.wrap(err)
	}
	if !done.Succeeded {
		now := done.Responses[0].GetResponseRange().Kvs
		if len(now) == 1 && now[0].ModRevision == seen {
			return e.wrap(fmt.Errorf("%w: another FE leads now", placement.ErrOver))
		}
		return e.wrap(placement.ErrConflict)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.seen, e.mu.lastID = done.Header.Revision, max(e.mu.lastID, lastID)
	return nil
}

func (e *Etcd) ops(rows []row) []clientv3.Op {
	ops := make([]clientv3.Op, len(rows))
	for i, r := range rows {
		if key := e.key(r.table, r.key); r.value == nil {
			ops[i] = clientv3.OpDelete(key)
		} else {
			ops[i] = clientv3.OpPut(key, string(r.value))
		}
	}
	return ops
}

// saveTablets puts buckets, which other FEs merge with theirs.
func (e *Etcd) saveTablets(ctx context.Context, rows []row) error {
	for len(rows) > 0 {
		some := rows[:min(rowsPerTxn, len(rows))]
		rows = rows[len(some):]
		if _, err := e.client.Txn(ctx).Then(e.ops(some)...).Commit(); err != nil {
			return e.wrap(err)
		}
	}
	return nil
}

// Watch hands the changes of others on, in their order, until ctx ends. An error
// means that changes were missed: the FE has to start anew. follow calls its
// argument when no change of this FE is under way, and applies what it returns.
func (e *Etcd) Watch(ctx context.Context, follow func(next func() (placement.Change, bool)) error) error {
	e.mu.Lock()
	from := e.mu.from
	e.mu.Unlock()
	for answer := range e.client.Watch(ctx, e.state, clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if err := answer.Err(); err != nil {
			return e.wrap(err)
		}
		for events := answer.Events; len(events) > 0; {
			n := 1
			for n < len(events) && events[n].Kv.ModRevision == events[0].Kv.ModRevision {
				n++
			}
			if err := e.follow(events[:n], follow); err != nil {
				return e.wrap(err)
			}
			events = events[n:]
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return e.wrap(errors.New("the watch has ended"))
}

// follow applies one revision, unless it is this FE's own.
func (e *Etcd) follow(events []*clientv3.Event, follow func(func() (placement.Change, bool)) error) error {
	var r etcdReader
	for _, event := range events {
		var err error
		if event.Type == clientv3.EventTypeDelete {
			err = r.remove(event.Kv, e)
		} else {
			err = r.put(event.Kv, e)
		}
		if err != nil {
			return err
		}
	}
	return follow(func() (placement.Change, bool) {
		if r.revision == 0 {
			return r.Change, true // tablets: to merge one's own does no harm
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if r.revision <= e.mu.seen {
			return placement.Change{}, false
		}
		e.mu.seen, e.mu.lastID = r.revision, max(e.mu.lastID, r.lastID)
		return r.Change, true
	})
}
