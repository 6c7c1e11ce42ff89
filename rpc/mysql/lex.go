package mysql

import (
	"fmt"
	"strings"
)

// token is one word of a statement.
type token struct {
	kind tokenKind
	// text is what was written, without quotes and escapes.
	text string
}

type tokenKind uint8

const (
	// end is behind the last token.
	end tokenKind = iota
	// word is a keyword, a name or a number.
	word
	// quoted is a name in back quotes; it is no keyword.
	quoted
	// text is a string in single or double quotes.
	text
	// mark is any other sign, a byte each, and @@.
	mark
)

// maxStatement bounds a statement in bytes: 100,000 tablets fit.
const maxStatement = 4 << 20

// lex cuts a statement into tokens, without comments and without the semicolon
// at its end. Each ? stands for the next of args.
func lex(statement string, args []string) (tokens []token, params int, err error) {
	if len(statement) > maxStatement {
		return nil, 0, syntaxError(fmt.Sprintf("the statement has %d bytes: want at most %d", len(statement), maxStatement))
	}
	for rest := statement; ; {
		rest = skipBlanks(rest)
		if rest == "" {
			break
		}
		c, size := rest[0], 1
		switch {
		case isWordByte(c):
			for size < len(rest) && isWordByte(rest[size]) {
				size++
			}
			tokens = append(tokens, token{word, rest[:size]})
		case c == '\'' || c == '"' || c == '`':
			var t token
			if t, size = lexQuoted(rest); size == 0 {
				return nil, 0, syntaxError(fmt.Sprintf("the quotes that open at %s do not close", excerpt(rest)))
			}
			tokens = append(tokens, t)
		case c == '?':
			t := token{kind: text}
			if params < len(args) {
				t.text = args[params]
			}
			params++
			tokens = append(tokens, t)
		default:
			if strings.HasPrefix(rest, "@@") {
				size = 2
			}
			tokens = append(tokens, token{mark, rest[:size]})
		}
		rest = rest[size:]
	}
	for len(tokens) > 0 && tokens[len(tokens)-1] == (token{mark, ";"}) {
		tokens = tokens[:len(tokens)-1]
	}
	return tokens, params, nil
}

func isWordByte(c byte) bool {
	return c >= 0x80 || c == '_' || c == '$' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// skipBlanks takes blanks and comments off the front.
func skipBlanks(s string) string {
	for {
		s = strings.TrimLeft(s, " \t\r\n\f\v\x00")
		switch {
		case strings.HasPrefix(s, "/*"):
			_, s, _ = strings.Cut(s[2:], "*/")
		case strings.HasPrefix(s, "#"), s == "--", strings.HasPrefix(s, "-- "), strings.HasPrefix(s, "--\t"), strings.HasPrefix(s, "--\n"):
			_, s, _ = strings.Cut(s, "\n")
		default:
			return s
		}
	}
}

// lexQuoted reads a name or a string in quotes, and returns how many bytes it
// takes: 0 when the quotes do not close. Doubled quotes stand for one; in
// strings a backslash takes the next byte as it is, but for the few letters that
// MySQL knows.
func lexQuoted(s string) (token, int) {
	quote := s[0]
	t := token{kind: text}
	if quote == '`' {
		t.kind = quoted
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == quote && i+1 < len(s) && s[i+1] == quote:
			i++
			b.WriteByte(quote)
		case s[i] == quote:
			t.text = b.String()
			return t, i + 1
		case s[i] == '\\' && t.kind == text && i+1 < len(s):
			i++
			unescape(&b, s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return t, 0
}

// unescape writes what a backslash and c stand for. LIKE looks at \% and \_ by
// itself.
func unescape(b *strings.Builder, c byte) {
	switch c {
	case 'n':
		b.WriteByte('\n')
	case 't':
		b.WriteByte('\t')
	case 'r':
		b.WriteByte('\r')
	case '0':
		b.WriteByte(0)
	case '%', '_':
		b.WriteByte('\\')
		b.WriteByte(c)
	default:
		b.WriteByte(c)
	}
}

// excerpt is the beginning of s, for an error.
func excerpt(s string) string {
	const most = 40
	if len(s) > most {
		return fmt.Sprintf("%.*q…", most, s)
	}
	return fmt.Sprintf("%q", s)
}

// like reports whether s matches a pattern of LIKE: % is any text, _ any one
// byte, and ASCII letters match either case.
func like(s, pattern string) bool {
	// from is where the last % may give one more byte away, 0 without one.
	at, retry, from := 0, -1, 0
	for i := 0; i < len(s) || at < len(pattern); {
		if at < len(pattern) {
			switch c := pattern[at]; {
			case c == '%':
				retry, from = at, i
				at++
				continue
			case i < len(s) && c == '\\' && at+1 < len(pattern) && lower(pattern[at+1]) == lower(s[i]):
				at, i = at+2, i+1
				continue
			case i < len(s) && (c == '_' || lower(c) == lower(s[i])):
				at, i = at+1, i+1
				continue
			}
		}
		if retry < 0 || from >= len(s) {
			return false
		}
		from++
		at, i = retry+1, from
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
