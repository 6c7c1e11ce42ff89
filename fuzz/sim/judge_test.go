package sim

import (
	"errors"
	"strings"
	"testing"
	"time"

	"headstart/engine/block"
	"headstart/fuzz/fault"
)

// TestJudge: a simulation is worth what its judge sees.
func TestJudge(t *testing.T) {
	o := &stored{Object: block.Object{Store: "s3", Bucket: "b", Key: "k"}}
	for i, size := range []int{9000, 5000, 7000} {
		etag := string(rune('a' + i))
		o.mu.versions = append(o.mu.versions, version{time.Duration(i) * 10 * time.Second, etag, content(o.Object, etag, size)})
	}
	a, b, c := o.mu.versions[0].data, o.mu.versions[1].data, o.mu.versions[2].data
	o.mu.unsure = -time.Hour
	plan := &fault.Plan{Rules: []fault.Rule{{Kind: fault.StoreError, Node: "n", From: 40 * time.Second, To: 50 * time.Second}}}
	at := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		r     read
		tight bool
		want  string
	}{
		"right":                         {r: read{offset: 100, size: 50, begin: at(5), end: at(6), got: a[100:150]}},
		"up to the end":                 {r: read{offset: 100, size: -1, begin: at(15), end: at(16), got: b[100:]}},
		"clamped":                       {r: read{offset: 4900, size: 500, begin: at(15), end: at(16), got: b[4900:]}},
		"changed while it ran":          {r: read{offset: 0, size: 50, begin: at(8), end: at(11), got: b[:50]}},
		"old, but not too old":          {r: read{offset: 0, size: 50, begin: at(11), end: at(12), got: a[:50]}},
		"too old":                       {r: read{offset: 0, size: 50, begin: at(13), end: at(14), got: a[:50]}, want: "wrong bytes"},
		"from the future":               {r: read{offset: 0, size: 50, begin: at(5), end: at(6), got: b[:50]}, want: "wrong bytes"},
		"two versions":                  {r: read{offset: 0, size: 100, begin: at(9), end: at(11), got: append(a[:48:48], b[48:100]...)}, want: "48 of a"},
		"shifted":                       {r: read{offset: 16, size: 50, begin: at(5), end: at(6), got: a[:50]}, want: "of none"},
		"short":                         {r: read{offset: 0, size: 100, begin: at(5), end: at(6), got: a[:99]}, want: "not all"},
		"short for a reason":            {r: read{offset: 0, size: 100, begin: at(45), end: at(46), got: c[:99], err: broken}, want: ""},
		"wrong, whatever the reason":    {r: read{offset: 0, size: 100, begin: at(45), end: at(46), got: b[:99], err: broken}, want: "wrong bytes"},
		"failed without a reason":       {r: read{offset: 0, size: 100, begin: at(35), end: at(36), err: broken}, want: "no reason"},
		"failed just behind the fault":  {r: read{offset: 0, size: 100, begin: at(51), end: at(52), err: broken}},
		"given up":                      {r: read{offset: 0, size: 100, begin: at(35), end: at(36), err: broken, cancelled: true}},
		"past the end":                  {r: read{offset: 8000, size: 1, begin: at(25), end: at(26), err: block.ErrRange}},
		"not past the end":              {r: read{offset: 6000, size: 1, begin: at(25), end: at(26), err: block.ErrRange}, want: "no reason"},
		"not even in the fault":         {r: read{offset: 6000, size: 1, begin: at(45), end: at(46), err: block.ErrNotFound}, want: "no reason"},
		"changed":                       {r: read{offset: 0, size: 100, begin: at(19), end: at(21), err: block.ErrChanged}},
		"not changed":                   {r: read{offset: 0, size: 100, begin: at(25), end: at(26), err: block.ErrChanged}, want: "no reason"},
		"no buffers":                    {r: read{offset: 0, size: 100, begin: at(25), end: at(26), err: block.ErrBusy}, tight: true},
		"buffers, but busy":             {r: read{offset: 0, size: 100, begin: at(25), end: at(26), err: block.ErrBusy}, want: "no reason"},
		"hangs":                         {r: read{offset: 0, size: 50, begin: at(25), end: at(95), got: c[:50]}, want: "too long"},
		"nothing of what there must be": {r: read{offset: 0, size: 50, begin: at(25), end: at(26)}, want: "not all"},
	} {
		c.r.o, c.r.node = o, "n"
		if got := c.r.judge(plan, c.tight); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	o.mu.unsure = at(12)
	r := read{o: o, offset: 0, size: 50, begin: at(13), end: at(14), got: a[:50]}
	if got := r.judge(plan, false); got != "" {
		t.Errorf("a node that the store has left unsure: %q", got)
	}
}
