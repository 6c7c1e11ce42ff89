package main

import (
	"strings"

	"headstart/cmd/config"
	"headstart/engine/block"
	"headstart/rpc/s3"
)

// newFront returns the S3 front, nil where s3_port is off.
func (b *be) newFront() (*s3.Front, error) {
	if b.s3Ln == nil {
		return nil, nil
	}
	settings := s3.NewSettings()
	bindFront(b.conf, settings)
	if settings.Keys.Load() == nil && s3.Access(settings.Anonymous.Load()) == s3.AccessNone {
		b.log.Warn("the S3 front refuses everybody: there is no key pair to check signatures with",
			"want", "s3_front_keys, s3_access_key or s3_front_anonymous")
	}
	o := s3.Options{
		Engine: b.engine, Upstream: b.origin, Settings: settings, BlockTimeout: blockTimeout,
		MaxStreamBlocks: int(b.conf.Int("buffer_budget_bytes") / 4 / b.conf.Int("file_cache_each_block_size")),
		Logger:          b.log,
	}
	if b.fes != nil {
		owners := &owners{
			wait: max(placeTimeout, b.tolerance),
			fes:  directory{b.fes}, settings: b.engine.Settings, table: b.table, peers: b.peers,
			self: block.Addr{Host: b.conf.String("host"), Port: portOf(b.brpcLn)}, group: b.conf.String("compute_group_id"), log: b.log,
		}
		owners.mu.places = make(map[block.Route]place)
		o.Place, o.Changed = owners.place, owners.changed
	}
	return s3.New(o)
}

// bindFront lets the front follow its keys.
func bindFront(c *config.Set, s *s3.Settings) {
	c.BindBool("s3_front_read_only", &s.ReadOnly)
	c.BindInt("s3_front_revalidate_ms", &s.RevalidateMS)
	c.BindInt("s3_front_readahead_blocks", &s.ReadaheadBlocks)
	c.Bind("s3_front_anonymous", func(v config.Value) {
		access, _ := s3.ParseAccess(v.Text()) // the registry has checked it
		s.Anonymous.Store(uint32(access))
	})
	c.Bind("s3_front_domains", func(v config.Value) {
		domains := v.List()
		for i, d := range domains {
			domains[i] = strings.ToLower(d)
		}
		s.Domains.Store(&domains)
	})
	// A client that signed for the object store itself needs no other pair.
	var own []s3.Key
	if id := c.String("s3_access_key"); id != "" {
		own = []s3.Key{{ID: id, Secret: c.String("s3_secret_key"), Access: s3.AccessWrite}}
	}
	c.Bind("s3_front_keys", func(v config.Value) {
		list := own
		given, _ := config.ParseS3Keys(v.Text()) // the registry has checked it
		if len(given) > 0 {
			list = nil
		}
		for _, k := range given {
			access, _ := s3.ParseAccess(k.Access)
			list = append(list, s3.Key{ID: k.AccessKey, Secret: k.SecretKey, Access: access, Paths: k.Paths})
		}
		if len(list) == 0 {
			s.Keys.Store(nil)
			return
		}
		s.Keys.Store(s3.NewKeys(list))
	})
}
