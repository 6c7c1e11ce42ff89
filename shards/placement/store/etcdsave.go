package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"headstart/shards/placement"
)

// A change of more rows than a transaction may have is made in steps. The first
// one puts all of it under the key meta/pending, as one value, and with it the
// change holds, for whoever reads it there. The next ones write its rows, and the
// last one takes the key away. While it is there no other change holds, and
// whoever wants to make one writes the rows first: to do so twice does no harm.
const pendingKey = "pending"

// pendingRow is a row of a change under meta/pending; without a value it is one to
// take away.
type pendingRow struct {
	Table string `json:"t"`
	Key   []byte `json:"k"`
	Value []byte `json:"v,omitempty"`
}

func (e *Etcd) pending() string { return e.key("meta", []byte(pendingKey)) }

// pendingOf returns the change that has not been written to the end, if any.
func pendingOf(kvs []*mvccpb.KeyValue, e *Etcd) *mvccpb.KeyValue {
	for _, kv := range kvs {
		if string(kv.Key) == e.pending() {
			return kv
		}
	}
	return nil
}

func pendingRows(value []byte) ([]row, error) {
	var all []pendingRow
	if err := json.Unmarshal(value, &all); err != nil {
		return nil, fmt.Errorf("meta/%s: %w", pendingKey, err)
	}
	rows := make([]row, len(all))
	for i, r := range all {
		rows[i] = row{table: r.Table, key: r.Key, value: r.Value}
	}
	return rows, nil
}

// addPending takes the rows of a large change in.
func (r *etcdReader) addPending(value []byte) error {
	rows, err := pendingRows(value)
	for _, one := range rows {
		if err == nil && one.value == nil {
			err = r.drop(one.table, one.key)
		} else if err == nil {
			err = r.add(one.table, one.key, one.value)
		}
	}
	return err
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
	change, large := e.ops(rows), len(rows) > rowsPerTxn
	if large {
		all := make([]pendingRow, len(rows))
		for i, r := range rows {
			all[i] = pendingRow{r.table, r.key, r.value}
		}
		value, err := json.Marshal(all)
		if err != nil {
			return e.wrap(err)
		}
		change = []clientv3.Op{clientv3.OpPut(e.pending(), string(value))}
	}
	if err := e.saveNext(ctx, change, lastID); err != nil {
		return err
	}
	if !large {
		return nil
	}
	// The change holds. What can't be written now is written before the next one.
	if err := e.finishAny(ctx); err != nil {
		e.log.Warn("the rows of a large change are not written yet", "error", e.wrap(err))
	}
	return nil
}

// saveNext makes a change in one transaction, if this FE has applied all before it.
func (e *Etcd) saveNext(ctx context.Context, change []clientv3.Op, lastID int64) error {
	e.mu.Lock()
	seen, known := e.mu.seen, e.mu.lastID
	e.mu.Unlock()
	ops := []clientv3.Op{clientv3.OpPut(e.revision(), e.name)}
	if lastID > known {
		ops = append(ops, clientv3.OpPut(e.key("meta", []byte("last_id")), strconv.FormatInt(lastID, 10)))
	}
	ops = append(ops, change...)
	when := []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(e.revision()), "=", seen),
		clientv3.Compare(clientv3.CreateRevision(e.pending()), "=", 0),
	}
	if f, ok := ctx.Value(fenceKey{}).(fence); ok {
		when = append(when, clientv3.Compare(clientv3.CreateRevision(f.key), "=", f.revision))
	}
	for {
		done, err := e.client.Txn(ctx).If(when...).Then(ops...).Else(clientv3.OpGet(e.revision()), clientv3.OpGet(e.pending())).Commit()
		switch {
		case errors.Is(err, rpctypes.ErrRequestTooLarge):
			return e.wrap(fmt.Errorf("%w: a change is larger than etcd's --max-request-bytes; make it in parts", placement.ErrFull))
		case err != nil:
			return e.wrap(err)
		case done.Succeeded:
			e.mu.Lock()
			defer e.mu.Unlock()
			e.mu.seen, e.mu.lastID = done.Header.Revision, max(e.mu.lastID, lastID)
			return nil
		}
		now, unfinished := done.Responses[0].GetResponseRange().Kvs, done.Responses[1].GetResponseRange().Kvs
		switch {
		case len(now) != 1 || now[0].ModRevision != seen:
			return e.wrap(placement.ErrConflict)
		case len(unfinished) == 0:
			return e.wrap(fmt.Errorf("%w: another FE leads now", placement.ErrOver))
		}
		if err := e.finish(ctx, unfinished[0]); err != nil {
			return e.wrap(err)
		}
	}
}

// finishAny writes the rows of a large change, if there is one.
func (e *Etcd) finishAny(ctx context.Context) error {
	found, err := e.client.Get(ctx, e.pending())
	if err != nil || len(found.Kvs) == 0 {
		return err
	}
	return e.finish(ctx, found.Kvs[0])
}

// finish writes the rows of a large change and takes its key away. When another
// FE was faster that is as good.
func (e *Etcd) finish(ctx context.Context, pending *mvccpb.KeyValue) error {
	rows, err := pendingRows(pending.Value)
	if err != nil {
		return err
	}
	same := clientv3.Compare(clientv3.ModRevision(e.pending()), "=", pending.ModRevision)
	for len(rows) > 0 {
		some := rows[:min(rowsPerTxn, len(rows))]
		rows = rows[len(some):]
		ops := e.ops(some)
		if len(rows) == 0 {
			ops = append(ops, clientv3.OpDelete(e.pending()))
		}
		done, err := e.client.Txn(ctx).If(same).Then(ops...).Commit()
		if err != nil || !done.Succeeded {
			return err
		}
	}
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
