package cachehit

import (
	"os"
	"strings"
	"testing"
)

// traces returns where the traces are: HEADSTART_TRACES, or beside the
// repository.
func traces(t *testing.T) string {
	dir := os.Getenv("HEADSTART_TRACES")
	if dir == "" {
		dir = "../../../shared/data/traces"
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no traces: looked in %s (HEADSTART_TRACES names another directory)", dir)
	}
	return dir
}

func TestParse(t *testing.T) {
	tr, err := parse(strings.NewReader("7\n9 3\n7\n10\n"))
	if err != nil || tr.Keys != 4 || len(tr.Access) != 6 || tr.Access[4] != 0 || tr.Access[5] != 2 {
		t.Errorf("%+v, %v", tr, err)
	}
	if _, err := parse(strings.NewReader("x")); err == nil {
		t.Error("nonsense was read")
	}
}

// The small rows keep what docs/CACHE.md says of them. All ten are in go run
// ./bench/cachehit/cmd.
func TestHitRatioOfSmallTraces(t *testing.T) {
	rows, err := Rows(traces(t))
	if err != nil {
		t.Fatal(err)
	}
	least := map[string]float64{"gli 500": 33, "gli 1500": 53, "loop 256": 24.5, "loop 768": 74.5, "cloudphysics 489": 16.4}
	for _, row := range rows {
		want, ok := least[row.String()]
		if !ok || testing.Short() && len(row.Trace.Access) > 200_000 {
			continue
		}
		hits, err := Replay(row, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if got := 100 * float64(hits) / float64(len(row.Trace.Access)); got < want {
			t.Errorf("%s: %.2f %% hits, want %.2f", row, got, want)
		}
	}
}
