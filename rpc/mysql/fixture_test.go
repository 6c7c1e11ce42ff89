package mysql

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"headstart/engine/block"
	"headstart/shards/placement"
	"headstart/shards/placement/store"
)

// nodes are BEs that keep their configuration, and the FE's own. Address
// 10.0.0.9 does not answer.
type nodes struct {
	mu struct {
		sync.Mutex
		values  map[string]map[string]string
		persist []string
	}
}

func (n *nodes) show(host string) []placement.ConfigItem {
	n.mu.Lock()
	defer n.mu.Unlock()
	items := []placement.ConfigItem{}
	for _, key := range slices.Sorted(maps.Keys(n.mu.values[host])) {
		items = append(items, placement.ConfigItem{Key: key, Value: n.mu.values[host][key], Type: "string", Mutable: true})
	}
	return items
}

func (n *nodes) set(host string, values map[string]string, persist bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key := range values {
		if _, ok := n.mu.values[host][key]; !ok {
			return fmt.Errorf("%s: no such key of be.conf", key)
		}
	}
	maps.Copy(n.mu.values[host], values)
	if persist {
		n.mu.persist = append(n.mu.persist, host)
	}
	return nil
}

func (n *nodes) Warm(context.Context, block.Addr, placement.WarmCall) ([]placement.WarmProgress, error) {
	return nil, errors.New("not a part of this test")
}

func (n *nodes) List(context.Context, block.Addr, placement.ListCall) (placement.ListReply, error) {
	return placement.ListReply{}, errors.New("not a part of this test")
}

func (n *nodes) ShowConfig(_ context.Context, to block.Addr) ([]placement.ConfigItem, error) {
	if to.Host == "10.0.0.9" {
		return nil, errors.New("connection refused")
	}
	return n.show(to.Host), nil
}

func (n *nodes) SetConfig(_ context.Context, to block.Addr, values map[string]string, persist bool) error {
	return n.set(to.Host, values, persist)
}

// frontend is the FE's own configuration, under the host "fe".
type frontend struct{ *nodes }

func (f frontend) Show() []placement.ConfigItem { return f.show("fe") }

func (f frontend) Set(_ context.Context, values map[string]string, persist bool) error {
	return f.set("fe", values, persist)
}

// fe is a front with a directory above a real store.
type fe struct {
	*Server
	t         *testing.T
	directory *placement.Directory
	users     *Users
	nodes     *nodes
	addr      string
	changes   chan struct{}
}

func newFE(t *testing.T, secure *tls.Config) *fe {
	t.Helper()
	f := &fe{t: t, users: NewUsers(), nodes: &nodes{}, changes: make(chan struct{}, 100)}
	f.users.Set([]User{{Name: "root"}, {Name: "admin", Password: "se,cr:et"}, {Name: "viewer", Password: "v", ReadOnly: true}})
	f.nodes.mu.values = map[string]map[string]string{
		"10.0.0.1": {"enable_cache_read_from_peer": "false", "peer_race_hedge_delay_ms": "20"},
		"10.0.0.2": {"enable_cache_read_from_peer": "true", "peer_race_hedge_delay_ms": "20"},
		"fe":       {"balance_type": "async_warmup"},
	}
	bolt, err := store.Open(filepath.Join(t.TempDir(), "fe.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bolt.Close() })
	if f.directory, err = placement.NewDirectory(t.Context(), bolt, placement.NewSettings(), placement.Options{}); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	f.Server, err = NewServer(Options{
		Listener: ln, Directory: f.directory, Backends: f.nodes, Config: frontend{f.nodes}, Users: f.users, TLS: secure,
		MaxConns: 20, Changed: func() { f.changes <- struct{}{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.Serve() }() // ended by the clean-up
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := errors.Join(f.Shutdown(ctx), <-ended); err != nil {
			t.Error(err)
		}
	})
	return f
}

// beat lets a backend say that it is there.
func (f *fe) beat(host, group string) int64 {
	f.t.Helper()
	reply, err := f.directory.Heartbeat(f.t.Context(), placement.Heartbeat{
		NodeID: "n-" + host, Host: host, HeartbeatPort: 9050, BePort: 9060, HTTPPort: 8040, BrpcPort: 8060,
		GroupID: group, GroupName: strings.Replace(group, "cg_", "group_", 1), CloudUniqueID: "1:xxx:yyy", Location: "default", Version: "headstart 1",
		Started: time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC), CPUCores: 8, MemoryBytes: 16 << 30,
		CacheCapacityBytes: 100 << 30, CacheUsedBytes: 25 << 30,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return reply.BackendID
}

func (f *fe) open(user, password, params string) *sql.DB {
	f.t.Helper()
	c, err := driver.ParseDSN("x@tcp(" + f.addr + ")/" + params)
	if err != nil {
		f.t.Fatal(err)
	}
	c.User, c.Passwd = user, password
	connector, err := driver.NewConnector(c)
	if err != nil {
		f.t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	f.t.Cleanup(func() { db.Close() })
	return db
}

// query returns a result as lines, columns first; an error is a line as well.
func query(db *sql.DB, statement string, args ...any) string {
	return lines(db.Query(statement, args...))
}

func lines(rows *sql.Rows, err error) string {
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var out strings.Builder
	if len(columns) > 0 {
		fmt.Fprintln(&out, strings.Join(columns, "|"))
	}
	for rows.Next() {
		cells, to := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range cells {
			to[i] = &cells[i]
		}
		if err := rows.Scan(to...); err != nil {
			return "error: " + err.Error() + "\n"
		}
		texts := make([]string, len(cells))
		for i, c := range cells {
			texts[i] = c.String
			if !c.Valid {
				texts[i] = "NULL"
			}
		}
		fmt.Fprintln(&out, strings.Join(texts, "|"))
	}
	if err := rows.Err(); err != nil {
		return "error: " + err.Error() + "\n"
	}
	return out.String()
}
