package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"time"

	"headstart/blockcache"
	"headstart/cmd/config"
	"headstart/engine"
	"headstart/engine/block"
	"headstart/engine/fill"
	"headstart/engine/objstore"
	"headstart/engine/profile"
	"headstart/engine/timeline"
	"headstart/engine/warmup"
	"headstart/pools"
	"headstart/rpc"
	"headstart/rpc/admin"
	"headstart/rpc/s3"
	"headstart/shards"
)

// maxProfiles is how many query profiles a BE keeps, maxTimelines how many slow
// reads, and how many samples.
const (
	maxProfiles  = 1000
	maxTimelines = 128
)

func beRole() role {
	return role{name: "be", role: config.BE, start: func(ctx context.Context, conf *config.Set, log *slog.Logger) (node, error) {
		return startBE(ctx, conf, log)
	}}
}

// be is a running BE. Its parts are started from the floor up and closed in
// reverse.
type be struct {
	conf   *config.Set
	log    *slog.Logger
	health admin.Health
	tokens admin.Tokens

	httpLn, brpcLn net.Listener
	// s3Ln and front are nil where s3_port is off.
	s3Ln          net.Listener
	front         *s3.Front
	identity      *rpc.Identity
	tls           *rpc.TLS
	buffers       *pools.Buffers
	races         *pools.Tokens
	raceGets      *pools.Tokens
	fills         *pools.Shares
	groupBytes    *pools.Shares
	queue         *pools.Queue
	cacheSettings *blockcache.Settings
	cache         *blockcache.Cache
	origin        *objstore.Store
	breakers      *shards.Breakers
	table         *shards.Table
	upkeep        *upkeep
	peers         *rpc.Client
	fes           *rpc.DirectoryClient
	profiles      *profile.Profiles
	timelines     *timeline.Log
	engine        *engine.Engine
	serving       *fill.Server
	warm          *warmup.Service
	rpc           *rpc.Server
	http          *admin.BE
	agent         *agent
	reporter      *reporter

	// tolerance is how long its disk may keep the File Cache waiting, and an FE who
	// asks for the owner of an object, and how long a connection to a peer may take.
	// It is 0, for the defaults, but in tests.
	tolerance time.Duration

	started time.Time
	// memory is how much the node may use, in bytes; 0 when that is not known.
	memory int64
	line   readyLine
	errs   chan error
}

func newBE(conf *config.Set, log *slog.Logger) *be {
	return &be{conf: conf, log: log, started: time.Now(), errs: make(chan error, 3)}
}

func startBE(ctx context.Context, conf *config.Set, log *slog.Logger) (*be, error) {
	b := newBE(conf, log)
	return b, b.start(ctx)
}

// start brings everything up. When that fails it closes what is up.
func (b *be) start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, b.drain(ctx))
		}
	}()
	// The ports first: a node that cannot be reached need not open its cache.
	if b.httpLn, err = listen(b.conf, "webserver_port"); err != nil {
		return err
	}
	if b.brpcLn, err = listen(b.conf, "brpc_port"); err != nil {
		return err
	}
	if b.conf.Int("s3_port") >= 0 {
		if b.s3Ln, err = listen(b.conf, "s3_port"); err != nil {
			return err
		}
	}
	b.memory = logBudget(b.conf, b.log)
	steps := []func(context.Context) error{b.openPools, b.openCache, b.openStore, b.openPeers, b.openEngine, b.openWarmUp, b.serve}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *be) openPools(context.Context) (err error) {
	c := b.conf
	b.buffers, err = pools.NewBuffers(pools.BuffersOptions{
		Name: "block buffers", BudgetBytes: c.Int("buffer_budget_bytes"), BlockSize: int(c.Int("file_cache_each_block_size")),
	})
	if err != nil {
		return err
	}
	b.races, b.raceGets, b.fills = pools.NewTokens(0), pools.NewTokens(0), pools.NewShares(0)
	follow(c, "max_concurrent_peer_races", b.races.SetLimit)
	follow(c, "max_peer_race_s3_thread_num", b.raceGets.SetLimit)
	follow(c, "max_concurrent_peer_server_fills", b.fills.SetLimit)
	cores := cores()
	b.queue, err = pools.NewQueue(pools.QueueOptions{
		Name:     "peer fetch",
		Workers:  pools.PeerFetchThreads(int(c.Int("brpc_peer_fetch_pool_threads")), cores),
		MaxQueue: pools.PeerFetchQueueSize(int(c.Int("brpc_peer_fetch_pool_max_queue_size")), cores),
	})
	if err != nil {
		return err
	}
	c.Bind("peer_fetch_queue_timeout_ms", func(v config.Value) { b.queue.SetTimeout(v.Duration()) })
	c.Bind("peer_fetch_queue_policy", func(v config.Value) { b.queue.SetAdaptive(v.Text() == "adaptive") })
	b.groupBytes = pools.NewShares(math.MaxInt)
	c.Bind("peer_serving_max_bytes_per_group", func(v config.Value) { b.groupBytes.SetLimitEach(v.Int()) })
	return nil
}

