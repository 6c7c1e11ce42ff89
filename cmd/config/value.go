package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Mask stands for a secret wherever values are shown.
const Mask = "******"

// Value is one checked value of one key. It does not change.
type Value struct {
	key *Key
	// text is the value in its normal form, as a file would have it.
	text string
	// num is an Int's number, or 1 for true.
	num int64
	// paths is set for Paths.
	paths []CachePath
}

// Bool returns the value of a Bool.
func (v Value) Bool() bool { return v.num != 0 }

// Int returns the value of an Int, in the key's unit.
func (v Value) Int() int64 { return v.num }

// Text returns the value in its normal form, secrets included.
func (v Value) Text() string { return v.text }

// List returns the parts of a list, which its key's text separates by commas.
func (v Value) List() []string { return splitList(v.text) }

// Duration returns the value of an Int whose unit is a time. Negative values
// have a meaning of their own, which its sign keeps.
func (v Value) Duration() time.Duration {
	if v.key.Unit == "s" {
		return time.Duration(v.num) * time.Second
	}
	return time.Duration(v.num) * time.Millisecond
}

// Shown returns the value as people may see it: secrets are masked.
func (v Value) Shown() string {
	if v.key.Secret && v.text != "" {
		return Mask
	}
	return v.text
}

// Default reports whether the value is the key's default.
func (v Value) Default() bool { return v.text == v.key.Default }

// CachePath is one directory of the File Cache.
type CachePath struct {
	Path string `json:"path"`
	// TotalBytes is the capacity.
	TotalBytes int64 `json:"total_size"`
	// The shares of the four queues add up to 100.
	NormalPercent     int `json:"normal_percent"`
	TTLPercent        int `json:"ttl_percent"`
	IndexPercent      int `json:"index_percent"`
	DisposablePercent int `json:"disposable_percent"`
}

// minCacheBytes is the smallest capacity of a directory of the File Cache.
const minCacheBytes = 1 << 20

// Parse checks text and returns the value that it stands for. A pair of double
// quotes around a String is not part of it. The error is an *Error.
func (k *Key) Parse(text string) (Value, error) {
	text = strings.TrimSpace(text)
	v, ok := Value{}, false
	switch k.Kind {
	case Bool:
		v, ok = k.parseBool(text)
	case Int:
		v, ok = k.parseInt(text)
	case String:
		v, ok = k.parseString(text)
	case Paths:
		paths, err := parsePaths(text)
		if err != nil {
			return Value{}, k.refuse(text, err.Error())
		}
		v, ok = Value{text: text, paths: paths}, true
	}
	if !ok {
		return Value{}, k.refuse(text, "want "+k.Want())
	}
	v.key = k
	return v, nil
}

// refuse makes the error for a value that is not one of k's.
func (k *Key) refuse(text, why string) error {
	if k.Secret {
		text = Mask
	}
	return &Error{Key: k.Name, Value: text, HasValue: true, Why: why, Err: ErrValue}
}

func (k *Key) parseBool(text string) (Value, bool) {
	switch strings.ToLower(text) {
	case "true":
		return Value{text: "true", num: 1}, true
	case "false":
		return Value{text: "false"}, true
	}
	return Value{}, false
}

func (k *Key) parseInt(text string) (Value, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strings.HasPrefix(text, "+") {
		return Value{}, false
	}
	if k.Clamp {
		n = max(k.Min, min(n, k.Max))
	}
	auto := k.Auto && n == -1
	if !auto && (n < k.Min || n > k.Max || (k.Step != 0 && n%k.Step != 0)) {
		return Value{}, false
	}
	return Value{text: strconv.FormatInt(n, 10), num: n}, true
}

// parseString admits what one line of a file can hold: a line feed that came
// by update_config would add a key of its own when it is persisted.
func (k *Key) parseString(text string) (Value, bool) {
	text = unquote(text)
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return Value{}, false
	}
	if k.check != nil && !k.check(text) || k.free() && len(text) > maxName {
		return Value{}, false
	}
	return Value{text: text}, true
}

// maxName bounds text of any form that is no secret, in bytes: much of it
// travels, and nodes refuse longer names of each other.
const maxName = 1 << 10

// free reports whether the key takes any text that is short enough.
func (k *Key) free() bool { return k.check == nil && !k.Secret }

// unquote takes one pair of double quotes off.
func unquote(text string) string {
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		return text[1 : len(text)-1]
	}
	return text
}

// Want says in words which values the key takes.
func (k *Key) Want() string {
	switch k.Kind {
	case Bool:
		return "true or false"
	case Int:
		return k.wantInt()
	case Paths:
		return `a JSON list of {"path", "total_size", "normal_percent", "ttl_percent", "index_percent", "disposable_percent"}`
	}
	if k.Form != "" {
		return k.Form
	}
	if k.free() {
		return fmt.Sprintf("text of one line of at most %d bytes", maxName)
	}
	return "text of one line"
}

func (k *Key) wantInt() string {
	want := fmt.Sprintf("a whole number from %d to %d", k.Min, k.Max)
	if k.Unit != "" && k.Unit != "port" {
		want += " (" + k.Unit + ")"
	}
	if k.Step != 0 {
		want += fmt.Sprintf(", a multiple of %d", k.Step)
	}
	if k.Auto {
		want += ", or -1"
	}
	if k.Clamp {
		want += "; others are taken to the nearer bound"
	}
	return want
}

// parsePaths reads file_cache_path. The shares of the queues may be left out,
// all four together.
func parsePaths(text string) ([]CachePath, error) {
	if strings.ContainsFunc(text, unicode.IsControl) {
		return nil, fmt.Errorf("want %s, on one line", (&Key{Kind: Paths}).Want())
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.DisallowUnknownFields()
	var paths []CachePath
	if err := dec.Decode(&paths); err != nil {
		return nil, fmt.Errorf("want %s: %w", (&Key{Kind: Paths}).Want(), err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("want one JSON list and nothing behind it")
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("want at least one directory (enable_file_cache = false switches the cache off)")
	}
	seen := make(map[string]bool, len(paths))
	for i := range paths {
		p := &paths[i]
		if err := p.complete(); err != nil {
			return nil, err
		}
		clean := filepath.Clean(p.Path)
		if seen[clean] {
			return nil, fmt.Errorf("path %q is listed twice", p.Path)
		}
		seen[clean] = true
	}
	return paths, nil
}

// complete checks p and sets the shares that were left out.
func (p *CachePath) complete() error {
	if p.Path == "" {
		return fmt.Errorf("a directory lacks its path")
	}
	if p.TotalBytes < minCacheBytes || p.TotalBytes > maxBytes {
		return fmt.Errorf("path %q: total_size %d: want a number of bytes from %d to %d", p.Path, p.TotalBytes, minCacheBytes, int64(maxBytes))
	}
	shares := [...]*int{&p.NormalPercent, &p.TTLPercent, &p.IndexPercent, &p.DisposablePercent}
	sum := 0
	for _, share := range shares {
		if *share < 0 || *share > 100 {
			return fmt.Errorf("path %q: share of %d %%: want 0 to 100", p.Path, *share)
		}
		sum += *share
	}
	switch sum {
	case 0:
		for i, share := range [...]int{40, 50, 5, 5} {
			*shares[i] = share
		}
	case 100:
	default:
		return fmt.Errorf("path %q: the shares add up to %d %%: want 100, or none of them for 40, 50, 5 and 5", p.Path, sum)
	}
	return nil
}
