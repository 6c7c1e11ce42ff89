// Package store keeps what the FE knows in one bbolt file: a placement.Store
// that survives kill -9.
//
// Each Save is one transaction, on disk before it returns. Keys and values are
// copied in and out; nothing handed out points into the file's mapping. It
// never repairs: a file that is not ours, or newer than this program, is
// refused untouched.
package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"headstart/engine/block"
	"headstart/shards/placement"
)

// schema is the version of the layout. Fields may be added to the JSON values
// without a new one; whatever an older program would misread needs one.
//
//	meta         "schema", "cluster_id", "last_backend_id" → text
//	backends     number (8 bytes, big endian)              → placement.Record, JSON
//	groups       id                                        → placement.Group, JSON
//	assignments  kind (1), routing key (8), group id       → number (8)
const schema = 1

// lockTimeout is how long Open waits for another process to let go of the file.
const lockTimeout = time.Second

// Bolt is the state of an FE that is alone, in one file.
type Bolt struct {
	db   *bbolt.DB
	path string
}

var _ placement.Store = (*Bolt)(nil)

// Open opens the file, or makes a new one in a directory that exists.
func Open(path string) (*Bolt, error) {
	b := &Bolt{path: path}
	err := guarded(func() (err error) {
		b.db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout})
		return err
	})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		err = fmt.Errorf("another process has it open")
	}
	if err != nil {
		return nil, fmt.Errorf("FE store %s: %w", path, err)
	}
	if err := guarded(func() error { return b.db.View(checkSchema) }); err != nil {
		return nil, fmt.Errorf("FE store %s: %w", path, errors.Join(err, b.db.Close()))
	}
	return b, nil
}

// Close waits for what is under way and closes the file.
func (b *Bolt) Close() error {
	if err := b.db.Close(); err != nil {
		return fmt.Errorf("FE store %s: %w", b.path, err)
	}
	return nil
}

// checkSchema refuses what is neither empty nor ours.
func checkSchema(tx *bbolt.Tx) error {
	meta := tx.Bucket([]byte("meta"))
	if meta == nil {
		if name, _ := tx.Cursor().First(); name != nil {
			return fmt.Errorf("the file belongs to another program (it holds %.40q); name another one", name)
		}
		return nil
	}
	text := string(meta.Get([]byte("schema")))
	version, err := strconv.Atoi(text)
	switch {
	case err != nil || version < 1:
		return fmt.Errorf("the file belongs to another program (schema %.40q); name another one", text)
	case version > schema:
		return fmt.Errorf("the file has schema %d and this program knows up to %d; start the newer program", version, schema)
	}
	return nil
}

// Load implements placement.Store.
func (b *Bolt) Load(_ context.Context, clusterID string) (placement.State, error) {
	var s placement.State
	err := guarded(func() error {
		if err := b.db.Update(func(tx *bbolt.Tx) error { return found(tx, clusterID) }); err != nil {
			return err
		}
		return b.db.View(func(tx *bbolt.Tx) (err error) {
			s, err = load(tx)
			return err
		})
	})
	if err != nil {
		return placement.State{}, fmt.Errorf("FE store %s: %w", b.path, err)
	}
	return s, nil
}

