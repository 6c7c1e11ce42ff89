package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Set holds the values of all keys of one node. Its methods may be called by
// several goroutines. Getters and Bind… panic on a name or a kind that the
// registry doesn't have: that is a slip in the program, not in its input.
type Set struct {
	// role, keys, names (sorted), custom, warnings and layered don't change after
	// Load.
	role     Role
	keys     map[string]*Key
	names    []string
	custom   string
	warnings []string
	// layered are the keys that a layer sets, whatever the files say.
	layered map[string]bool

	// updating is held over a whole update or binding, its file and its
	// followers included, so that followers see values in their order.
	updating sync.Mutex
	// mu is held for moments only and taken after updating.
	mu struct {
		sync.Mutex
		values map[string]Value
		// stored are the values that a restart would find.
		stored  map[string]Value
		follows map[string][]func(Value)
		log     *slog.Logger
	}
}

// Load reads the values of a node: the defaults, the file at path, the custom
// file beside it (be_custom.conf for be.conf; it need not exist), then the
// layers, each overriding what comes before. An empty path means no files. All
// that is wrong is returned together.
func Load(role Role, path string, layers ...Layer) (*Set, error) {
	s := newSet(role)
	places := make(map[string]entry)
	if path != "" {
		s.custom = customPath(path)
		data, err := readFile(path)
		if err != nil {
			return nil, err
		}
		custom, err := readFile(s.custom)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		entries, errBase := parseFile(path, data)
		overrides, errCustom := parseFile(s.custom, custom)
		if err := errors.Join(errBase, errCustom, s.take(entries, false, places), s.take(overrides, false, places)); err != nil {
			return nil, err
		}
	}
	for _, l := range layers {
		entries := l.entries()
		if err := s.take(entries, l.lenient, places); err != nil {
			return nil, err
		}
		for _, e := range entries {
			s.layered[e.key] = true
		}
	}
	refused, warnings := conflicts(s.mu.values, nil, places)
	s.warnings = append(s.warnings, warnings...)
	if err := errors.Join(refused...); err != nil {
		return nil, err
	}
	s.mu.stored = maps.Clone(s.mu.values)
	return s, nil
}

// FromMap returns a Set of the defaults and the given values. It has no file,
// so nothing can be persisted.
func FromMap(role Role, values map[string]string) (*Set, error) {
	return Load(role, "", Layer{Values: values})
}

func newSet(role Role) *Set {
	s := &Set{role: role, keys: make(map[string]*Key), layered: make(map[string]bool)}
	s.mu.values = make(map[string]Value)
	s.mu.follows = make(map[string][]func(Value))
	for _, k := range Keys(role) {
		v, err := k.Parse(k.Default)
		if err != nil {
			panic(fmt.Sprintf("config: the default of a key is not one of its values: %v", err))
		}
		s.keys[k.Name], s.mu.values[k.Name] = &k, v
		s.names = append(s.names, k.Name)
	}
	return s
}

// take sets values while the Set is being loaded, and notes in places where
// each was found.
func (s *Set) take(entries []entry, lenient bool, places map[string]entry) error {
	var bad []error
	lines := make(map[string]int)
	for _, e := range entries {
		k, err := s.lookup(e.key)
		if err != nil && lenient {
			s.warnings = append(s.warnings, fmt.Sprintf("%s: %v", e.from, err))
			continue
		}
		if first := lines[e.key]; first != 0 {
			s.warnings = append(s.warnings, fmt.Sprintf("%s:%d: %s is given a second time (first on line %d): the last line counts", e.from, e.line, e.key, first))
		}
		lines[e.key] = e.line
		var v Value
		if err == nil {
			v, err = k.Parse(e.value)
		}
		if err != nil {
			bad = append(bad, at(err, e.from, e.line))
			continue
		}
		s.mu.values[e.key], places[e.key] = v, e
	}
	return errors.Join(bad...)
}

