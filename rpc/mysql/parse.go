package mysql

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"vitess.io/vitess/go/mysql/sqlerror"
)

// statement is one that there is, ready to be run.
type statement interface {
	// columns are those of its result, none when it has no result.
	columns() []string
	run(ctx context.Context, s *session) ([]row, error)
}

// grammar is one statement: the words that it begins with, and how it goes on.
// The list of all is what an unknown statement is answered with.
type grammar struct {
	lead, rest string
	// changes is set when the statement needs a user who may change things.
	changes bool
	parse   func(p *parser) statement
}

func grammars() []grammar {
	return []grammar{
		{"SHOW BACKENDS", "", false, func(*parser) statement { return showBackends{} }},
		{"SHOW FRONTENDS", "", false, func(*parser) statement { return showFrontends{} }},
		{"SHOW COMPUTE GROUPS", "", false, func(*parser) statement { return showGroups{} }},
		{"SHOW BACKEND CONFIG", "[LIKE 'pattern'] [FROM backend_id]", false, parseShowConfig},
		{"SHOW FRONTEND CONFIG", "[LIKE 'pattern']", false, parseShowFrontendConfig},
		{"SHOW TABLETS FROM", "backend_id [LIMIT n]", false, parseShowTablets},
		{"SHOW WARM UP JOB", "[WHERE id = n]", false, parseShowJobs},
		{"WARM UP COMPUTE GROUP", "dst WITH {COMPUTE GROUP src | TABLET (n, …) | PREFIX 's3://bucket/prefix'} [PROPERTIES ('sync_mode' = 'once|periodic', 'sync_interval_sec' = 'n')]", true, parseWarmUp},
		{"CANCEL WARM UP JOB", "WHERE id = n", true, parseCancelJob},
		{"ALTER COMPUTE GROUP", "name PROPERTIES ('balance_type' = '…', 'balance_warm_up_task_timeout' = 'seconds')", true, parseAlterGroup},
		{"ALTER SYSTEM ADD BACKEND", "'host:port', …", true, parseBackends(add)},
		{"ALTER SYSTEM DROP BACKEND", "'host:port' | id, …", true, parseBackends(drop)},
		{"ALTER SYSTEM DROPP BACKEND", "'host:port' | id, …", true, parseBackends(drop)},
		{"ALTER SYSTEM DECOMMISSION BACKEND", "'host:port' | id, …", true, parseBackends(decommission)},
		{"CANCEL DECOMMISSION BACKEND", "'host:port' | id, …", true, parseBackends(recommission)},
		{"ADMIN SET", "{ALL BACKENDS | BACKEND id | FRONTEND} CONFIG ('key' = 'value', …[, 'persist' = 'true'])", true, parseSetConfig},
	}
}

// overview is the list of statements that an unknown one is answered with.
// Clients show 512 bytes of an error at most.
func overview() string {
	var b strings.Builder
	for i, g := range append(grammars(), clientGrammars()...) {
		if g.rest == hidden || strings.Contains(g.lead, "DROPP") {
			continue
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(g.lead)
		if g.rest != "" {
			b.WriteString(" …")
		}
	}
	return b.String()
}

// parse reads one statement. args are what its question marks stand for.
func parse(sql string, args []string) (statement, *grammar, int, error) {
	tokens, params, err := lex(sql, args)
	if err != nil {
		return nil, nil, 0, err
	}
	for _, g := range append(grammars(), clientGrammars()...) {
		p := &parser{tokens: tokens}
		if !p.accept(g.lead) {
			continue
		}
		st := g.parse(p)
		if p.failed == nil && p.at < len(p.tokens) {
			p.fail("the end")
		}
		if p.failed != nil {
			return nil, nil, params, g.explain(p.failed)
		}
		return st, &g, params, nil
	}
	return nil, nil, params, unknownStatement(tokens)
}

// explain adds to a mistake how the statement goes, unless the mistake says
// enough by itself.
func (g *grammar) explain(mistake error) error {
	if _, ok := errors.AsType[*sqlerror.SQLError](mistake); ok {
		return mistake
	}
	if g.rest == hidden {
		return syntaxError(mistake.Error())
	}
	return syntaxError(mistake.Error() + ": " + strings.TrimSpace(g.lead+" "+g.rest))
}

func unknownStatement(tokens []token) error {
	if len(tokens) == 0 {
		return sqlerror.NewSQLError(sqlerror.EREmptyQuery, sqlerror.SSClientError, "the statement is empty")
	}
	var said []string
	for _, t := range tokens[:min(len(tokens), 4)] {
		said = append(said, t.text)
	}
	return syntaxError("no such statement: " + excerpt(strings.Join(said, " ")) + ". There are: " + overview())
}

func syntaxError(why string) error {
	return sqlerror.NewSQLError(sqlerror.ERParseError, sqlerror.SSClientError, why)
}

// parser takes tokens one by one. After the first mistake it goes on without
// effect, so that who calls it need not look each time.
type parser struct {
	tokens []token
	at     int
	failed error
}

func (p *parser) next() token {
	if p.at < len(p.tokens) {
		return p.tokens[p.at]
	}
	return token{}
}

func (p *parser) fail(want string) {
	if p.failed != nil {
		return
	}
	near := "at the end"
	if t := p.next(); t.kind != end {
		near = "near " + excerpt(t.text)
	}
	p.failed = fmt.Errorf("%s: want %s", near, want)
}

// accept takes the keywords and marks of a phrase, all or none of them.
func (p *parser) accept(phrase string) bool {
	if p.failed != nil {
		return false
	}
	at := p.at
	for want := range strings.FieldsSeq(phrase) {
		t := p.next()
		if t.kind != word && t.kind != mark || !strings.EqualFold(t.text, want) {
			p.at = at
			return false
		}
		p.at++
	}
	return true
}

// refuse ends the parse with an error that says all there is to say.
func (p *parser) refuse(why error) {
	if p.failed == nil {
		p.failed = why
	}
}

func (p *parser) expect(phrase string) {
	if !p.accept(phrase) {
		p.fail(phrase)
	}
}

// name takes a name, in quotes or without.
func (p *parser) name(what string) string {
	t := p.next()
	if t.kind != word && t.kind != quoted && t.kind != text || t.text == "" {
		p.fail(what)
		return ""
	}
	p.at++
	return t.text
}

// text takes a string in quotes.
func (p *parser) text(what string) string {
	if p.next().kind != text {
		p.fail(what + " in quotes")
		return ""
	}
	return p.name(what)
}

// number takes a whole number, in quotes or without.
func (p *parser) number(what string) int64 {
	n, err := strconv.ParseInt(p.next().text, 10, 64)
	if err != nil || n < 0 || p.next().kind == quoted {
		p.fail(what + ", a whole number")
		return 0
	}
	p.at++
	return n
}

// list takes what item takes, once or more often, with commas in between.
func (p *parser) list(item func()) {
	item()
	for p.accept(",") {
		item()
	}
}

// properties takes ('key' = 'value', …).
func (p *parser) properties() map[string]string {
	values := make(map[string]string)
	p.expect("(")
	p.list(func() {
		key := p.name("a key")
		p.expect("=")
		value := p.value()
		if _, twice := values[key]; twice && p.failed == nil {
			p.failed = fmt.Errorf("%s is given twice", excerpt(key))
		}
		values[key] = value
	})
	p.expect(")")
	return values
}

// value takes a value, which may be the empty string or a negative number.
func (p *parser) value() string {
	if t := p.next(); t.kind == text {
		p.at++
		return t.text
	}
	sign := ""
	if p.accept("-") {
		sign = "-"
	}
	return sign + p.name("a value")
}