// found makes the buckets of a new store. In an old one it writes nothing.
func found(tx *bbolt.Tx, clusterID string) error {
	if tx.Bucket([]byte("meta")) != nil {
		return nil
	}
	for _, name := range [...]string{"meta", "backends", "groups", "assignments"} {
		if _, err := tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	meta := tx.Bucket([]byte("meta"))
	return errors.Join(
		meta.Put([]byte("schema"), []byte(strconv.Itoa(schema))),
		meta.Put([]byte("cluster_id"), []byte(clusterID)),
		meta.Put([]byte("last_backend_id"), []byte(strconv.Itoa(firstBackendID-1))),
	)
}

// firstBackendID is the number of the first backend, as the reference counts.
const firstBackendID = 10001

func load(tx *bbolt.Tx) (s placement.State, err error) {
	meta := tx.Bucket([]byte("meta"))
	s.ClusterID = string(meta.Get([]byte("cluster_id")))
	if s.LastBackendID, err = strconv.ParseInt(string(meta.Get([]byte("last_backend_id"))), 10, 64); err != nil {
		return s, fmt.Errorf("meta: last_backend_id: %w", err)
	}
	err = tx.Bucket([]byte("backends")).ForEach(func(key, value []byte) error {
		var r placement.Record
		if err := json.Unmarshal(value, &r); err != nil {
			return fmt.Errorf("backend %x: %w", key, err)
		}
		s.Backends = append(s.Backends, r)
		return nil
	})
	if err != nil {
		return s, err
	}
	names := map[string]string{} // so that a million assignments share a few strings
	err = tx.Bucket([]byte("groups")).ForEach(func(key, value []byte) error {
		var g placement.Group
		if err := json.Unmarshal(value, &g); err != nil {
			return fmt.Errorf("group %q: %w", key, err)
		}
		s.Groups = append(s.Groups, g)
		names[g.ID] = g.ID
		return nil
	})
	if err != nil {
		return s, err
	}
	err = tx.Bucket([]byte("assignments")).ForEach(func(key, value []byte) error {
		if len(key) < 9 || len(value) != 8 {
			return fmt.Errorf("assignment %x: %d bytes as key and %d as value", key, len(key), len(value))
		}
		s.Assignments = append(s.Assignments, placement.Assignment{
			Route:     block.Route{Kind: block.RouteKind(key[0]), ID: binary.BigEndian.Uint64(key[1:9])},
			GroupID:   names[string(key[9:])],
			BackendID: int64(binary.BigEndian.Uint64(value)),
		})
		return nil
	})
	return s, err
}

// Save implements placement.Store.
func (b *Bolt) Save(_ context.Context, c placement.Change) error {
	err := guarded(func() error {
		return b.db.Update(func(tx *bbolt.Tx) error { return save(tx, c) })
	})
	if err != nil {
		return fmt.Errorf("FE store %s: %w", b.path, err)
	}
	return nil
}

func save(tx *bbolt.Tx, c placement.Change) error {
	if err := saveBackends(tx, c); err != nil {
		return err
	}
	groups := tx.Bucket([]byte("groups"))
	for _, g := range c.Groups {
		value, err := json.Marshal(g)
		if err != nil {
			return err
		}
		if err := groups.Put([]byte(g.ID), value); err != nil {
			return err
		}
	}
	assignments := tx.Bucket([]byte("assignments"))
	for _, a := range c.Assignments {
		key := binary.BigEndian.AppendUint64([]byte{byte(a.Route.Kind)}, a.Route.ID)
		key = append(key, a.GroupID...)
		var err error
		if a.BackendID == 0 {
			err = assignments.Delete(key)
		} else {
			err = assignments.Put(key, number(a.BackendID))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func saveBackends(tx *bbolt.Tx, c placement.Change) error {
	meta, backends := tx.Bucket([]byte("meta")), tx.Bucket([]byte("backends"))
	last, err := strconv.ParseInt(string(meta.Get([]byte("last_backend_id"))), 10, 64)
	if err != nil {
		return err
	}
	for _, r := range c.Backends {
		value, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if err := backends.Put(number(r.ID), value); err != nil {
			return err
		}
		if r.ID > last {
			last = r.ID
			if err := meta.Put([]byte("last_backend_id"), strconv.AppendInt(nil, last, 10)); err != nil {
				return err
			}
		}
	}
	for _, id := range c.Dropped {
		if err := backends.Delete(number(id)); err != nil {
			return err
		}
	}
	return nil
}

func number(id int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

// guarded runs f and makes errors of its panics: bbolt panics on a damaged
// file, and a page that lies past the end of a truncated one is a fault.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the file is damaged: %v", cause)
		}
	}()
	return f()
}