// at adds the place to an *Error.
func at(err error, from string, line int) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.From, e.Line = from, line
	}
	return err
}

// lookup finds a key, or says what could have been meant.
func (s *Set) lookup(name string) (*Key, error) {
	if k := s.keys[name]; k != nil {
		return k, nil
	}
	why := fmt.Sprintf("no such key of %s.conf", s.role)
	if slices.ContainsFunc(Sections(), func(sec Section) bool {
		return slices.ContainsFunc(sec.Keys, func(k Key) bool { return k.Name == name })
	}) {
		why += ", only of the other role"
	} else if near := nearest(name, s.keys); near != "" {
		why += fmt.Sprintf("; did you mean %s?", near)
	}
	return nil, &Error{Key: name, Why: why, Err: ErrUnknownKey}
}

// Warnings returns what was odd, though not wrong, when the Set was loaded.
func (s *Set) Warnings() []string { return slices.Clone(s.warnings) }

// LogTo sets where changes are logged; slog.Default() until then.
func (s *Set) LogTo(l *slog.Logger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.log = l
}

// value returns the value in force of a key of one of the given kinds.
func (s *Set) value(name string, kinds ...Kind) Value {
	k := s.keys[name]
	if k == nil || !slices.Contains(kinds, k.Kind) {
		panic(fmt.Sprintf("config: %s.conf has no key %q of kind %v", s.role, name, kinds))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.values[name]
}

// Bool returns the value of a Bool key.
func (s *Set) Bool(name string) bool { return s.value(name, Bool).Bool() }

// Int returns the value of an Int key, in its unit.
func (s *Set) Int(name string) int64 { return s.value(name, Int).Int() }

// Duration returns the value of an Int key whose unit is a time.
func (s *Set) Duration(name string) time.Duration { return s.value(name, Int).Duration() }

// String returns the value of a String key.
func (s *Set) String(name string) string { return s.value(name, String).Text() }

// List returns the value of a String key that holds a list with commas.
func (s *Set) List(name string) []string { return splitList(s.String(name)) }

// CachePaths returns the value of a Paths key, with all shares set.
func (s *Set) CachePaths(name string) []CachePath {
	return slices.Clone(s.value(name, Paths).paths)
}

// Bind calls apply with the key's value: now, and at each later update, one
// call at a time. apply must not call Update or Bind.
func (s *Set) Bind(name string, apply func(Value)) {
	s.updating.Lock()
	defer s.updating.Unlock()
	v := s.value(name, Bool, Int, String, Paths)
	s.mu.Lock()
	s.mu.follows[name] = append(s.mu.follows[name], apply)
	s.mu.Unlock()
	apply(v)
}

// BindBool lets dst follow a Bool key.
func (s *Set) BindBool(name string, dst *atomic.Bool) {
	s.value(name, Bool)
	s.Bind(name, func(v Value) { dst.Store(v.Bool()) })
}

// BindInt lets dst follow an Int key, in the key's unit.
func (s *Set) BindInt(name string, dst *atomic.Int64) {
	s.value(name, Int)
	s.Bind(name, func(v Value) { dst.Store(v.Int()) })
}

// BindDuration lets dst follow an Int key whose unit is a time, in nanoseconds.
func (s *Set) BindDuration(name string, dst *atomic.Int64) {
	s.value(name, Int)
	s.Bind(name, func(v Value) { dst.Store(int64(v.Duration())) })
}

// BindString lets dst follow a String key.
func (s *Set) BindString(name string, dst *atomic.Pointer[string]) {
	s.value(name, String)
	s.Bind(name, func(v Value) { text := v.Text(); dst.Store(&text) })
}

// Unbound returns the keys that could be updated without anyone taking
// notice: a node that has any is wired up wrongly.
func (s *Set) Unbound() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, name := range s.names {
		if !s.keys[name].Static && len(s.mu.follows[name]) == 0 {
			names = append(names, name)
		}
	}
	return names
}
