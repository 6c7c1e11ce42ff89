package mysql

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"vitess.io/vitess/go/mysql/sqlerror"
	"vitess.io/vitess/go/sqltypes"
)

// hidden marks what clients send by themselves: it is not worth telling people.
const hidden = "\x00"

// clientGrammars are the statements that clients send by themselves when they
// connect, or that come from tools which look around.
func clientGrammars() []grammar {
	list := []grammar{
		{"SELECT", hidden, false, parseSelect},
		{"SET", hidden, false, parseSet},
		{"USE", hidden, false, func(p *parser) statement { return use{p.name("a database")} }},
		{"SHOW VARIABLES", hidden, false, parseShowVariables},
		{"SHOW SESSION VARIABLES", hidden, false, parseShowVariables},
		{"SHOW GLOBAL VARIABLES", hidden, false, parseShowVariables},
	}
	for _, lead := range []string{"BEGIN", "COMMIT", "ROLLBACK", "START TRANSACTION"} {
		list = append(list, grammar{lead, hidden, false, func(p *parser) statement {
			p.at = len(p.tokens)
			return nothing{}
		}})
	}
	for lead, f := range fixedTables() {
		list = append(list, grammar{"SHOW " + lead, hidden, false, func(p *parser) statement {
			p.at = len(p.tokens)
			return f
		}})
	}
	return list
}

// fixedTables are what SHOW tells of the things that a MySQL server has and an
// FE does not.
func fixedTables() map[string]fixed {
	collation := []string{"utf8mb4_general_ci", "utf8mb4", "45", "Yes", "Yes", "1"}
	return map[string]fixed{
		"DATABASES":     {[]string{"Database"}, [][]string{{database}, {"information_schema"}}},
		"SCHEMAS":       {[]string{"Database"}, [][]string{{database}, {"information_schema"}}},
		"TABLES":        {[]string{"Tables_in_" + database}, nil},
		"WARNINGS":      {[]string{"Level", "Code", "Message"}, nil},
		"ERRORS":        {[]string{"Level", "Code", "Message"}, nil},
		"STATUS":        {[]string{"Variable_name", "Value"}, nil},
		"PLUGINS":       {[]string{"Name", "Status", "Type", "Library", "License"}, nil},
		"ENGINES":       {[]string{"Engine", "Support", "Comment", "Transactions", "XA", "Savepoints"}, nil},
		"PROCESSLIST":   {[]string{"Id", "User", "Host", "db", "Command", "Time", "State", "Info"}, nil},
		"COLLATION":     {[]string{"Collation", "Charset", "Id", "Default", "Compiled", "Sortlen"}, [][]string{collation}},
		"CHARACTER SET": {[]string{"Charset", "Description", "Default collation", "Maxlen"}, [][]string{{"utf8mb4", "UTF-8 Unicode", "utf8mb4_general_ci", "4"}}},
	}
}

// database is the name of the one database that clients may use; it is empty.
const database = "headstart"

// fixed is a table that never changes.
type fixed struct {
	names []string
	cells [][]string
}

func (f fixed) columns() []string { return f.names }

func (f fixed) run(context.Context, *session) ([]row, error) {
	rows := make([]row, len(f.cells))
	for i, cells := range f.cells {
		for _, c := range cells {
			rows[i] = append(rows[i], str(c))
		}
	}
	return rows, nil
}

// nothing is a statement that has no effect here.
type nothing struct{}

func (nothing) columns() []string                            { return nil }
func (nothing) run(context.Context, *session) ([]row, error) { return nil, nil }

// use makes a database the session's.
type use struct{ name string }

func (use) columns() []string { return nil }

func (u use) run(_ context.Context, s *session) ([]row, error) {
	if name := strings.ToLower(u.name); name != database && name != "information_schema" {
		return nil, sqlerror.NewSQLErrorf(sqlerror.ERBadDb, sqlerror.SSClientError,
			"Unknown database %s: an FE has none; leave it out, or take %s", excerpt(u.name), database)
	}
	s.database = strings.ToLower(u.name)
	return nil, nil
}

// variables are the system variables that clients ask for.
func variables() map[string]string {
	const isolation, charset, collation = "REPEATABLE-READ", "utf8mb4", "utf8mb4_general_ci"
	return map[string]string{
		"auto_increment_increment": "1", "autocommit": "1", "init_connect": "", "license": "Apache License 2.0",
		"character_set_client": charset, "character_set_connection": charset, "character_set_results": charset,
		"character_set_server": charset, "character_set_database": charset, "character_set_system": charset,
		"collation_connection": collation, "collation_server": collation, "collation_database": collation,
		"interactive_timeout": "28800", "wait_timeout": "28800", "net_read_timeout": "30", "net_write_timeout": "60",
		"net_buffer_length": "16384", "max_allowed_packet": strconv.Itoa(maxStatement), "lower_case_table_names": "0",
		"performance_schema": "0", "query_cache_size": "0", "query_cache_type": "OFF", "have_query_cache": "NO",
		"sql_mode": "STRICT_TRANS_TABLES", "sql_select_limit": "18446744073709551615", "sql_auto_is_null": "0",
		"sql_safe_updates": "0", "sql_quote_show_create": "1", "sql_notes": "1", "sql_warnings": "0",
		"system_time_zone": "UTC", "time_zone": "SYSTEM", "foreign_key_checks": "1", "unique_checks": "1",
		"transaction_isolation": isolation, "tx_isolation": isolation, "transaction_read_only": "0", "tx_read_only": "0",
		"version": serverVersion, "version_comment": "Headstart FE", "version_compile_os": "Linux",
		"version_compile_machine": "amd64", "protocol_version": "10", "have_ssl": "DISABLED", "hostname": database,
		"profiling": "0", "event_scheduler": "OFF", "default_storage_engine": "", "storage_engine": "",
	}
}

