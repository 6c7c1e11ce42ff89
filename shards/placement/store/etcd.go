package store

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
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
	// User and Password are of etcd's authentication; without a User there is none.
	User, Password string
	// TLS is nil for plain text.
	TLS *tls.Config
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
	at     string // its members, for errors
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
	// rowsPerTxn is how many rows one transaction has: etcd takes 128 operations by
	// default.
	rowsPerTxn = 100
)

// OpenEtcd connects to etcd; Load is the first that waits for it.
func OpenEtcd(o EtcdOptions) (*Etcd, error) {
	scheme := "http://"
	if o.TLS != nil {
		scheme = "https://"
	}
	urls := make([]string, len(o.Endpoints))
	for i, endpoint := range o.Endpoints {
		urls[i] = scheme + endpoint
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: urls, Username: o.User, Password: o.Password, TLS: o.TLS, DialTimeout: etcdTimeout, Logger: zap.NewNop(),
		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
		MaxCallSendMsgSize: math.MaxInt32, // how large a change may be is for etcd to say
	})
	e := &Etcd{client: client, at: strings.Join(o.Endpoints, ","), name: o.Name, log: o.Logger}
	if err != nil {
		return nil, e.wrap(err)
	}
	prefix := o.Prefix
	if prefix == "" {
		prefix = "/headstart/"
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.state, e.leader = prefix+"state/", prefix+"leader"
	return e, nil
}

// Close ends everything that goes on.
func (e *Etcd) Close() error {
	if err := e.client.Close(); err != nil {
		return e.wrap(err)
	}
	return nil
}

// wrap says where it was. That nobody answers is all that the client knows of one
// that it can't reach, and of one that speaks TLS where it doesn't.
func (e *Etcd) wrap(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("FE store etcd %s: no answer in time; is it there, and does it speak TLS (etcds://) or not (etcd://)? %w", e.at, err)
	}
	return fmt.Errorf("FE store etcd %s: %w", e.at, err)
}

func (e *Etcd) key(table string, key []byte) string { return e.state + table + "/" + string(key) }

// revision is the key that every change but those of tablets writes.
func (e *Etcd) revision() string { return e.key("meta", []byte("revision")) }

// Load implements placement.Store.
func (e *Etcd) Load(ctx context.Context, clusterID string) (placement.State, error) {
	meta := func(name string) string { return e.key("meta", []byte(name)) }
	empty := clientv3.Compare(clientv3.CreateRevision(meta("cluster_id")), "=", 0)
	if _, err := e.commit(ctx, []clientv3.Cmp{empty}, []clientv3.Op{
		clientv3.OpPut(meta("schema"), strconv.Itoa(schema)),
		clientv3.OpPut(meta("cluster_id"), clusterID),
		clientv3.OpPut(meta("last_id"), strconv.Itoa(firstID-1)),
		clientv3.OpPut(e.revision(), e.name),
	}); err != nil {
		return placement.State{}, e.wrap(err)
	}
	s, seen, err := e.list(ctx)
	if err == nil {
		e.see(seen)
	}
	return s, err
}

// sight is up to where a state has been read.
type sight struct{ revision, from, lastID int64 }

// see notes that all up to there is applied: this FE may change what it has seen,
// and nothing else.
func (e *Etcd) see(s sight) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.seen, e.mu.from, e.mu.lastID = s.revision, s.from, s.lastID
}

// list reads the whole state, as it is at one moment. What follows that moment is
// Watch's.
func (e *Etcd) list(ctx context.Context) (placement.State, sight, error) {
	r, at, err := e.read(ctx)
	if err != nil {
		return placement.State{}, sight{}, e.wrap(err)
	}
	if r.schema == "" {
		return placement.State{}, sight{}, e.wrap(fmt.Errorf("there is no state below %s any more", e.state))
	}
	if version, err := strconv.Atoi(r.schema); err != nil || version < 1 || version > schema {
		return placement.State{}, sight{}, e.wrap(fmt.Errorf("%w state: it has schema %q and this program knows up to %d; start the newer program",
			placement.ErrInvalid, r.schema, schema))
	}
	return r.state(r.clusterID, r.lastID), sight{r.revision, at + 1, r.lastID}, nil
}

// read reads all rows, and the revision that they are of. A large change that
// somebody has not written to the end is written first.
func (e *Etcd) read(ctx context.Context) (r etcdReader, at int64, err error) {
	for {
		bound, cancel := context.WithTimeout(ctx, 2*etcdTimeout)
		all, err := e.client.Get(bound, e.state, clientv3.WithPrefix())
		cancel()
		if err != nil {
			return r, 0, err
		}
		if unfinished := pendingOf(all.Kvs, e); unfinished != nil {
			if err := e.finish(ctx, unfinished); err != nil {
				return r, 0, err
			}
			continue
		}
		for _, kv := range all.Kvs {
			if err := r.put(kv, e); err != nil {
				return r, 0, err
			}
		}
		return r, all.Header.Revision, nil
	}
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
	case pendingKey:
		return r.addPending(kv.Value)
	case "last_id":
		r.lastID, err = strconv.ParseInt(string(kv.Value), 10, 64)
	}
	return err
}

// remove takes a key in that was deleted.
func (r *etcdReader) remove(kv *mvccpb.KeyValue, e *Etcd) error {
	table, key, _ := bytes.Cut(bytes.TrimPrefix(kv.Key, []byte(e.state)), []byte("/"))
	if string(table) == "meta" {
		return nil // a large change has been written to the end
	}
	return r.drop(string(table), key)
}
