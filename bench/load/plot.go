package load

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// The picture, in pixels.
const (
	plotWidth, plotHeight         = 760, 440
	plotLeft, plotRight           = 80, 100
	plotTop, plotBottom           = 50, 60
	plotInnerX                    = plotWidth - plotLeft - plotRight
	plotInnerY                    = plotHeight - plotTop - plotBottom
	fontStyle                     = `font-family="sans-serif" font-size="12"`
	grid, ink                     = "#ddd", "#222"
	colorP50, colorP99, colorP999 = "#1b7837", "#2166ac", "#b2182b"
)

// Plot writes an SVG picture of the latency against the load: three quantiles of
// each run that has seen reads, both axes logarithmic. It needs one at least.
func Plot(w io.Writer, title string, results []Result) error {
	list := slices.DeleteFunc(slices.Clone(results), func(r Result) bool { return r.Reads == 0 })
	if len(list) == 0 {
		return fmt.Errorf("load: nothing was measured, so there is nothing to draw")
	}
	slices.SortFunc(list, func(a, b Result) int { return cmp.Compare(a.Rate, b.Rate) })
	x := newAxis(list[0].Rate, list[len(list)-1].Rate)
	least, most := math.MaxFloat64, 0.0
	for i := range list {
		least, most = min(least, millis(list[i].Latency.At(0.5))), max(most, millis(list[i].Latency.At(0.999)))
	}
	y := newAxis(least, most)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">`+"\n", plotWidth, plotHeight, plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	text(&b, plotWidth/2, 24, "middle", ink, title)
	text(&b, plotLeft+plotInnerX/2, plotHeight-14, "middle", ink, "reads due in a second")
	text(&b, 14, plotTop-16, "start", ink, "latency, ms")
	for _, v := range x.ticks() {
		at := plotLeft + x.place(v)*plotInnerX
		line(&b, at, plotTop, at, plotTop+plotInnerY, grid)
		text(&b, at, plotTop+plotInnerY+18, "middle", ink, fmt.Sprintf("%.6g", v))
	}
	for _, v := range y.ticks() {
		at := plotTop + (1-y.place(v))*plotInnerY
		line(&b, plotLeft, at, plotLeft+plotInnerX, at, grid)
		text(&b, plotLeft-8, at+4, "end", ink, fmt.Sprintf("%.6g", v))
	}
	for i, c := range []struct {
		q           float64
		name, color string
	}{{0.5, "p50", colorP50}, {0.99, "p99", colorP99}, {0.999, "p99.9", colorP999}} {
		curve(&b, list, x, y, c.q, c.color)
		at := float64(plotTop + 20*i + 10)
		line(&b, plotLeft+plotInnerX+15, at, plotLeft+plotInnerX+35, at, c.color)
		text(&b, plotLeft+plotInnerX+42, at+4, "start", c.color, c.name)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// curve draws one quantile. An open circle is a lower bound.
func curve(b *strings.Builder, list []Result, x, y axis, q float64, color string) {
	var points []string
	for i := range list {
		atX := plotLeft + x.place(list[i].Rate)*plotInnerX
		atY := plotTop + (1-y.place(millis(list[i].Latency.At(q))))*plotInnerY
		points = append(points, fmt.Sprintf("%.1f,%.1f", atX, atY))
		fill := color
		if list[i].bounded(q) {
			fill = "white"
		}
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3.5" stroke="%s" fill="%s"/>`+"\n", atX, atY, color, fill)
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", strings.Join(points, " "), color)
}

func line(b *strings.Builder, x1, y1, x2, y2 float64, color string) {
	fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, color)
}

func text(b *strings.Builder, x, y float64, anchor, color, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s" %s>%s</text>`+"\n", x, y, anchor, color, fontStyle, html.EscapeString(s))
}

func millis(d time.Duration) float64 { return max(d.Seconds()*1e3, 1e-3) }

// axis is logarithmic.
type axis struct{ from, to float64 }

// newAxis leaves room at both ends; a single value is in the middle.
func newAxis(least, most float64) axis {
	return axis{math.Log(least / 1.3), math.Log(most * 1.3)}
}

// place is where v is, from 0 to 1.
func (a axis) place(v float64) float64 { return (math.Log(v) - a.from) / (a.to - a.from) }

// ticks are 1, 2 and 5 times powers of ten, as far as they lie on the axis.
func (a axis) ticks() (list []float64) {
	for e := math.Floor(a.from / math.Ln10); e <= a.to/math.Ln10; e++ {
		for _, m := range []float64{1, 2, 5} {
			if v := m * math.Pow(10, e); a.place(v) >= 0 && a.place(v) <= 1 {
				list = append(list, v)
			}
		}
	}
	return list
}