// parseScope takes what may stand before the name of a variable.
func parseScope(p *parser) {
	if slices.ContainsFunc([]string{"GLOBAL", "SESSION", "LOCAL"}, p.accept) {
		p.accept(".")
	}
}

// parseSet takes any settings of variables that clients know, and ignores them:
// what the FE says is UTF-8, and it has no transactions.
func parseSet(p *parser) statement {
	if p.accept("NAMES") || p.accept("CHARACTER SET") || p.accept("CHARSET") || p.accept("TRANSACTION") ||
		p.accept("SESSION TRANSACTION") || p.accept("GLOBAL TRANSACTION") {
		p.at = len(p.tokens)
		return nothing{}
	}
	known := variables()
	p.list(func() {
		mine := p.accept("@")
		if !mine {
			p.accept("@@")
			parseScope(p)
		}
		name := p.name("a variable")
		if _, ok := known[strings.ToLower(name)]; !ok && !mine {
			p.refuse(unknownVariable(name))
		}
		if !p.accept("=") && !p.accept(": =") {
			p.fail("=")
		}
		skipExpression(p)
	})
	return nothing{}
}

func unknownVariable(name string) error {
	return sqlerror.NewSQLErrorf(sqlerror.ERUnknownSystemVariable, sqlerror.SSUnknownSQLState,
		"Unknown system variable %s: keys of Headstart are set by ADMIN SET … CONFIG", excerpt(name))
}

// skipExpression takes everything up to the next comma outside brackets.
func skipExpression(p *parser) {
	depth := 0
	for ; p.next().kind != end; p.at++ {
		if p.next().kind != mark {
			continue
		}
		switch p.next().text {
		case "(":
			depth++
		case ")":
			depth--
		case ",":
			if depth <= 0 {
				return
			}
		}
	}
}

// selection is SELECT of constants, variables and what a session knows of itself.
type selection struct {
	names  []string
	values []func(*session) sqltypes.Value
}

func (s selection) columns() []string { return s.names }

func (s selection) run(_ context.Context, of *session) ([]row, error) {
	var r row
	for _, value := range s.values {
		r = append(r, value(of))
	}
	return []row{r}, nil
}

func parseSelect(p *parser) statement {
	var s selection
	p.list(func() {
		name, value := parseItem(p)
		if p.accept("AS") || p.next().kind == quoted || p.next().kind == text {
			name = p.name("a name for the column")
		}
		s.names, s.values = append(s.names, name), append(s.values, value)
	})
	p.accept("FROM DUAL")
	if p.accept("LIMIT") {
		p.number("a limit")
	}
	if _, told := errors.AsType[*sqlerror.SQLError](p.failed); !told && (p.failed != nil || p.at < len(p.tokens)) {
		p.failed = unknownStatement(p.tokens)
	}
	return s
}

// parseItem takes one thing to select, and names it.
func parseItem(p *parser) (string, func(*session) sqltypes.Value) {
	constant := func(v sqltypes.Value) func(*session) sqltypes.Value {
		return func(*session) sqltypes.Value { return v }
	}
	switch t := p.next(); {
	case p.accept("@@"):
		parseScope(p)
		name := p.name("a variable")
		value, ok := variables()[strings.ToLower(name)]
		if !ok {
			p.refuse(unknownVariable(name))
		}
		return "@@" + name, constant(str(value))
	case p.accept("@"):
		return "@" + p.name("a variable"), constant(sqltypes.NULL)
	case p.accept("NULL"):
		return "NULL", constant(sqltypes.NULL)
	case t.kind == text:
		p.at++
		return t.text, constant(str(t.text))
	case t.kind == word:
		if _, err := strconv.ParseInt(t.text, 10, 64); err == nil {
			p.at++
			return t.text, constant(str(t.text))
		}
	}
	for name, value := range functions() {
		if p.accept(name + " ( )") {
			return name + "()", value
		}
	}
	p.fail("something that can be selected")
	return "", nil
}

func functions() map[string]func(*session) sqltypes.Value {
	user := func(s *session) sqltypes.Value { return str(s.user.Name + "@%") }
	db := func(s *session) sqltypes.Value {
		if s.database == "" {
			return sqltypes.NULL
		}
		return str(s.database)
	}
	now := func(*session) sqltypes.Value { return str(time.Now().UTC().Format(time.DateTime)) } // as system_time_zone says
	return map[string]func(*session) sqltypes.Value{
		"NOW": now, "CURRENT_TIMESTAMP": now,
		"VERSION": func(*session) sqltypes.Value { return str(serverVersion) },
		"USER":    user, "CURRENT_USER": user, "SESSION_USER": user,
		"DATABASE": db, "SCHEMA": db,
		"CONNECTION_ID": func(s *session) sqltypes.Value { return num(s.id) },
	}
}

// showVariables is SHOW VARIABLES.
type showVariables struct{ like string }

// parseShowVariables takes a WHERE for one that holds for all.
func parseShowVariables(p *parser) statement {
	st := showVariables{like: "%"}
	if p.accept("WHERE") {
		p.at = len(p.tokens)
	} else {
		st.like = parseLike(p)
	}
	return st
}

func (showVariables) columns() []string { return []string{"Variable_name", "Value"} }

func (s showVariables) run(context.Context, *session) (rows []row, err error) {
	for name, value := range variables() {
		if like(name, s.like) {
			rows = append(rows, row{str(name), str(value)})
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a[0].ToString(), b[0].ToString()) })
	return rows, nil
}

// parseLike takes LIKE and its pattern; without, everything matches.
func parseLike(p *parser) string {
	if !p.accept("LIKE") {
		return "%"
	}
	return p.text("a pattern")
}
