package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// The groups of the clusters that doctor looks at.
const (
	readers = "cg_read_01"
	writers = "cg_write_01"
)

// broken is a way to break a cluster.
type broken struct {
	name   string
	keys   map[string]string
	groups []string
	breaks func(c *testCluster)
	// check and key are what doctor is to name, at BE at.
	check, key string
	at         int
	words      string
}

func brokenRaces() []broken {
	return []broken{
		{
			name: "object storage wins more than peers", groups: []string{readers, readers},
			breaks: func(c *testCluster) { // the candidates are right, and cold
				for tablet := 1; tablet <= 30; tablet++ {
					c.knows(0, tablet, 1)
					c.read(0, tablet)
				}
			},
			check: "s3_wins", key: "peer_race_hedge_delay_ms", words: "won 30 races and peers only 0",
		},
		{
			name: "the fill group is given by its name", groups: []string{readers, writers},
			breaks: func(c *testCluster) {
				c.configure(0, "peer_cache_fill_compute_group_id=name_of_"+writers)
			},
			check: "fill_group_by_name", key: "peer_cache_fill_compute_group_id", words: "set it to " + writers,
		},
		{
			name: "fills are too many", groups: []string{readers, writers},
			breaks: func(c *testCluster) {
				c.configure(0, "peer_cache_fill_compute_group_id="+writers)
				c.configure(1, "max_concurrent_peer_server_fills=1")
				c.store.Enable(true) // tens of milliseconds a GET: they meet
				var all sync.WaitGroup
				for tablet := 1; tablet <= 40; tablet++ {
					c.knows(0, tablet, 1)
					all.Go(func() { c.read(0, tablet) }) // ends with its read
				}
				all.Wait()
			},
			check: "fill_overloaded", key: "max_concurrent_peer_server_fills", at: 1, words: "it is 1",
		},
	}
}

func brokenPeers() []broken {
	return []broken{
		{
			name: "a tablet is in cooldown", keys: map[string]string{"peer_all_miss_cooldown_threshold": "1"}, groups: []string{readers, readers},
			breaks: func(c *testCluster) {
				c.knows(0, 7, 1)
				c.read(0, 7)
			},
			check: "cooldown", key: "peer_all_miss_cooldown_threshold", words: "tablet 7",
		},
		{
			name: "groups are not isolated", groups: []string{readers, writers},
			breaks: func(c *testCluster) {
				for tablet := 1; tablet <= 25; tablet++ {
					c.read(1, tablet)
					c.knows(0, tablet, 1)
					c.read(0, tablet)
				}
			},
			check: "cross_group", key: "enable_cross_compute_group_peer_read", words: "stayed in " + readers,
		},
		{
			name: "a peer does not answer", groups: []string{readers, readers, readers},
			breaks: func(c *testCluster) {
				for tablet := 1; tablet <= 3; tablet++ {
					c.knows(0, tablet, 2)
				}
				c.drain(c.bes[2])
				for tablet := 1; tablet <= 3; tablet++ {
					c.read(0, tablet)
				}
			},
			check: "circuit_open", key: "cache_peer_read_circuit_open_seconds", words: "after 3 failures in a row",
		},
		{
			name: "the fill group does not fill", groups: []string{readers, writers},
			breaks: func(c *testCluster) {
				c.configure(0, "peer_cache_fill_compute_group_id="+writers)
				c.configure(1, "enable_peer_server_cache_fill=false")
			},
			check: "fill_switched_off", key: "enable_peer_server_cache_fill", at: 1, words: "set it to true",
		},
		{
			name: "peer read is on at one BE of two", groups: []string{readers, readers},
			breaks: func(c *testCluster) { c.configure(1, "enable_cache_read_from_peer=false") },
			check:  "switched_in_part", key: "enable_cache_read_from_peer", at: 1, words: "of the same compute group",
		},
	}
}

// TestS79_DoctorNamesFaultAndKey breaks real clusters, one way at a time.
func TestS79_DoctorNamesFaultAndKey(t *testing.T) {
	for _, tc := range append(brokenRaces(), brokenPeers()...) {
		t.Run(tc.name, func(t *testing.T) {
			c := startCluster(t, tc.keys, tc.groups...)
			if out, code := c.ctl("doctor", "-fe", c.feWeb()); out != "" || code != 0 {
				t.Fatalf("before: exit code %d\n%s", code, out)
			}
			tc.breaks(c)
			out, code := c.ctl("doctor", "-fe", c.feWeb())
			if code != 1 || !strings.Contains(out, c.web(tc.at)+": ") || !strings.Contains(out, "\n    "+tc.key+": ") || !strings.Contains(out, tc.words) {
				t.Errorf("exit code %d\n%s", code, out)
			}
			out, code = c.ctl("doctor", "-json", "-fe", c.feWeb())
			if want := fmt.Sprintf(`"check": %q`, tc.check); code != 1 || !strings.Contains(out, want) || strings.Count(out, `"check"`) != strings.Count(out, want) && tc.check != "circuit_open" {
				t.Errorf("exit code %d, want %s and nothing else\n%s", code, want, out)
			}
		})
	}
}

// TestS79_DoctorIsSilentOnAHealthyCluster: two groups that serve themselves,
// and a third one that asks them to fill as it should.
func TestS79_DoctorIsSilentOnAHealthyCluster(t *testing.T) {
	c := startCluster(t, nil, readers, readers, writers, writers)
	c.configure(0, "peer_cache_fill_compute_group_id="+writers)
	c.configure(1, "peer_cache_fill_compute_group_id="+writers)
	for tablet := 1; tablet <= 30; tablet++ {
		c.read(1, tablet)
		c.knows(0, tablet, 1)
		c.read(0, tablet)
		c.knows(1, 30+tablet, 2)
		c.read(1, 30+tablet)
	}
	for _, args := range [][]string{{"-fe", c.feWeb()}, {"-be", c.web(0) + "," + c.web(1) + "," + c.web(2)}, {"-fe", c.feWeb(), "-over", "10ms"}} {
		if out, code := c.ctl(append([]string{"doctor"}, args...)...); out != "" || code != 0 {
			t.Errorf("%q: exit code %d\n%s", args, code, out)
		}
	}
	if out, code := c.ctl("doctor", "-json", "-fe", c.feWeb()); out != "[]\n" || code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestS79_DoctorFindsWhatDoesNotAnswer(t *testing.T) {
	c := startCluster(t, nil, readers)
	gone := "127.0.0.1:1"
	if out, code := c.ctl("doctor", "-be", c.web(0)+","+gone); code != 1 || !strings.HasPrefix(out, gone+": the BE does not answer") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if out, code := c.ctl("doctor", "-fe", gone); code != 1 || !strings.Contains(out, "FE "+gone) {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
