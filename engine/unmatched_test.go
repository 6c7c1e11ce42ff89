package engine

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestCF08_FillGroupThatNobodyBelongsToIsWarnedOfOnce(t *testing.T) {
	var out bytes.Buffer // read when the reads are over
	inWorld(t, func(w *world) {
		w.know(tablet(), candidate(1, "cg_a"))
		w.peer(1, serves(time.Millisecond))
		block := 0
		for _, step := range []struct {
			group string
			lines int
		}{{"write_group", 1}, {"write_group", 1}, {"cg_a", 1}, {"write_group", 1}, {"another", 2}, {"", 2}} {
			w.e.Settings.PeerCacheFillComputeGroupID.Store(&step.group)
			w.one(block)
			block++
			if n := strings.Count(out.String(), "no candidate belongs to the fill group"); n != step.lines {
				t.Errorf("after %q: %d lines, want %d", step.group, n, step.lines)
			}
		}
	}, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
}
