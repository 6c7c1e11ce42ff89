package pools

import (
	"math"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func TestS40_SizesFollowTheCores(t *testing.T) {
	for _, c := range []struct{ configured, cores, threads, queue int }{
		{-1, 2, 64, 4096}, {-1, 32, 64, 4096}, {-1, 33, 66, 4224}, {-1, 100, 200, 12800}, {7, 100, 7, 7}, {0, 2, 0, 0},
	} {
		if got := PeerFetchThreads(c.configured, c.cores); got != c.threads {
			t.Errorf("%d threads on %d cores: %d, want %d", c.configured, c.cores, got, c.threads)
		}
		if got := PeerFetchQueueSize(c.configured, c.cores); got != c.queue {
			t.Errorf("queue of %d on %d cores: %d, want %d", c.configured, c.cores, got, c.queue)
		}
	}
}

func TestBudgetIsASumThatCanBeRead(t *testing.T) {
	b := Budget{{"buffers of store reads", 1, 512 << 20}, {"stacks of peer fetch threads", 64, 64 << 10}}
	want := `
buffers of store reads                1 x   512.00 MiB =   512.00 MiB
stacks of peer fetch threads         64 x     0.06 MiB =     4.00 MiB
total                                                  =   516.00 MiB
`[1:]
	if got := b.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if err := b.Check(Limit{516 << 20, "here"}); err != nil {
		t.Error(err)
	}
	err := b.Check(Limit{516<<20 - 1, "/sys/fs/cgroup/memory.max"})
	if err == nil || !strings.Contains(err.Error(), "memory.max") || !strings.Contains(err.Error(), "buffers of store reads") {
		t.Errorf("over the limit: %v", err)
	}
	if got := (Budget{{"a", 1 << 40, 1 << 40}, {"b", 1, 1}}).Total(); got != math.MaxInt64 {
		t.Errorf("overflow: %d", got)
	}
}

func TestMemoryLimitIsTheTightestOne(t *testing.T) {
	const meminfo = "MemTotal:       24684092 kB\nMemFree:        1 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  Limit
	}{
		"machine": {map[string]string{"proc/meminfo": meminfo}, Limit{24684092 << 10, "/proc/meminfo"}},
		"v2 in a container": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n",
		}, Limit{1 << 30, "/sys/fs/cgroup/memory.max"}},
		"v2, outer group is tighter": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "2097152\n",
		}, Limit{2 << 20, "/sys/fs/cgroup/a/memory.max"}},
		"v1 beside an empty v2": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/x\n0::/\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "4194304\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712\n",
		}, Limit{4 << 20, "/sys/fs/cgroup/memory/x/memory.limit_in_bytes"}},
		"v1 path of the host, seen in a container": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/docker/abc\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "8388608\n",
		}, Limit{8 << 20, "/sys/fs/cgroup/memory/memory.limit_in_bytes"}},
		"more than the machine has": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, Limit{24684092 << 10, "/proc/meminfo"}},
		"nonsense": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "::\nx\n0::/../..\n", "sys/fs/cgroup/memory.max": "many\n",
		}, Limit{24684092 << 10, "/proc/meminfo"}},
	} {
		root := fstest.MapFS{}
		for file, text := range c.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got, err := MemoryLimit(root); err != nil || got != c.want {
			t.Errorf("%s: %+v %v, want %+v", name, got, err, c.want)
		}
	}
	if _, err := MemoryLimit(fstest.MapFS{}); err == nil {
		t.Error("no error where nothing is known")
	}
	if _, err := MemoryLimit(fstest.MapFS{"proc/meminfo": {Data: []byte("MemFree: 1 kB\n")}}); err == nil {
		t.Error("no error where meminfo says nothing")
	}
}

func TestMemoryLimitOfThisProcess(t *testing.T) {
	got, err := MemoryLimit(os.DirFS("/"))
	if _, statErr := os.Stat("/proc/meminfo"); statErr != nil {
		t.Skip("needs /proc/meminfo: ", statErr)
	}
	if err != nil || got.Bytes < 1<<20 {
		t.Errorf("%+v %v", got, err)
	}
}
