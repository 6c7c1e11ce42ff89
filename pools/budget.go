package pools

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// PeerFetchThreads is brpc_peer_fetch_pool_threads as it is meant: -1 stands
// for a size that follows the number of cores.
func PeerFetchThreads(configured, cores int) int {
	if configured >= 0 {
		return configured
	}
	return max(64, 2*cores)
}

// PeerFetchQueueSize is brpc_peer_fetch_pool_max_queue_size as it is meant.
func PeerFetchQueueSize(configured, cores int) int {
	if configured >= 0 {
		return configured
	}
	return max(4096, 128*cores)
}

// Line is one bounded use of memory: Count things of Bytes each.
type Line struct {
	Name  string
	Count int64
	Bytes int64
}

// Total returns the line's bytes; it stops at the largest number there is.
func (l Line) Total() int64 {
	if l.Count > 0 && l.Bytes > math.MaxInt64/l.Count {
		return math.MaxInt64
	}
	return l.Count * l.Bytes
}

// Budget is the sum of what a node may use at most.
type Budget []Line

// Total returns the sum in bytes; it stops at the largest number there is.
func (b Budget) Total() int64 {
	var sum int64
	for _, l := range b {
		sum += min(l.Total(), math.MaxInt64-sum)
	}
	return sum
}

// String writes the sum out, a line for each use.
func (b Budget) String() string {
	var s strings.Builder
	for _, l := range b {
		fmt.Fprintf(&s, "%-32s %6d x %12s = %12s\n", l.Name, l.Count, mib(l.Bytes), mib(l.Total()))
	}
	fmt.Fprintf(&s, "%-32s %6s   %12s = %12s\n", "total", "", "", mib(b.Total()))
	return s.String()
}

// Check fails, and names the largest use, when the sum is more than limit.
func (b Budget) Check(limit Limit) error {
	if b.Total() <= limit.Bytes {
		return nil
	}
	largest := slices.MaxFunc(b, func(x, y Line) int { return cmp.Compare(x.Total(), y.Total()) })
	return fmt.Errorf("the memory budget of %s is more than the %s of %s; its largest part is %s with %s",
		mib(b.Total()), mib(limit.Bytes), limit.From, largest.Name, mib(largest.Total()))
}

func mib(n int64) string {
	return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20))
}

// Limit is how much memory the process may use, and who says so.
type Limit struct {
	Bytes int64
	From  string
}

// MemoryLimit returns the tightest of the limits that the kernel sets: those
// of the process's control group (version 2 or 1) and of the groups around
// it, and the memory of the machine. root is the root of the file system,
// os.DirFS("/").
func MemoryLimit(root fs.FS) (Limit, error) {
	limit := Limit{Bytes: math.MaxInt64}
	for _, file := range limitFiles(root) {
		text, err := fs.ReadFile(root, file)
		if err != nil {
			continue // the group may lie outside what a container sees
		}
		// Version 2 says "max" for no limit, version 1 a number near 2^63.
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && n < limit.Bytes {
			limit = Limit{Bytes: n, From: "/" + file}
		}
	}
	total, err := machineMemory(root)
	if err == nil && total < limit.Bytes {
		limit = Limit{Bytes: total, From: "/proc/meminfo"}
	}
	if limit.From == "" {
		return Limit{}, cmp.Or(err, errors.New("no memory limit found"))
	}
	return limit, nil
}

// limitFiles lists where limits of the process may stand.
func limitFiles(root fs.FS) []string {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	var files []string
	// A line is hierarchy:controllers:path; version 2 has no controllers.
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		base, name := "", ""
		switch {
		case fields[1] == "":
			base, name = "sys/fs/cgroup", "memory.max"
		case strings.Contains(","+fields[1]+",", ",memory,"):
			base, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := path.Clean("/" + fields[2]); ; dir = path.Dir(dir) {
			files = append(files, path.Join(base, dir, name))
			if dir == "/" {
				break
			}
		}
	}
	return files
}

// machineMemory reads MemTotal.
func machineMemory(root fs.FS) (int64, error) {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("memory of the machine: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, errors.New("memory of the machine: no MemTotal in /proc/meminfo")
}
