package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"headstart/engine/timeline"
	"headstart/shards"
)

// reply prints the node's answer as it is with -json, else what people does
// with it, decoded.
func reply[T any](s *session, text []byte, people func(T) error) error {
	if s.json {
		_, err := s.stdout.Write(text)
		return err
	}
	var v T
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Errorf("the answer is not as expected: %w", err)
	}
	return people(v)
}

// change posts, and says OK.
func (s *session) change(ctx context.Context, path string, query url.Values, body string) error {
	text, err := s.call(ctx, http.MethodPost, path, query, body)
	if err != nil {
		return err
	}
	return reply(s, text, func(map[string]any) error {
		_, err := fmt.Fprintln(s.stdout, "OK")
		return err
	})
}

// verb is a command that changes what its one argument names.
func verb(path, op, name string) func(context.Context, *session) error {
	return func(ctx context.Context, s *session) error {
		return s.change(ctx, path, url.Values{"op": {op}, name: {s.args[0]}}, "")
	}
}

// table prints rows in columns; the first row is the head.
func (s *session) table(rows [][]string) error {
	w := tabwriter.NewWriter(s.stdout, 0, 8, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(w, strings.TrimRight(strings.Join(r, "\t"), "\t"))
	}
	return w.Flush()
}

// when prints Unix milliseconds, - for none.
func when(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05Z")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func show(ctx context.Context, s *session) error {
	if len(s.args) == 0 {
		text, err := s.call(ctx, http.MethodGet, "/api/peer_cache", url.Values{"op": {"show_all"}, "limit": {strconv.Itoa(s.limit)}}, "")
		if err != nil {
			return err
		}
		return reply(s, text, s.showAll)
	}
	text, err := s.call(ctx, http.MethodGet, "/api/peer_cache", url.Values{"op": {"show"}, "tablet_id": {s.args[0]}}, "")
	if err != nil {
		return err
	}
	return reply(s, text, s.showOne)
}

func (s *session) showAll(list shards.ListView) error {
	rows := [][]string{{"TABLET", "CANDIDATES", "LAST GROUP", "ALL MISSED", "COOLDOWN UNTIL"}}
	for _, t := range list.Tablets {
		rows = append(rows, []string{fmt.Sprint(t.TabletID), fmt.Sprint(len(t.Candidates)), orDash(t.LastGroupID), fmt.Sprint(t.AllMiss), when(t.CooldownUntilMS)})
	}
	if err := s.table(rows); err != nil || list.Total == len(list.Tablets) {
		return err
	}
	_, err := fmt.Fprintf(s.stdout, "%d of %d tablets; -limit shows more\n", len(list.Tablets), list.Total)
	return err
}

func (s *session) showOne(t shards.View) error {
	fmt.Fprintf(s.stdout, "tablet %d: last group %s, all missed %d times in a row, cooldown until %s, asking the FE: %t\n",
		t.TabletID, orDash(t.LastGroupID), t.AllMiss, when(t.CooldownUntilMS), t.Fetching)
	rows := [][]string{{"CANDIDATE", "GROUP", "LAST ACCESS", "FAILURES"}}
	for _, c := range t.Candidates {
		rows = append(rows, []string{net.JoinHostPort(c.Host, strconv.Itoa(c.Port)), orDash(c.GroupID), when(c.LastAccessMS), fmt.Sprint(c.Failures)})
	}
	return s.table(rows)
}

func set(ctx context.Context, s *session) error {
	type one struct {
		Host  string `json:"host"`
		Port  int    `json:"brpc_port"`
		Group string `json:"compute_group_id"`
	}
	body := map[string]any{
		"last_successful_compute_group_id": s.lastGroup, "consecutive_all_miss": s.misses, "cooldown_until_ms": s.cooldownTill,
	}
	list := []one{}
	for _, arg := range s.args[1:] {
		addr, group, _ := strings.Cut(arg, "@")
		host, port, err := net.SplitHostPort(addr)
		n, errPort := strconv.Atoi(port)
		if err != nil || errPort != nil {
			return fmt.Errorf("%w: candidate %q: want HOST:PORT@GROUP", errUsage, arg)
		}
		list = append(list, one{host, n, group})
	}
	body["candidates"] = list
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return s.change(ctx, "/api/peer_cache", url.Values{"op": {"set"}, "tablet_id": {s.args[0]}}, string(text))
}

