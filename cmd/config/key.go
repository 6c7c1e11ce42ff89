// Package config is the one registry of Headstart's configuration keys, and
// the file format that they are written in.
//
// A Set holds the values of one node. Components do not read it while they
// work: they own typed atomics, which the Set keeps up to date (Bind…). Every
// value is checked before it is let in; an update is taken whole or not at
// all. The package imports nothing of ours, reads no environment by itself
// and logs only changes of values.
package config

import (
	"slices"
	"strings"
)

// Role is the kind of node that a key belongs to.
type Role uint8

// The roles. The zero Role is BE: most keys are a BE's.
const (
	BE Role = iota
	FE
	// Both marks keys of BEs and FEs; no node has it as its own role.
	Both
)

// String is the role's name in file names and messages.
func (r Role) String() string {
	switch r {
	case BE:
		return "be"
	case FE:
		return "fe"
	}
	return "be, fe"
}

// Has reports whether a key of role r is one of a node of the given role.
func (r Role) Has(node Role) bool { return r == node || r == Both }

// Kind is the type of a key's values.
type Kind uint8

// The kinds of values.
const (
	Bool Kind = iota
	Int
	String
	// Paths is file_cache_path's JSON list.
	Paths
)

// String is the kind's name in SHOW BACKEND CONFIG and show_config.
func (k Kind) String() string {
	switch k {
	case Bool:
		return "bool"
	case Int:
		return "int"
	case String:
		return "string"
	}
	return "paths"
}

// Key describes one key. Everything that is shown, checked or documented of it
// comes from here.
type Key struct {
	Name string
	Kind Kind
	Role Role
	// Default is the value as a file would have it.
	Default string
	// Unit is what an Int counts: ms, s, bytes, %, …; "" for plain numbers.
	Unit string
	// Min and Max bound an Int, both included.
	Min, Max int64
	// Step, when not 0, is what an Int must be a multiple of.
	Step int64
	// Auto admits -1 below Min: the program works the value out by itself.
	Auto bool
	// Clamp takes an Int outside its range to the nearer bound instead of
	// refusing it.
	Clamp bool
	// Static keys are read at start only.
	Static bool
	// Secret values are never shown, logged or quoted in errors.
	Secret bool
	// Help is one sentence.
	Help string
	// Form says what a String must look like; "" means any text of one line.
	Form string
	// check tells whether a String has that form.
	check func(string) bool
}

// Section is a group of keys that belong together.
type Section struct {
	Title string
	Keys  []Key
}

// Sections returns the whole registry, in the order of the documentation.
func Sections() []Section {
	return []Section{
		{"Node", nodeKeys()},
		{"Access", accessKeys()},
		{"FE", feKeys()},
		{"Object storage", storeKeys()},
		{"S3 front", frontKeys()},
		{"Peer read: switches and race", peerKeys()},
		{"Peer read: candidates", candidateKeys()},
		{"Peer read: serving side and fills", servingKeys()},
		{"File Cache", cacheKeys()},
	}
}

// Keys returns the keys of a node of the given role, in name order.
func Keys(node Role) []Key {
	var keys []Key
	for _, s := range Sections() {
		for _, k := range s.Keys {
			if k.Role.Has(node) {
				keys = append(keys, k)
			}
		}
	}
	slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	return keys
}

// nearest returns the name that is the fewest edits away from name, "" when
// none is near enough to be a slip of the finger.
func nearest(name string, keys map[string]*Key) string {
	best, limit := "", 1+len(name)/4
	for known := range keys {
		d := distance(name, known)
		if d < limit || (d == limit && best != "" && known < best) {
			best, limit = known, d
		}
	}
	return best
}

// distance is the Levenshtein distance of a and b in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
