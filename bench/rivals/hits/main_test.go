package main

import (
	"strings"
	"testing"
)

const said = `Running 1s test @ http://127.0.0.1:8080/bench/hit-1024
  1 threads and 16 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   332.02us  187.12us   4.92ms   91.51%
    Req/Sec    48.61k     3.49k   53.66k    63.64%
  53166 requests in 1.10s, 66.12MB read
Requests/sec:  48341.71
Transfer/sec:     60.12MB
`

func TestWhatWrkSaysIsRead(t *testing.T) {
	answers, rate, err := parse(said)
	if err != nil || answers != 53166 || rate != 48341.71 {
		t.Errorf("%g answers, %g a second, %v", answers, rate, err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"answers that are errors": {said + "  Non-2xx or 3xx responses: 53166\n", "Non-2xx or 3xx responses: 53166"},
		"connections that end":    {said + "  Socket errors: connect 0, read 7, write 0, timeout 0\n", "read 7"},
		"nothing":                 {"", "no answers"},
		"no answers":              {"  0 requests in 1.10s, 0B read\nRequests/sec:      0.00\n", "no answers"},
		"something else":          {strings.Replace(said, "48341.71", "many", 1), "many"},
	} {
		if _, _, err := parse(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
