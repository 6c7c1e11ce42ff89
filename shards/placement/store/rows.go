package store

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"headstart/engine/block"
	"headstart/shards/placement"
)

// schema is the version of the layout, which is the same in every store.
// Fields may be added to the JSON values without a new one; whatever an older
// program would misread needs one.
//
//	meta         "schema", "cluster_id", "last_id"   → text
//	backends     number (8 bytes, big endian)        → placement.Record, JSON
//	groups       id                                  → placement.Group, JSON
//	assignments  kind (1), routing key (8), group id → number (8)
//	rounds       group id                            → placement.Round, JSON
//	jobs         number (8)                          → placement.Job, JSON
//	tablets      bucket (2)                          → placement.TabletBucket.Data
const schema = 1

// firstID is the first number that is given, as the reference counts.
const firstID = 10001

// row is one record of a table. Without a value it is one to take away.
type row struct {
	table      string
	key, value []byte
}

// rowsOf returns the rows that a change writes, and the highest number in it.
func rowsOf(c placement.Change) (rows []row, lastID int64, err error) {
	add := func(table string, key []byte, record any) {
		value, marshalErr := json.Marshal(record)
		if marshalErr != nil && err == nil {
			err = marshalErr
		}
		rows = append(rows, row{table, key, value})
	}
	for _, r := range c.Backends {
		add("backends", number(r.ID), r)
		lastID = max(lastID, r.ID)
	}
	for _, id := range c.Dropped {
		rows = append(rows, row{"backends", number(id), nil})
	}
	for _, g := range c.Groups {
		add("groups", []byte(g.ID), g)
	}
	for _, a := range c.Assignments {
		r := row{table: "assignments", key: binary.BigEndian.AppendUint64([]byte{byte(a.Route.Kind)}, a.Route.ID)}
		r.key = append(r.key, a.GroupID...)
		if a.BackendID != 0 {
			r.value = number(a.BackendID)
		}
		rows = append(rows, r)
	}
	for _, r := range c.Rounds {
		add("rounds", []byte(r.GroupID), r)
	}
	for _, j := range c.Jobs {
		add("jobs", number(j.ID), j)
		lastID = max(lastID, j.ID)
	}
	for _, id := range c.DroppedJobs {
		rows = append(rows, row{"jobs", number(id), nil})
	}
	for _, tb := range c.Tablets {
		rows = append(rows, row{"tablets", binary.BigEndian.AppendUint16(nil, uint16(tb.Index)), tb.Data})
	}
	return rows, lastID, err
}

func number(id int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

// reader makes a change of rows: what rowsOf has made of it, when they are all
// there.
type reader struct {
	placement.Change
	// names lets a million assignments share a few strings.
	names map[string]string
}

// add takes one row in. It keeps neither key nor value.
func (r *reader) add(table string, key, value []byte) error {
	var err error
	switch table {
	case "backends":
		r.Backends, err = appendJSON(r.Backends, value)
	case "groups":
		r.Groups, err = appendJSON(r.Groups, value)
	case "rounds":
		r.Rounds, err = appendJSON(r.Rounds, value)
	case "jobs":
		r.Jobs, err = appendJSON(r.Jobs, value)
	case "tablets":
		if len(key) != 2 {
			return fmt.Errorf("tablets: key %x", key)
		}
		tb := placement.TabletBucket{Index: int(binary.BigEndian.Uint16(key)), Data: append([]byte(nil), value...)}
		r.Tablets = append(r.Tablets, tb)
	case "assignments":
		return r.addAssignment(key, value)
	}
	if err != nil {
		return fmt.Errorf("%s: %x: %w", table, key, err)
	}
	return nil
}

// drop takes in that a row is gone.
func (r *reader) drop(table string, key []byte) error {
	switch {
	case table == "assignments" && len(key) >= 9:
		r.Assignments = append(r.Assignments, placement.Assignment{Route: routeOf(key), GroupID: string(key[9:])})
	case table == "backends" && len(key) == 8:
		r.Dropped = append(r.Dropped, int64(binary.BigEndian.Uint64(key)))
	case table == "jobs" && len(key) == 8:
		r.DroppedJobs = append(r.DroppedJobs, int64(binary.BigEndian.Uint64(key)))
	default:
		return fmt.Errorf("%s: %x was deleted", table, key)
	}
	return nil
}

func routeOf(key []byte) block.Route {
	return block.Route{Kind: block.RouteKind(key[0]), ID: binary.BigEndian.Uint64(key[1:9])}
}

func appendJSON[T any](to []T, value []byte) ([]T, error) {
	var record T
	err := json.Unmarshal(value, &record)
	return append(to, record), err
}

func (r *reader) addAssignment(key, value []byte) error {
	if len(key) < 9 || len(value) != 8 {
		return fmt.Errorf("assignment %x: %d bytes as key and %d as value", key, len(key), len(value))
	}
	if r.names == nil {
		r.names = make(map[string]string)
	}
	group, ok := r.names[string(key[9:])]
	if !ok {
		group = string(key[9:])
		r.names[group] = group
	}
	r.Assignments = append(r.Assignments, placement.Assignment{
		Route:     routeOf(key),
		GroupID:   group,
		BackendID: int64(binary.BigEndian.Uint64(value)),
	})
	return nil
}

// state returns what was read as the whole state.
func (r *reader) state(clusterID string, lastID int64) placement.State {
	return placement.State{
		ClusterID: clusterID, LastID: lastID,
		Backends: r.Backends, Groups: r.Groups, Assignments: r.Assignments,
		Rounds: r.Rounds, Jobs: r.Jobs, Tablets: r.Tablets,
	}
}
