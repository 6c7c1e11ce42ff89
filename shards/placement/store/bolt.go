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
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"headstart/shards/placement"
)

// tables are the buckets of the file.
func tables() []string {
	return []string{"meta", "backends", "groups", "assignments", "rounds", "jobs", "tablets"}
}

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
	for _, name := range tables() {
		if _, err := tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	meta := tx.Bucket([]byte("meta"))
	return errors.Join(
		meta.Put([]byte("schema"), []byte(strconv.Itoa(schema))),
		meta.Put([]byte("cluster_id"), []byte(clusterID)),
		meta.Put([]byte("last_id"), []byte(strconv.Itoa(firstID-1))),
	)
}

func load(tx *bbolt.Tx) (placement.State, error) {
	meta := tx.Bucket([]byte("meta"))
	lastID, err := strconv.ParseInt(string(meta.Get([]byte("last_id"))), 10, 64)
	if err != nil {
		return placement.State{}, fmt.Errorf("meta: last_id: %w", err)
	}
	var r reader
	for _, name := range tables()[1:] {
		table := tx.Bucket([]byte(name))
		if table == nil {
			return placement.State{}, fmt.Errorf("the file lacks %s", name)
		}
		if err := table.ForEach(func(key, value []byte) error { return r.add(name, key, value) }); err != nil {
			return placement.State{}, err
		}
	}
	return r.state(string(meta.Get([]byte("cluster_id"))), lastID), nil
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
	rows, lastID, err := rowsOf(c)
	if err != nil {
		return err
	}
	meta := tx.Bucket([]byte("meta"))
	last, err := strconv.ParseInt(string(meta.Get([]byte("last_id"))), 10, 64)
	if err != nil {
		return err
	}
	if lastID > last {
		if err := meta.Put([]byte("last_id"), strconv.AppendInt(nil, lastID, 10)); err != nil {
			return err
		}
	}
	for _, r := range rows {
		table := tx.Bucket([]byte(r.table))
		if r.value == nil {
			err = table.Delete(r.key)
		} else {
			err = table.Put(r.key, r.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

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
