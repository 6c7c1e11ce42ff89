package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// maxFileBytes bounds a configuration file.
const maxFileBytes = 1 << 20

// entry is one "key = value" and where it was found.
type entry struct {
	from       string
	line       int
	key, value string
}

// place names the file and line, or the layer; "" when there is neither.
func (e entry) place() string {
	if e.line == 0 {
		return e.from
	}
	return fmt.Sprintf("%s:%d", e.from, e.line)
}

// splitLine cuts one line of a file. Blank lines and those that start with #
// hold nothing.
func splitLine(line string) (key, value string, holds, ok bool) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return "", "", false, true
	}
	key, value, ok = strings.Cut(line, "=")
	key = strings.TrimSpace(key)
	return key, strings.TrimSpace(value), true, ok && key != "" && !strings.ContainsAny(key, " \t")
}

// parseFile reads the entries of a file. from names it in errors, all of
// which are returned together.
func parseFile(from string, data []byte) ([]entry, error) {
	if !utf8.Valid(data) {
		return nil, &Error{From: from, Why: "want a text in UTF-8", Err: ErrSyntax}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	var entries []entry
	var bad []error
	no := 0
	for line := range strings.Lines(string(data)) {
		no++
		key, value, holds, ok := splitLine(line)
		switch {
		case !ok:
			// The line is not quoted: it may be half of a secret.
			bad = append(bad, &Error{From: from, Line: no, Why: "want key = value, or # and a comment on a line of its own", Err: ErrSyntax})
		case holds:
			entries = append(entries, entry{from: from, line: no, key: key, value: value})
		}
	}
	return entries, errors.Join(bad...)
}

// readFile returns the contents of a configuration file.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileBytes {
		return nil, &Error{From: path, Why: fmt.Sprintf("want a configuration file of at most %d bytes", maxFileBytes), Err: ErrSyntax}
	}
	return data, nil
}

// customPath returns the file that overrides path and that persistent updates
// go to: be_custom.conf beside be.conf.
func customPath(path string) string {
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + "_custom" + ext
}

// fileForm returns text as the value of a line, so that Parse gives it back.
func fileForm(text string) string {
	quoted := len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"'
	if text == "" || quoted || text != strings.TrimSpace(text) {
		return `"` + text + `"`
	}
	return text
}

// edit returns the contents of a custom file with the values set: in place
// where the key has a line already, else at the end. Comments stay.
func edit(old []byte, values []Value) []byte {
	if len(bytes.TrimSpace(old)) == 0 {
		old = []byte("# Written by update_config with persist=true. Overrides the file beside it.\n")
	}
	pending := make(map[string]Value, len(values))
	for _, v := range values {
		pending[v.key.Name] = v
	}
	lines := strings.Split(strings.TrimRight(string(old), "\n"), "\n")
	kept := make([]string, 0, len(lines)+len(values))
	// Backwards, because the last line of a key is the one that counts.
	written := make(map[string]bool, len(values))
	for i := len(lines) - 1; i >= 0; i-- {
		key, _, _, _ := splitLine(lines[i])
		v, ours := pending[key]
		switch {
		case !ours:
			kept = append(kept, lines[i])
		case !written[key]:
			kept = append(kept, key+" = "+fileForm(v.text))
			written[key] = true
		}
	}
	var b strings.Builder
	for i := len(kept) - 1; i >= 0; i-- {
		b.WriteString(kept[i] + "\n")
	}
	for _, v := range values {
		if !written[v.key.Name] {
			b.WriteString(v.key.Name + " = " + fileForm(v.text) + "\n")
		}
	}
	return []byte(b.String())
}

// persist puts the values into the custom file, so that a crash at any point
// leaves either the old file or the new one.
func persist(path string, values []Value) error {
	// A mounted file may be a link: it is the target that is replaced.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	mode := fs.FileMode(0o600)
	old, err := readFile(path)
	switch {
	case err == nil:
		if info, err := os.Stat(path); err == nil {
			mode = info.Mode().Perm()
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if _, err := parseFile(path, old); err != nil {
		return err
	}
	return replaceFile(path, edit(old, values), mode)
}

// replaceFile writes a file beside path and renames it. The name is always the
// same one, so that crashes don't leave more than one behind.
func replaceFile(path string, data []byte, mode fs.FileMode) (err error) {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp)
		}
	}()
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename in dir survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
