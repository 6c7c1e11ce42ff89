package main

import (
	"context"
	"fmt"
	"time"

	"headstart/blockcache"
	"headstart/cmd/config"
)

// cacheOpenWait is how long the start waits for the File Cache: a small one is
// there by then, a large one serves misses for some moments instead of keeping
// the node from its readers.
const cacheOpenWait = 50 * time.Millisecond

func (b *be) openCache(context.Context) (err error) {
	b.cacheSettings = blockcache.NewSettings()
	bindCache(b.conf, b.cacheSettings)
	o := blockcache.Options{
		BlockSize:       b.conf.Int("file_cache_each_block_size"),
		WriteQueueBytes: b.conf.Int("file_cache_write_queue_bytes"),
		Settings:        b.cacheSettings, OpenWait: max(cacheOpenWait, b.tolerance), IOTimeout: b.tolerance, Logger: b.log,
	}
	if b.conf.Bool("enable_file_cache") {
		for _, p := range b.conf.CachePaths("file_cache_path") {
			o.Paths = append(o.Paths, blockcache.Path{
				Dir: p.Path, TotalBytes: p.TotalBytes,
				NormalPercent: p.NormalPercent, TTLPercent: p.TTLPercent,
				IndexPercent: p.IndexPercent, DisposablePercent: p.DisposablePercent,
			})
		}
	}
	if b.cache, err = blockcache.Open(o); err != nil {
		return fmt.Errorf("file_cache_path: %w", err)
	}
	return nil
}

// bindCache lets the File Cache follow its keys.
func bindCache(c *config.Set, s *blockcache.Settings) {
	c.BindInt("file_cache_enter_disk_resource_limit_mode_percent", &s.EnterDiskLimitPercent)
	c.BindInt("file_cache_exit_disk_resource_limit_mode_percent", &s.ExitDiskLimitPercent)
	c.BindBool("enable_evict_file_cache_in_advance", &s.EvictInAdvance)
	c.BindInt("file_cache_enter_need_evict_cache_in_advance_percent", &s.EnterEvictPercent)
	c.BindInt("file_cache_exit_need_evict_cache_in_advance_percent", &s.ExitEvictPercent)
	c.BindInt("file_cache_ttl_seconds", &s.TTLSeconds)
	c.BindInt("peer_server_cache_fill_quota_percent", &s.FillPercent)
	c.BindInt("file_cache_scrub_bytes_per_second", &s.ScrubBytesPerSecond)
}