func configure(ctx context.Context, s *session) error {
	switch what, rest := s.args[0], s.args[1:]; {
	case what == "set" && len(rest) > 0:
		query := url.Values{}
		for _, kv := range rest {
			key, value, ok := strings.Cut(kv, "=")
			if !ok {
				return fmt.Errorf("%w: %q: want KEY=VALUE", errUsage, kv)
			}
			query.Add(key, value)
		}
		if s.persist {
			query.Set("persist", "true")
		}
		return s.change(ctx, "/api/update_config", query, "")
	case what == "get" && len(rest) <= 1:
		query := url.Values{}
		if len(rest) == 1 {
			query.Set("conf_item", rest[0])
		}
		text, err := s.call(ctx, http.MethodGet, "/api/show_config", query, "")
		if err != nil {
			return err
		}
		return reply(s, text, func(rows [][]string) error {
			return s.table(append([][]string{{"KEY", "TYPE", "VALUE", "MUTABLE"}}, rows...))
		})
	}
	return fmt.Errorf("%w: want get [KEY], or set KEY=VALUE…", errUsage)
}

func cache(ctx context.Context, s *session) error {
	query := url.Values{"op": {s.args[0]}}
	if s.value != "" {
		query.Set("value", s.value)
	}
	method := http.MethodPost
	switch s.args[0] {
	case "release", "dump":
	case "clear":
		query.Set("sync", strconv.FormatBool(s.sync))
	case "reset":
		query.Set("capacity", strconv.FormatInt(s.capacity, 10))
		query.Set("path", s.path)
	case "list":
		query.Set("op", "list_cache")
		fallthrough
	case "hash":
		method = http.MethodGet
	default:
		return fmt.Errorf("%w: %q: want release, clear, reset, hash, list or dump", errUsage, s.args[0])
	}
	text, err := s.call(ctx, method, "/api/file_cache", query, "")
	if err != nil {
		return err
	}
	return reply(s, text, func(v any) error {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				fmt.Fprintln(s.stdout, item)
			}
		case map[string]any:
			for name, value := range v { // there is one
				fmt.Fprintf(s.stdout, "%s: %v\n", name, value)
			}
		}
		return nil
	})
}

func breaker(ctx context.Context, s *session) error {
	switch {
	case len(s.args) == 2 && s.args[0] == "reset":
		return s.change(ctx, "/api/circuit_breaker", url.Values{"op": {"reset"}, "address": {s.args[1]}}, "")
	case len(s.args) > 0:
		return fmt.Errorf("%w: want nothing, or reset HOST:PORT", errUsage)
	}
	text, err := s.call(ctx, http.MethodGet, "/api/circuit_breaker", nil, "")
	if err != nil {
		return err
	}
	return reply(s, text, func(list []shards.BreakerView) error {
		rows := [][]string{{"ADDRESS", "STATE", "FAILURES", "OPEN UNTIL", "SILENT SINCE", "SLOW UNTIL", "P95"}}
		for _, b := range list {
			rows = append(rows, []string{b.Address, b.State, fmt.Sprint(b.Failures), when(b.OpenUntilMS), when(b.SilentSinceMS),
				when(b.SlowUntilMS), (time.Duration(b.LatencyP95US) * time.Microsecond).String()})
		}
		return s.table(rows)
	})
}

func queryProfile(ctx context.Context, s *session) error {
	query := url.Values{"query_id": {s.args[0]}, "format": {"text"}}
	if s.json {
		query.Set("format", "json")
	}
	text, err := s.call(ctx, http.MethodGet, "/api/query_profile", query, "")
	if err != nil {
		return err
	}
	_, err = s.stdout.Write(text)
	return err
}

func slow(ctx context.Context, s *session) error {
	text, err := s.call(ctx, http.MethodGet, "/api/slow_reads", url.Values{"limit": {strconv.Itoa(s.limit)}}, "")
	if err != nil {
		return err
	}
	type list struct {
		Reads []timeline.View `json:"slow_reads"`
	}
	return reply(s, text, func(l list) error {
		for i := range l.Reads {
			if _, err := fmt.Fprintln(s.stdout, l.Reads[i].Waterfall()); err != nil {
				return err
			}
		}
		return nil
	})
}

func vars(ctx context.Context, s *session) error {
	path := "/vars"
	if len(s.args) > 0 {
		path += "/" + s.args[0]
	}
	text, err := s.call(ctx, http.MethodGet, path, nil, "")
	if err != nil || !s.json {
		if err == nil {
			_, err = s.stdout.Write(text)
		}
		return err
	}
	values := make(map[string]int64)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " : ")
		if values[name], err = strconv.ParseInt(value, 10, 64); err != nil {
			return err
		}
	}
	e := json.NewEncoder(s.stdout)
	e.SetIndent("", "    ")
	return e.Encode(values)
}
