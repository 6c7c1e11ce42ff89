package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"
)

// problem is the body of every answer that is no success.
type problem struct {
	// Code is stable, for programs; Message is a sentence, for people.
	Code    string `json:"code"`
	Message string `json:"message"`
}

// fail answers with a status, a stable code and a sentence.
func fail(ctx *fasthttp.RequestCtx, status int, code, message string) {
	ctx.ResetBody()
	answer(ctx, problem{code, message})
	ctx.SetStatusCode(status)
}

// wrongArgument answers that the caller has asked for something that there is not.
func wrongArgument(ctx *fasthttp.RequestCtx, err error) {
	fail(ctx, fasthttp.StatusBadRequest, "bad_argument", err.Error())
}

// done answers that what was asked for has been done.
func done(ctx *fasthttp.RequestCtx) { answer(ctx, map[string]string{"status": "OK"}) }

// answer answers with v as JSON.
func answer(ctx *fasthttp.RequestCtx, v any) {
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false)
	e.SetIndent("", "    ")
	if err := e.Encode(v); err != nil {
		ctx.SetStatusCode(fasthttp.StatusInternalServerError)
		return
	}
	ctx.SetContentType("application/json")
	ctx.SetBody(body.Bytes())
}

// text answers with plain text.
func text(ctx *fasthttp.RequestCtx, body string) {
	ctx.SetContentType("text/plain; charset=utf-8")
	ctx.SetBodyString(body)
}

// quote makes what a caller has sent fit for an answer or a log.
func quote(s string) string {
	const most = 200
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.Quote(s)
}

// number reads a decimal argument from least to most; missing means def.
func number(args *fasthttp.Args, name string, def, least, most int64) (int64, error) {
	if !args.Has(name) {
		return def, nil
	}
	text := string(args.Peek(name))
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most || text[0] == '+' {
		return 0, errors.New(name + "=" + quote(text) + ": want a whole number from " +
			strconv.FormatInt(least, 10) + " to " + strconv.FormatInt(most, 10))
	}
	return n, nil
}

// flag reads true or false; missing means false.
func flag(args *fasthttp.Args, name string) (bool, error) {
	switch value := string(args.Peek(name)); strings.ToLower(value) {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	default:
		return false, errors.New(name + "=" + quote(value) + ": want true or false")
	}
}

// only refuses arguments that nobody would look at, and those that are given
// twice: a slip of the finger must not read something else than was meant.
func only(args *fasthttp.Args, known []string) error {
	seen := make(map[string]bool, len(known))
	for k := range args.All() {
		name := string(k)
		switch {
		case !slices.Contains(known, name):
			return errors.New("unknown argument " + quote(name) + ": want " + strings.Join(known, ", "))
		case seen[name]:
			return errors.New("argument " + quote(name) + " is given twice")
		}
		seen[name] = true
	}
	return nil
}

// decodeStrict reads one JSON value and refuses fields it does not know, or knows
// already: of two, either may be what was meant.
func decodeStrict(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("want one JSON value and nothing behind it")
	}
	return namedOnce(json.NewDecoder(bytes.NewReader(body)))
}

// namedOnce reads one JSON value, which has been decoded before and is not too
// deep, and refuses objects that have a field twice. Like the decoder it takes
// upper and lower case for the same.
func namedOnce(d *json.Decoder) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	open, _ := t.(json.Delim)
	if open == 0 {
		return nil
	}
	seen := make(map[string]bool)
	for d.More() {
		if open == '{' {
			t, err := d.Token()
			if err != nil {
				return err
			}
			name, _ := t.(string)
			folded := strings.ToUpper(strings.ToLower(name))
			if seen[folded] {
				return errors.New("field " + quote(name) + " is there twice")
			}
			seen[folded] = true
		}
		if err := namedOnce(d); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}
