package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"headstart/cmd/config"
	"headstart/engine/block"
	"headstart/rpc"
	"headstart/rpc/admin"
	"headstart/shards/placement"
	"headstart/shards/placement/store"
)

func feRole() role {
	return role{name: "fe", role: config.FE, start: func(ctx context.Context, conf *config.Set, log *slog.Logger) (node, error) {
		return startFE(ctx, conf, log)
	}}
}

// fe is a running FE. Its parts are closed in the reverse of the order in which
// they were started.
type fe struct {
	log    *slog.Logger
	state  *store.Bolt
	health admin.Health
	tokens admin.Tokens
	rpc    *rpc.DirectoryServer
	http   *admin.FE
	line   readyLine
	errs   chan error
	// running is what runs beside the servers until stop is called.
	running sync.WaitGroup
	stop    context.CancelFunc
}

// readyLine is what a node prints when it serves: where it can be reached, its
// own choice of ports included.
type readyLine struct {
	Event         string `json:"event"`
	Role          string `json:"role"`
	PID           int    `json:"pid"`
	Host          string `json:"host"`
	WebserverPort int    `json:"webserver_port,omitempty"`
	BrpcPort      int    `json:"brpc_port,omitempty"`
	S3Port        int    `json:"s3_port,omitempty"`
	HTTPPort      int    `json:"http_port,omitempty"`
	RPCPort       int    `json:"rpc_port,omitempty"`
}

func startFE(ctx context.Context, conf *config.Set, log *slog.Logger) (_ *fe, err error) {
	f := &fe{log: log, errs: make(chan error, 2)}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	defer func() {
		if err != nil {
			err = errors.Join(err, f.drain(ctx))
		}
	}()
	dir := conf.String("meta_dir")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("meta_dir: %w", err)
	}
	if f.state, err = store.Open(filepath.Join(dir, "fe.db")); err != nil {
		return nil, fmt.Errorf("meta_dir: %w", err)
	}
	settings := placement.NewSettings()
	conf.BindInt("heartbeat_interval_ms", &settings.HeartbeatIntervalMS)
	conf.BindInt("heartbeat_timeout_ms", &settings.HeartbeatTimeoutMS)
	// No BE can be told to warm up yet.
	atOnce := string(placement.WithoutWarmup)
	settings.BalanceType.Store(&atOnce)
	directory, err := placement.NewDirectory(ctx, f.state, settings, placement.Options{Logger: log})
	if err != nil {
		return nil, err
	}
	rpcLn, err := listen(conf, "rpc_port")
	if err != nil {
		return nil, err
	}
	httpLn, err := listen(conf, "http_port")
	if err != nil {
		rpcLn.Close()
		return nil, err
	}
	identity := rpc.NewIdentity(block.Node{ID: newNodeID()}, directory.ClusterID(), "")
	conf.Bind("cluster_token", func(v config.Value) { identity.SetToken(v.Text()) })
	conf.BindString("admin_token", &f.tokens.Admin)
	warnOpen(conf, log, "cluster_token", "admin_token")
	secure, err := peerTLS(conf, log)
	if err == nil {
		f.rpc, err = rpc.NewDirectoryServer(rpc.ServerOptions{Listener: rpcLn, Identity: identity, TLS: secure, Logger: log}, directory)
	}
	if err != nil {
		return nil, errors.Join(err, rpcLn.Close(), httpLn.Close())
	}
	f.http = admin.NewFE(admin.FEOptions{
		Config: conf, Directory: directory, Health: &f.health, Tokens: &f.tokens, Logger: log,
	})
	f.running.Go(func() { directory.Run(running) }) // ended by drain
	go func() { f.errs <- f.rpc.Serve() }()         // ended by drain
	go func() { f.errs <- f.http.Serve(httpLn) }()  // ended by drain
	f.health.Ready()
	f.line = readyLine{
		Event: "ready", Role: "fe", PID: os.Getpid(), Host: conf.String("host"),
		HTTPPort: portOf(httpLn), RPCPort: portOf(rpcLn),
	}
	return f, nil
}

func (f *fe) ready() any           { return f.line }
func (f *fe) failed() <-chan error { return f.errs }

// drain implements node.
func (f *fe) drain(ctx context.Context) error {
	f.health.NotReady("draining")
	var errs []error
	if f.rpc != nil {
		errs = append(errs, f.rpc.Shutdown(ctx))
	}
	if f.http != nil {
		errs = append(errs, f.http.Shutdown(ctx))
	}
	f.stop()
	f.running.Wait()
	if f.state != nil {
		errs = append(errs, f.state.Close())
	}
	return errors.Join(errs...)
}

// listen opens the listener of a port key; the error names the key.
func listen(conf *config.Set, key string) (net.Listener, error) {
	host := conf.String("listen_host")
	if host == "" {
		host = conf.String("host")
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.FormatInt(conf.Int(key), 10)))
	if err != nil {
		return nil, fmt.Errorf("%s = %d: %w", key, conf.Int(key), err)
	}
	return ln, nil
}

func portOf(ln net.Listener) int { return ln.Addr().(*net.TCPAddr).Port }

// warnOpen says once that anybody may call, unless only this machine can (S65).
func warnOpen(conf *config.Set, log *slog.Logger, keys ...string) {
	host := conf.String("listen_host")
	if host == "" {
		host = conf.String("host")
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return
	}
	for _, key := range keys {
		if conf.String(key) == "" {
			log.Warn("open to anybody who reaches this node", "key", key, "listen_host", host)
		}
	}
}
