package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"

	"headstart/cmd/config"
	"headstart/engine/block"
	"headstart/rpc"
	"headstart/rpc/admin"
	"headstart/rpc/mysql"
	"headstart/shards/placement"
	"headstart/shards/placement/conduct"
)

func feRole() role {
	return role{name: "fe", role: config.FE, start: func(ctx context.Context, conf *config.Set, log *slog.Logger) (node, error) {
		return startFE(ctx, conf, log)
	}}
}

// fe is a running FE. Its parts are closed in the reverse of the order in which
// they were started.
type fe struct {
	conf   *config.Set
	log    *slog.Logger
	health admin.Health
	tokens admin.Tokens

	rpcLn, httpLn, queryLn net.Listener
	state                  feStore
	directory              *placement.Directory
	backends               *rpc.BackendClient
	rpc                    *rpc.DirectoryServer
	http                   *admin.FE
	query                  *mysql.Server
	conductor              *conduct.Conductor
	line                   readyLine
	errs                   chan error
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
	QueryPort     int    `json:"query_port,omitempty"`
}

func startFE(ctx context.Context, conf *config.Set, log *slog.Logger) (_ *fe, err error) {
	f := &fe{conf: conf, log: log, errs: make(chan error, 4)}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	defer func() {
		if err != nil {
			err = errors.Join(err, f.drain(ctx))
		}
	}()
	// The ports first: an FE that cannot be reached need not open its state.
	for key, ln := range map[string]*net.Listener{"rpc_port": &f.rpcLn, "http_port": &f.httpLn, "query_port": &f.queryLn} {
		if *ln, err = listen(conf, key); err != nil {
			return nil, err
		}
	}
	for _, step := range []func(context.Context) error{f.openState, f.openServers, f.openQuery} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	f.serve(running)
	return f, nil
}

func (f *fe) openState(ctx context.Context) (err error) {
	if f.state, err = f.openStore(); err != nil {
		return err
	}
	settings := placement.NewSettings()
	f.conf.BindInt("heartbeat_interval_ms", &settings.HeartbeatIntervalMS)
	f.conf.BindInt("heartbeat_timeout_ms", &settings.HeartbeatTimeoutMS)
	f.conf.BindString("balance_type", &settings.BalanceType)
	f.directory, err = placement.NewDirectory(ctx, f.state, settings, placement.Options{Logger: f.log})
	return err
}

func (f *fe) openServers(context.Context) error {
	identity := rpc.NewIdentity(block.Node{ID: newNodeID()}, f.directory.ClusterID(), "")
	f.conf.Bind("cluster_token", func(v config.Value) { identity.SetToken(v.Text()) })
	f.conf.BindString("admin_token", &f.tokens.Admin)
	warnOpen(f.conf, f.log, "cluster_token", "admin_token")
	secure, err := peerTLS(f.conf, f.log)
	if err != nil {
		return err
	}
	if f.backends, err = rpc.NewBackendClient(rpc.BackendClientOptions{Identity: identity, TLS: secure}); err != nil {
		return err
	}
	f.rpc, err = rpc.NewDirectoryServer(rpc.ServerOptions{Listener: f.rpcLn, Identity: identity, TLS: secure, Logger: f.log}, f.directory)
	if err != nil {
		return err
	}
	if f.conductor, err = conduct.New(f.directory, f.backends, conduct.Options{Logger: f.log}); err != nil {
		return err
	}
	f.http = admin.NewFE(admin.FEOptions{
		Config: f.conf, Directory: f.directory, Health: &f.health, Tokens: &f.tokens, Logger: f.log,
	})
	return nil
}

// serve starts what openState and the like have made.
func (f *fe) serve(running context.Context) {
	f.running.Go(func() { f.directory.Run(running) }) // ended by drain
	f.running.Go(func() { f.state.lead(running, f) }) // ended by drain
	go func() { f.errs <- f.rpc.Serve() }()           // ended by drain
	go func() { f.errs <- f.http.Serve(f.httpLn) }()  // ended by drain
	go func() { f.errs <- f.query.Serve() }()         // ended by drain
	f.health.Ready()
	f.line = readyLine{
		Event: "ready", Role: "fe", PID: os.Getpid(), Host: f.conf.String("host"),
		HTTPPort: portOf(f.httpLn), RPCPort: portOf(f.rpcLn), QueryPort: portOf(f.queryLn),
	}
}

func (f *fe) ready() any           { return f.line }
func (f *fe) failed() <-chan error { return f.errs }

// drain implements node. After a start that has failed, it closes what there is.
func (f *fe) drain(ctx context.Context) error {
	f.health.NotReady("draining")
	var errs []error
	if f.line.Event == "" {
		for _, ln := range []net.Listener{f.rpcLn, f.httpLn, f.queryLn} {
			if ln != nil {
				errs = append(errs, ln.Close())
			}
		}
	} else {
		errs = append(errs, f.query.Shutdown(ctx), f.rpc.Shutdown(ctx), f.http.Shutdown(ctx))
	}
	f.stop()
	f.running.Wait()
	if f.backends != nil {
		errs = append(errs, f.backends.Close())
	}
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
