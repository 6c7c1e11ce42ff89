package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// demoCounts are counters of BEs: blocks and bytes by source (local, peer,
// s3), and races.
type demoCounts struct {
	blocks, bytes    [3]int64
	peerWins, s3Wins int64
	// farBytes came from peers of another location.
	farBytes int64
}

// add returns a + sign*b.
func (a demoCounts) add(sign int64, b demoCounts) demoCounts {
	for i := range a.blocks {
		a.blocks[i] += sign * b.blocks[i]
		a.bytes[i] += sign * b.bytes[i]
	}
	a.peerWins += sign * b.peerWins
	a.s3Wins += sign * b.s3Wins
	a.farBytes += sign * b.farBytes
	return a
}

// counts adds up the counters of all BEs of a group.
func (c *demoCluster) counts(ctx context.Context, group string) (demoCounts, error) {
	var sum demoCounts
	for _, be := range c.group(group) {
		body, err := c.call(ctx, http.MethodGet, be, "/metrics")
		if err != nil {
			return sum, err
		}
		one, err := parseCounts(body)
		if err != nil {
			return sum, fmt.Errorf("%s /metrics: %w", be.name, err)
		}
		sum = sum.add(1, one)
	}
	return sum, nil
}

// parseCounts reads Prometheus text. A series that is missing is an error: it
// must not pass for a zero.
func parseCounts(text []byte) (demoCounts, error) {
	var c demoCounts
	want := map[string]*int64{
		"peer_race_peer_win": &c.peerWins, "peer_race_s3_win": &c.s3Wins,
		"headstart_peer_cross_location_bytes_total": &c.farBytes,
	}
	for i, source := range []string{"local", "peer", "s3"} {
		want[`headstart_read_blocks_total{source="`+source+`"}`] = &c.blocks[i]
		want[`headstart_read_bytes_total{source="`+source+`"}`] = &c.bytes[i]
	}
	for line := range strings.Lines(string(text)) {
		series, value, _ := strings.Cut(line, " ")
		if into := want[series]; into != nil {
			f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				return c, fmt.Errorf("%s: %w", series, err)
			}
			*into = int64(f)
			delete(want, series)
		}
	}
	if len(want) > 0 {
		return c, fmt.Errorf("no series %s", slices.Min(slices.Collect(maps.Keys(want))))
	}
	return c, nil
}
