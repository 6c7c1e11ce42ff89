// Package mysql is the FE's front for MySQL clients: it takes the statements
// that there are, says what the FE knows, and changes what may be changed.
//
// The protocol is vitess's; the statements and their parser are ours. Nothing
// is read from a client that has not logged in but its login, and no statement
// is longer than a bound. Every change goes through placement.Directory: the
// front itself keeps nothing and decides nothing.
package mysql

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"time"

	"vitess.io/vitess/go/mysql"
	"vitess.io/vitess/go/mysql/replication"
	"vitess.io/vitess/go/mysql/sqlerror"
	"vitess.io/vitess/go/sqltypes"
	vlog "vitess.io/vitess/go/vt/log"
	querypb "vitess.io/vitess/go/vt/proto/query"
	"vitess.io/vitess/go/vt/vtenv"

	"headstart/shards/placement"
)

// serverVersion is what clients take the server for. Its first part is the
// protocol's: drivers judge by it what they may ask for.
const serverVersion = "8.0.40-headstart"

// Config is the configuration of this FE.
type Config interface {
	// Show returns all keys.
	Show() []placement.ConfigItem
	// Set changes keys: all or, with an error, none.
	Set(ctx context.Context, values map[string]string, persist bool) error
}

// Frontend is one FE, as it says of itself.
type Frontend struct {
	Host                         string
	HTTPPort, QueryPort, RPCPort int
	Version                      string
	Started                      time.Time
}

// Options configure a Server. All but Frontends, TLS, Changed and Logger must be set.
type Options struct {
	Listener  net.Listener
	Directory *placement.Directory
	// Backends is how BEs are asked for their configuration.
	Backends placement.Backends
	Config   Config
	Users    *Users
	// Frontends lists the FEs that are there, the leader first; nil means that
	// there is nothing to tell of them.
	Frontends func(context.Context) ([]Frontend, error)
	// TLS is nil for plain text only. With it, clients may still choose not to.
	TLS *tls.Config
	// MaxConns bounds the connections; 0 means 1,000.
	MaxConns int
	// Changed is called after each statement that has changed something.
	Changed func()
	Logger  *slog.Logger
}

// Validate reports what is missing or out of range.
func (o *Options) Validate() error {
	switch {
	case o.Listener == nil, o.Directory == nil, o.Backends == nil, o.Config == nil, o.Users == nil:
		return errors.New("mysql server: Listener, Directory, Backends, Config and Users must be set")
	case o.MaxConns < 0:
		return errors.New("mysql server: MaxConns is negative")
	}
	return nil
}

// Server serves MySQL clients.
type Server struct {
	directory *placement.Directory
	backends  placement.Backends
	config    Config
	frontends func(context.Context) ([]Frontend, error)
	changed   func()
	log       *slog.Logger

	gate     *gate
	listener *mysql.Listener
	// ctx ends when the server is closed.
	ctx   context.Context
	close context.CancelFunc
	done  chan struct{}
}

// LogVitess sends what the protocol's library has to say to l. It has one logger
// for the whole process, so this is for cmd, before the first server starts.
func LogVitess(l *slog.Logger) { vlog.SwapLogger(slog.New(quiet{l.Handler()})) }

// quiet makes debug lines of everything: what clients do wrong is told to them.
type quiet struct{ slog.Handler }

// Enabled implements slog.Handler.
func (q quiet) Enabled(ctx context.Context, _ slog.Level) bool {
	return q.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle implements slog.Handler.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return q.Handler.Handle(ctx, r)
}

// NewServer returns a server; Serve runs it and Shutdown stops it.
func NewServer(o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Server{
		directory: o.Directory, backends: o.Backends, config: o.Config, frontends: o.Frontends, changed: o.Changed,
		log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), done: make(chan struct{}),
	}
	if s.frontends == nil {
		s.frontends = func(context.Context) ([]Frontend, error) { return nil, nil }
	}
	if s.changed == nil {
		s.changed = func() {}
	}
	s.ctx, s.close = context.WithCancel(context.Background())
	s.gate = newGate(o.Listener, cmp.Or(o.MaxConns, 1000))
	env, err := vtenv.New(vtenv.Options{MySQLServerVersion: serverVersion})
	if err != nil {
		return nil, fmt.Errorf("mysql server: %w", err)
	}
	s.listener, err = mysql.NewListenerWithConfig(mysql.ListenerConfig{
		Listener: s.gate, AuthServer: o.Users, Handler: &handler{server: s, env: env}, ConnReadBufferSize: 4 << 10,
	})
	if err != nil {
		return nil, fmt.Errorf("mysql server: %w", err)
	}
	if o.TLS != nil {
		s.listener.TLSConfig.Store(o.TLS)
	}
	return s, nil
}

// Serve accepts clients until Shutdown.
func (s *Server) Serve() error {
	defer close(s.done)
	s.listener.Accept()
	if !s.gate.isShut() {
		return errors.New("mysql server: the listener was closed")
	}
	return nil
}

// Shutdown takes no more statements, waits for those that run until ctx ends,
// and closes all connections. Serve must have been called.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.gate.shut(ctx)
	s.close()
	<-s.done
	return err
}

// Conns returns how many connections there are.
func (s *Server) Conns() int { return s.gate.count() }

// session is a client that has logged in. It belongs to the goroutine of its
// connection.
type session struct {
	server   *Server
	user     User
	id       uint32
	database string
}

// handler is what vitess calls for each connection, one call at a time.
type handler struct {
	mysql.UnimplementedHandler
	server *Server
	env    *vtenv.Environment
}

var _ mysql.Handler = (*handler)(nil)

// NewConnection implements mysql.Handler.
func (h *handler) NewConnection(c *mysql.Conn) { c.StatusFlags |= mysql.ServerStatusAutocommit }