// follow lets a limit follow an Int key.
func follow(conf *config.Set, key string, set func(int)) {
	conf.Bind(key, func(v config.Value) { set(int(v.Int())) })
}

func (b *be) openStore(ctx context.Context) (err error) {
	c := b.conf
	b.origin, err = objstore.New(ctx, objstore.Options{
		Endpoint: c.String("s3_endpoint"), Region: c.String("s3_region"),
		AccessKey: c.String("s3_access_key"), SecretKey: c.String("s3_secret_key"),
		SessionToken: c.String("s3_session_token"), PathStyle: c.Bool("s3_path_style"),
		MaxInFlight: int(c.Int("max_concurrent_s3_gets")), Buffers: b.buffers,
		AttemptTimeout: c.Duration("s3_get_timeout_ms"), IdleTimeout: c.Duration("s3_get_idle_timeout_ms"),
		Logger: b.log,
	})
	if err != nil {
		return fmt.Errorf("s3_endpoint: %w", err)
	}
	return nil
}

func (b *be) openPeers(context.Context) (err error) {
	c := b.conf
	self := block.Node{ID: newNodeID(), GroupID: c.String("compute_group_id"), Location: c.String("location")}
	b.identity = rpc.NewIdentity(self, c.String("cluster_id"), "")
	c.Bind("cluster_token", func(v config.Value) { b.identity.SetToken(v.Text()) })
	c.BindString("admin_token", &b.tokens.Admin)
	c.BindString("read_token", &b.tokens.Read)
	warnOpen(c, b.log, "cluster_token", "admin_token", "read_token")

	if b.tls, err = peerTLS(c, b.log); err != nil {
		return err
	}

	settings := shards.NewSettings()
	bindShards(c, settings)
	b.breakers = shards.NewBreakers(settings)
	b.upkeep = startUpkeep(settings)
	b.table = shards.NewTable(shards.Options{
		Self: []block.Addr{{Host: c.String("host"), Port: portOf(b.brpcLn)}}, Location: c.String("location"),
		CoarseMS: &b.upkeep.nowMS,
	}, settings, b.breakers)
	b.upkeep.sweep(b.table)
	b.peers, err = rpc.NewClient(rpc.ClientOptions{
		Identity: b.identity, Alloc: b.buffers.Get, TLS: b.tls, ConnectTimeout: b.tolerance,
	})
	if err != nil {
		return err
	}
	endpoints, err := addrs(c.List("fe_endpoints"))
	if err == nil && len(endpoints) > 0 {
		b.fes, err = rpc.NewDirectoryClient(rpc.DirectoryClientOptions{Endpoints: endpoints, Identity: b.identity, TLS: b.tls})
	}
	return err
}

func (b *be) openEngine(context.Context) (err error) {
	settings := engine.NewSettings()
	bindEngine(b.conf, settings)
	b.profiles = profile.New(maxProfiles)
	b.timelines = timeline.New(maxTimelines)
	b.conf.BindInt("slow_read_threshold_ms", &b.timelines.ThresholdMS)
	b.conf.BindInt("slow_read_sample_per_million", &b.timelines.SamplePerMillion)
	o := engine.Options{
		Cache: b.cache, Origin: b.origin, Peers: b.peers, Table: b.table, Breakers: b.breakers,
		Profiles: b.profiles, Timelines: b.timelines, Settings: settings, Races: b.races, RaceGets: b.raceGets,
		BlockSize: b.conf.Int("file_cache_each_block_size"),
		GroupID:   b.conf.String("compute_group_id"), Location: b.conf.String("location"), Logger: b.log,
	}
	if b.fes != nil {
		o.Directory = directory{b.fes}
	}
	if b.engine, err = engine.New(o); err != nil {
		return err
	}
	b.upkeep.learn(b.cache, b.engine)
	serving := &fill.Settings{}
	b.conf.BindBool("enable_peer_server_cache_fill", &serving.EnablePeerServerCacheFill)
	b.conf.BindBool("peer_read_updates_eviction_order", &serving.PeerReadUpdatesEvictionOrder)
	b.conf.BindInt("peer_server_cache_fill_timeout_ms", &serving.PeerServerCacheFillTimeoutMS)
	b.serving = fill.NewServer(fill.Options{
		Engine: b.engine, Cache: b.cache, Settings: serving, Queue: b.queue, Fills: b.fills, Logger: b.log,
	})
	return nil
}

