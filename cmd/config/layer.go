package config

import (
	"flag"
	"maps"
	"slices"
	"strings"
)

// Layer is a source of values that goes before the files.
type Layer struct {
	// From names the source in errors: "environment", "command line".
	From   string
	Values map[string]string
	// lenient layers may hold names that are no keys.
	lenient bool
}

// entries returns the layer's values in name order.
func (l Layer) entries() []entry {
	var entries []entry
	for _, name := range slices.Sorted(maps.Keys(l.Values)) {
		entries = append(entries, entry{from: l.From, key: name, value: l.Values[name]})
	}
	return entries
}

// Environ returns the layer of the environment: HEADSTART_WEBSERVER_PORT sets
// webserver_port. Other names with that prefix (orchestrators make some up)
// are warned of, not refused.
func Environ(environ []string) Layer {
	l := Layer{From: "environment", Values: make(map[string]string), lenient: true}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if key, ok := strings.CutPrefix(name, "HEADSTART_"); ok {
			l.Values[strings.ToLower(key)] = value
		}
	}
	return l
}

// Flags adds a flag for each key of the role to fs and returns the layer that
// holds those that are given, once fs has been parsed.
func Flags(fs *flag.FlagSet, role Role) Layer {
	l := Layer{From: "command line", Values: make(map[string]string)}
	for _, k := range Keys(role) {
		set := func(text string) error {
			l.Values[k.Name] = text
			return nil
		}
		if k.Kind == Bool {
			fs.BoolFunc(k.Name, k.Help, set)
		} else {
			fs.Func(k.Name, k.Help, set)
		}
	}
	return l
}
