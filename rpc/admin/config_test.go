package admin

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"headstart/cmd/config"
)

// shown returns the rows of show_config by name.
func shown(t *testing.T, body string) (map[string][]string, []string) {
	t.Helper()
	var rows [][]string
	must(t, json.Unmarshal([]byte(body), &rows))
	byName, names := map[string][]string{}, []string{}
	for _, r := range rows {
		if len(r) != 4 {
			t.Fatalf("a row of %d: %q", len(r), r)
		}
		byName[r[0]] = r
		names = append(names, r[0])
	}
	return byName, names
}

func TestS62_ShowConfigHasARowForEachKey(t *testing.T) {
	_, body := startBE(t, nil).ask("GET", "/api/show_config", "")
	rows, names := shown(t, body)
	if !slices.IsSorted(names) {
		t.Error("the rows are not in name order")
	}
	keys := config.Keys(config.BE)
	if len(rows) != len(keys) {
		t.Errorf("%d rows, %d keys", len(rows), len(keys))
	}
	for _, k := range keys {
		if r := rows[k.Name]; r == nil || r[1] != k.Kind.String() || r[3] != strconv.FormatBool(!k.Static) {
			t.Errorf("%s: %q", k.Name, r)
		}
	}
}

func TestCF01_OnlyWhatIsPersistedSurvives(t *testing.T) {
	n := startBE(t, map[string]string{"peer_race_hedge_delay_ms": "11"})
	for _, query := range []string{"max_concurrent_peer_races=7&persist=true", "peer_all_miss_cooldown_threshold=9", "peer_race_hedge_delay_ms=12&persist=true"} {
		if status, body := n.ask("POST", "/api/update_config?"+query, ""); status != 200 {
			t.Fatalf("%s: %d %s", query, status, body)
		}
	}
	path := filepath.Join(filepath.Dir(n.conf.CachePaths("file_cache_path")[0].Path), "be.conf")
	restarted, err := config.Load(config.BE, path)
	must(t, err)
	for key, want := range map[string]int64{"max_concurrent_peer_races": 7, "peer_all_miss_cooldown_threshold": 5, "peer_race_hedge_delay_ms": 12} {
		if got := restarted.Int(key); got != want {
			t.Errorf("after a restart %s is %d, want %d", key, got, want)
		}
	}
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "peer_race_hedge_delay_ms = 11\n") {
		t.Errorf("be.conf itself has changed: %s %v", text, err)
	}
}

func TestCF02_EveryKeyRefusesNonsenseOverHTTP(t *testing.T) {
	n := startBE(t, nil)
	_, body := n.ask("GET", "/api/show_config", "")
	before, names := shown(t, body)
	for _, name := range append(names, "no_such_key") {
		if name == "admin_token" {
			continue // takes any text, and locks this test out
		}
		for _, text := range []string{"", "abc", "-1", "1e99", "9223372036854775808", "true", "TRUE", "1", "%20%20", "%C3%BC", "%00", "a%0Ab", "%22"} {
			status, answer := n.ask("POST", "/api/update_config?"+name+"="+text, "")
			row := before[name]
			switch {
			case status == http.StatusOK && row != nil && row[3] == "true":
				_, now := n.ask("GET", "/api/show_config?conf_item="+name, "")
				rows, _ := shown(t, now)
				before[name] = rows[name]
				continue
			case status != http.StatusBadRequest || !strings.Contains(answer, name):
				t.Errorf("%s=%s: %d %s", name, text, status, answer)
			}
			if row == nil {
				continue
			}
			if _, now := n.ask("GET", "/api/show_config?conf_item="+name, ""); !strings.Contains(now, quoteJSON(row[2])) {
				t.Errorf("%s=%s was refused, and %q became %s", name, text, row[2], now)
			}
		}
	}
}

func quoteJSON(s string) string {
	b, _ := json.Marshal(s) // a text is always JSON
	return string(b)
}

func TestS61_UpdateTakesSeveralKeysAndEscapes(t *testing.T) {
	n := startBE(t, nil)
	query := url.Values{"compute_group_name": {"x"}}.Encode()
	if status, _ := n.ask("POST", "/api/update_config?"+query, ""); status != 400 {
		t.Errorf("a static key: %d", status)
	}
	query = url.Values{"peer_cache_fill_compute_group_id": {"cg & =+ü"}, "peer_race_hedge_delay_ms": {"7"}, "persist": {"TRUE"}}.Encode()
	if status, body := n.ask("POST", "/api/update_config?"+query, ""); status != 200 {
		t.Errorf("%s: %d %s", query, status, body)
	}
	if got := n.conf.String("peer_cache_fill_compute_group_id"); got != "cg & =+ü" {
		t.Errorf("the group is %q", got)
	}
}
