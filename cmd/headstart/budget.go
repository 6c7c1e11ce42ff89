package main

import (
	"log/slog"
	"os"
	"strings"

	"headstart/cmd/config"
	"headstart/engine/object"
	"headstart/pools"
	"headstart/rpc"
)

// What one of many costs, in bytes of heap and stack: measured, and rounded up.
const (
	tabletBytes  = 320 // shards.TestBytesPerTablet
	addressBytes = 640 // shards.TestBytesPerAddress
	objectBytes  = 384
	blockBytes   = 224
	waitingBytes = 1 << 10
	// timelineBytes is of a read with timeline.MaxSteps steps and long words.
	timelineBytes = 32 << 10
)

// budgetOf adds up what a BE may use at most: a line for each thing that a key
// or a constant bounds.
func budgetOf(c *config.Set) pools.Budget {
	blocks := int64(0)
	if c.Bool("enable_file_cache") {
		for _, p := range c.CachePaths("file_cache_path") {
			blocks += p.TotalBytes / c.Int("file_cache_each_block_size")
		}
	}
	queue := pools.PeerFetchQueueSize(int(c.Int("brpc_peer_fetch_pool_max_queue_size")), cores())
	return pools.Budget{
		{Name: "blocks on their way", Count: 1, Bytes: c.Int("buffer_budget_bytes")},
		{Name: "index of the File Cache", Count: blocks, Bytes: blockBytes},
		{Name: "known objects", Count: object.DefaultMaxObjects, Bytes: objectBytes},
		{Name: "candidates of tablets", Count: c.Int("peer_candidate_max_tablets"), Bytes: tabletBytes},
		{Name: "peers' circuits and latencies", Count: c.Int("peer_candidate_max_addresses"), Bytes: addressBytes},
		{Name: "connections of peers", Count: rpc.DefaultMaxConns, Bytes: rpc.ConnBytes},
		{Name: "timelines of slow reads", Count: 2 * maxTimelines, Bytes: timelineBytes},
		{Name: "peer reads that wait", Count: int64(queue), Bytes: waitingBytes},
	}
}

// logBudget says what the node may use, and warns when that is more than there
// is: the kernel would end the process, and not at a time of our choice. It returns
// how much there is in bytes, 0 when that is not known.
func logBudget(c *config.Set, log *slog.Logger) int64 {
	budget := budgetOf(c)
	for line := range strings.Lines(budget.String()) {
		log.Debug("memory budget", "line", strings.TrimSpace(line))
	}
	limit, err := pools.MemoryLimit(os.DirFS("/"))
	if err == nil {
		err = budget.Check(limit)
	}
	if err != nil {
		log.Warn("memory budget", "error", err)
		return limit.Bytes
	}
	log.Info("memory budget", "bytes", budget.Total(), "limit", limit.Bytes, "from", limit.From)
	return limit.Bytes
}
