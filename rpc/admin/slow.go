package admin

import (
	"errors"
	"strings"

	"github.com/valyala/fasthttp"
)

// maxSlowReads is how many reads of each kind /api/slow_reads shows at most.
const maxSlowReads = 1000

// slowReads serves GET /api/slow_reads[?limit=N][&format=text]: the last reads
// that were slow and the last samples, each with its timeline.
func (s *BE) slowReads(ctx *fasthttp.RequestCtx) {
	args := ctx.QueryArgs()
	format := string(args.Peek("format"))
	limit, err := number(args, "limit", maxSlowReads, 1, maxSlowReads)
	if err == nil && format != "" && format != "text" && format != "json" {
		err = errors.New("format=" + quote(format) + ": want text or json")
	}
	if err != nil {
		wrongArgument(ctx, err)
		return
	}
	views := s.Timelines.Show(int(limit))
	if format != "text" {
		answer(ctx, map[string]any{"slow_reads": views})
		return
	}
	var b strings.Builder
	for i := range views {
		b.WriteString(views[i].Waterfall() + "\n")
	}
	text(ctx, b.String())
}