// ConnectionReady implements mysql.Handler.
func (h *handler) ConnectionReady(c *mysql.Conn) {
	if g := guardOf(c.GetRawConn()); g != nil {
		g.letIn()
	}
}

// session returns the session of a connection, which begins with the first
// statement: there may be one before the connection is ready, to use a database.
func (h *handler) session(c *mysql.Conn) *session {
	s, ok := c.ClientData.(*session)
	if !ok {
		who, _ := c.UserData.(loggedIn)
		s = &session{server: h.server, user: who.User, id: c.ConnectionID}
		c.ClientData = s
	}
	return s
}

// ComResetConnection implements mysql.Handler.
func (h *handler) ComResetConnection(c *mysql.Conn) { c.ClientData = nil }

// ComQuery implements mysql.Handler.
func (h *handler) ComQuery(c *mysql.Conn, sql string, send func(*sqltypes.Result) error) error {
	return h.run(c, sql, nil, send)
}

// run runs one statement and sends its result.
func (h *handler) run(c *mysql.Conn, sql string, args []string, send func(*sqltypes.Result) error) error {
	g := guardOf(c.GetRawConn())
	if g != nil {
		if !g.begin() {
			return sqlerror.NewSQLError(sqlerror.ERServerShutdown, sqlerror.SSNetError, "this FE is going away")
		}
		defer g.end()
	}
	result, err := h.result(h.session(c), sql, args)
	if err != nil {
		return asSQLError(err)
	}
	return send(result)
}

func (h *handler) result(s *session, sql string, args []string) (_ *sqltypes.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			h.server.log.Error("panic while running a statement", "panic", p, "stack", string(debug.Stack()))
			err = errors.New("the statement has failed: see the log of the FE")
		}
	}()
	st, g, params, err := parse(sql, args)
	switch {
	case err != nil:
		return nil, err
	case params > len(args):
		return nil, syntaxError("question marks are for prepared statements only")
	case g.changes && s.user.ReadOnly:
		return nil, sqlerror.NewSQLErrorf(sqlerror.ERSpecifiedAccessDenied, sqlerror.SSClientError, "user %s may look only", excerpt(s.user.Name))
	}
	rows, err := st.run(h.server.ctx, s)
	if err != nil {
		return nil, err
	}
	if g.changes {
		h.server.log.Info("statement", "user", s.user.Name, "sql", g.lead)
		h.server.changed()
	}
	result := &sqltypes.Result{Fields: fields(st.columns())}
	for _, r := range rows {
		result.Rows = append(result.Rows, r)
	}
	return result, nil
}

// utf8mb4 is the number of the collation that everything is in.
const utf8mb4 = 45

func fields(columns []string) []*querypb.Field {
	list := make([]*querypb.Field, len(columns))
	for i, name := range columns {
		list[i] = &querypb.Field{Name: name, Type: sqltypes.VarChar, Charset: utf8mb4, ColumnLength: 4 * 65535}
	}
	return list
}

// asSQLError tells clients what is wrong; what they get to see is bounded.
func asSQLError(err error) error {
	if known, ok := errors.AsType[*sqlerror.SQLError](err); ok {
		return known
	}
	text := err.Error()
	return sqlerror.NewSQLError(sqlerror.ERUnknownError, sqlerror.SSUnknownSQLState, text[:min(len(text), 2000)])
}

// ComPrepare implements mysql.Handler.
func (h *handler) ComPrepare(_ *mysql.Conn, sql string) ([]*querypb.Field, uint16, error) {
	// Any number will do for any argument, so that columns can be told.
	_, params, err := lex(sql, nil)
	if err != nil {
		return nil, 0, err
	}
	if params > maxParams {
		return nil, 0, syntaxError(fmt.Sprintf("%d question marks: want at most %d", params, maxParams))
	}
	ones := make([]string, params)
	for i := range ones {
		ones[i] = "1"
	}
	st, _, _, err := parse(sql, ones)
	if err != nil {
		return nil, 0, err
	}
	return fields(st.columns()), uint16(params), nil
}

// maxParams bounds the question marks of a statement.
const maxParams = 1000

// ComStmtExecute implements mysql.Handler.
func (h *handler) ComStmtExecute(c *mysql.Conn, prepared *mysql.PrepareData, send func(*sqltypes.Result) error) error {
	args := make([]string, prepared.ParamsCount)
	for i := range args {
		if v := prepared.BindVars[fmt.Sprintf("v%d", i+1)]; v != nil {
			args[i] = string(v.Value)
		}
	}
	return h.run(c, prepared.PrepareStmt, args, send)
}

// notHere is the answer to what only a database has.
func notHere() error {
	return sqlerror.NewSQLError(sqlerror.ERUnknownComError, sqlerror.SSNetError, "an FE has no such command")
}

// ComQueryMulti implements mysql.Handler; the listener is set up not to call it.
func (h *handler) ComQueryMulti(*mysql.Conn, string, func(sqltypes.QueryResponse, bool, bool) error) error {
	return notHere()
}

// ComRegisterReplica implements mysql.Handler.
func (h *handler) ComRegisterReplica(*mysql.Conn, string, uint16, string, string) error {
	return notHere()
}

// ComBinlogDump implements mysql.Handler.
func (h *handler) ComBinlogDump(*mysql.Conn, string, uint32) error { return notHere() }

// ComBinlogDumpGTID implements mysql.Handler.
func (h *handler) ComBinlogDumpGTID(*mysql.Conn, string, uint64, replication.GTIDSet, uint16) error {
	return notHere()
}

// WarningCount implements mysql.Handler.
func (h *handler) WarningCount(*mysql.Conn) uint16 { return 0 }

// Env implements mysql.Handler.
func (h *handler) Env() *vtenv.Environment { return h.env }
