package config

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// FuzzFile: no file brings the loader down, and what it takes is printed in a
// form that it takes again for the same values.
func FuzzFile(f *testing.F) {
	f.Add([]byte("brpc_port = 8060\n# comment\npeer_cache_fill_compute_group_id = \"\"\n"))
	f.Add([]byte("file_cache_path = [{\"path\":\"a\",\"total_size\":67108864}]\r\nhost=::1"))
	f.Add([]byte("\ufeffcompute_group_name = \" a \"\nbe_port = -1\n = 3\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := parseFile("be.conf", data)
		if err != nil {
			return
		}
		s := newSet(BE)
		if s.take(entries, false, make(map[string]entry)) != nil {
			return
		}
		for _, name := range s.names {
			v := s.mu.values[name]
			lines, err := parseFile("again", edit(nil, []Value{v}))
			if err != nil || len(lines) != 1 || lines[0].key != name {
				t.Fatalf("%s = %q is written as %v, %v", name, v.text, lines, err)
			}
			again, err := v.key.Parse(lines[0].value)
			if err != nil || again.text != v.text || again.num != v.num {
				t.Fatalf("%s = %q is read again as %q, %v", name, v.text, again.text, err)
			}
		}
	})
}

// FuzzUpdate: an update is refused and changes nothing, or it is in force and
// a restart brings it back.
func FuzzUpdate(f *testing.F) {
	f.Add("peer_race_hedge_delay_ms", "30", "location = z\n")
	f.Add("cluster_token", "a\nadmin_token = b", "# c")
	f.Add("compute_group_name", "x", "cluster_token = \"")
	f.Fuzz(func(t *testing.T, name, value, custom string) {
		dir := t.TempDir()
		path := filepath.Join(dir, "be.conf")
		if os.WriteFile(path, nil, 0o600) != nil || os.WriteFile(customPath(path), []byte(custom), 0o600) != nil {
			t.Skip("the file system refuses the files")
		}
		s, err := Load(BE, path)
		if err != nil {
			return
		}
		s.LogTo(slog.New(slog.DiscardHandler))
		before := texts(s)
		err = s.Update(map[string]string{name: value}, true)
		after := texts(s)
		restarted, loadErr := Load(BE, path)
		if loadErr != nil {
			t.Fatalf("%s = %q left a file that can't be loaded: %v", name, value, loadErr)
		}
		onDisk := texts(restarted)
		for key := range before {
			if (err != nil || key != name) && after[key] != before[key] {
				t.Errorf("%s = %q (%v) changed %s from %q to %q", name, value, err, key, before[key], after[key])
			}
			if onDisk[key] != after[key] {
				t.Errorf("%s = %q: %s is %q, after a restart %q", name, value, key, after[key], onDisk[key])
			}
		}
	})
}

func texts(s *Set) map[string]string {
	values := make(map[string]string)
	for name, v := range s.mu.values {
		values[name] = v.text
	}
	return values
}