func (b *be) openWarmUp(context.Context) (err error) {
	settings := warmup.NewSettings()
	b.conf.BindInt("file_cache_warmup_download_rate_limit_bytes_per_second", &settings.BytesPerSecond)
	b.conf.BindBool("warm_up_from_peer", &settings.FromPeer)
	b.warm, err = warmup.New(warmup.Options{
		Engine: b.engine, Cache: b.cache, Table: b.table, Peers: b.peers, Settings: settings, Logger: b.log,
	})
	return err
}

func (b *be) serve(context.Context) (err error) {
	c := b.conf
	b.http = admin.NewBE(admin.BEOptions{
		Config: c, Engine: b.engine, Cache: b.cache, Serving: b.serving,
		Table: b.table, Breakers: b.breakers, Profiles: b.profiles, Timelines: b.timelines, Buffers: b.buffers,
		Health: &b.health, Tokens: &b.tokens, Wire: b.wireMetrics,
		Bucket: c.String("s3_bucket"), BlockTimeout: blockTimeout, Logger: b.log,
	})
	b.rpc, err = rpc.NewServer(rpc.ServerOptions{
		Listener: b.brpcLn, Identity: b.identity, ReadToken: b.readToken, GroupBytes: b.groupBytes, TLS: b.tls,
		HTTP: b.http.ServeVars, Control: &control{b.engine, nodeConfig{c}, b.warm, b.origin}, Logger: b.log,
	}, b.serving)
	if err != nil {
		return err
	}
	if b.front, err = b.newFront(); err != nil {
		return err
	}
	go func() { b.errs <- b.rpc.Serve() }()          // ended by drain
	go func() { b.errs <- b.http.Serve(b.httpLn) }() // ended by drain
	b.line = readyLine{
		Event: "ready", Role: "be", PID: os.Getpid(), Host: c.String("host"),
		WebserverPort: portOf(b.httpLn), BrpcPort: portOf(b.brpcLn),
	}
	if b.front != nil {
		go func() { b.errs <- b.front.Serve(b.s3Ln) }() // ended by drain
		b.line.S3Port = portOf(b.s3Ln)
	}
	if b.fes != nil {
		b.agent = startAgent(b.fes, b.heartbeat, c, b.log)
		b.reporter = startReporter(b.fes, b.engine, b.log)
	}
	b.health.Ready()
	return nil
}

// readToken is what callers of the remote read must present now.
func (b *be) readToken() string {
	if token := b.tokens.Read.Load(); token != nil {
		return *token
	}
	return ""
}

// blockTimeout is how long a reader of /read waits for one block: longer than
// all retries of object storage together.
const blockTimeout = 60 * time.Second

func (b *be) ready() any           { return b.line }
func (b *be) failed() <-chan error { return b.errs }

// drain implements node: readiness fails first, then the FE hears of it, then
// the servers finish what they have begun.
func (b *be) drain(ctx context.Context) error {
	b.health.NotReady("draining")
	var errs []error
	if b.agent != nil {
		b.reporter.stop()
		b.agent.leave(ctx)
	}
	if b.rpc != nil {
		errs = append(errs, b.rpc.Shutdown(ctx))
	} else if b.brpcLn != nil {
		errs = append(errs, b.brpcLn.Close())
	}
	if b.front != nil {
		errs = append(errs, b.front.Shutdown(ctx))
	} else if b.s3Ln != nil {
		errs = append(errs, b.s3Ln.Close())
	}
	if b.http != nil {
		errs = append(errs, b.http.Shutdown(ctx))
	} else if b.httpLn != nil {
		errs = append(errs, b.httpLn.Close())
	}
	if b.warm != nil {
		b.warm.Close()
	}
	if b.serving != nil {
		b.serving.Close()
	}
	if b.engine != nil {
		b.engine.Close()
	}
	if b.upkeep != nil {
		b.upkeep.stop()
	}
	if b.peers != nil {
		errs = append(errs, b.peers.Close())
	}
	if b.fes != nil {
		errs = append(errs, b.fes.Close())
	}
	if b.origin != nil {
		errs = append(errs, b.origin.Close())
	}
	if b.queue != nil {
		errs = append(errs, b.queue.Close())
	}
	if b.cache != nil {
		errs = append(errs, b.cache.Flush(ctx), b.cache.Close())
	}
	return errors.Join(errs...)
}
