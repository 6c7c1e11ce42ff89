package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

// Update changes values at run time, all or none. When it returns without an
// error, the components follow the new values; with persist they are on disk
// too and survive a restart. Errors about the values are *Error, joined when
// there are several; others come from writing the file.
func (s *Set) Update(values map[string]string, persistent bool) error {
	s.updating.Lock()
	defer s.updating.Unlock()
	changes, err := s.check(values)
	if err != nil {
		return err
	}
	// Only updates write values, and this is the only one: a copy can't age.
	s.mu.Lock()
	next, stored := maps.Clone(s.mu.values), maps.Clone(s.mu.stored)
	log := cmp.Or(s.mu.log, slog.Default())
	s.mu.Unlock()
	changed := make(map[string]bool, len(changes))
	for _, v := range changes {
		changed[v.key.Name] = true
		next[v.key.Name] = v
		if persistent && !s.layered[v.key.Name] {
			stored[v.key.Name] = v
		}
	}
	refused, warnings := conflicts(next, changed, nil)
	if err := errors.Join(refused...); err != nil {
		return err
	}
	if persistent {
		if s.custom == "" {
			return &Error{Why: "there is no file to persist to: the node was started without -conf", Err: ErrNoFile}
		}
		if err := s.persist(stored, changed, changes); err != nil {
			return err
		}
	}
	s.apply(next, changes, persistent, log)
	for _, w := range warnings {
		log.Warn("unwise configuration", "why", w)
	}
	return nil
}

// persist writes the changes to the custom file, unless the node could not start
// with what it would find then: what they agree with may be in force only until
// the restart. The caller holds updating.
func (s *Set) persist(stored map[string]Value, changed map[string]bool, changes []Value) error {
	refused, _ := conflicts(stored, changed, nil)
	if err := errors.Join(refused...); err != nil {
		return fmt.Errorf("the node would not start again with it: %w", err)
	}
	if err := persist(s.custom, changes); err != nil {
		return fmt.Errorf("persist to %s: %w", s.custom, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stored = stored
	return nil
}

// check parses the new values, in name order.
func (s *Set) check(values map[string]string) ([]Value, error) {
	var changes []Value
	var bad []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		k, err := s.lookup(name)
		if err == nil && k.Static {
			err = &Error{Key: name, Why: "can't be changed while the node runs: set it in the configuration file and restart", Err: ErrStatic}
		}
		var v Value
		if err == nil {
			v, err = k.Parse(values[name])
		}
		if err != nil {
			bad = append(bad, err)
			continue
		}
		changes = append(changes, v)
	}
	return changes, errors.Join(bad...)
}

// apply puts the new values in force and tells those who follow them. The
// caller holds updating.
func (s *Set) apply(next map[string]Value, changes []Value, persistent bool, log *slog.Logger) {
	s.mu.Lock()
	old := s.mu.values
	s.mu.values = next
	s.mu.Unlock()
	for _, v := range changes {
		name := v.key.Name
		if before := old[name]; before.text != v.text {
			s.mu.Lock()
			follows := s.mu.follows[name]
			s.mu.Unlock()
			for _, apply := range follows {
				apply(v)
			}
			log.Info("configuration changed", "key", name, "old", before.Shown(), "new", v.Shown(), "persist", persistent)
		}
	}
}
