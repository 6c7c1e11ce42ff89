package main

import (
	"fmt"
	"hash/fnv"
	"html"
	"io"
	"slices"
	"strings"
)

const (
	width, margin  = 1200.0, 10.0
	rowHeight      = 17
	letter         = 6.6 // of the font, about
	narrowest      = 0.7 // what is narrower is not drawn, nor what is above it
	titleHeight    = 34
	frameTextStyle = `font-family="monospace" font-size="11"`
)

// draw writes the picture, the outermost function at the top: what is called is
// below, so that the file can be cut off anywhere and still be read.
func draw(w io.Writer, title string, root *frame) error {
	rows := depth(root, width-2*margin)
	height := titleHeight + rows*rowHeight + margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f">`+"\n", width, float64(height), width, float64(height))
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	fmt.Fprintf(&b, `<text x="%.0f" y="22" font-family="sans-serif" font-size="14">%s</text>`+"\n", margin, html.EscapeString(title))
	drawFrame(&b, root, root.value, margin, titleHeight, width-2*margin)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// depth is how many rows are drawn.
func depth(f *frame, wide float64) int {
	most := 0
	for _, above := range f.above {
		if w := wide * float64(above.value) / float64(f.value); w >= narrowest {
			most = max(most, depth(above, w))
		}
	}
	return most + 1
}

func drawFrame(b *strings.Builder, f *frame, total int64, x, y, wide float64) {
	name := html.EscapeString(f.name)
	fmt.Fprintf(b, `<g><title>%s: %.1f %%</title><rect x="%.1f" y="%.0f" width="%.1f" height="%d" fill="%s" stroke="white" stroke-width="0.5"/>`,
		name, 100*float64(f.value)/float64(total), x, y, wide, rowHeight, shade(f.name))
	if room := int((wide - 6) / letter); room >= 3 {
		fmt.Fprintf(b, `<text x="%.1f" y="%.0f" %s>%s</text>`, x+3, y+12, frameTextStyle, html.EscapeString(short(f.name, room)))
	}
	b.WriteString("</g>\n")
	list := make([]*frame, 0, len(f.above))
	for _, above := range f.above {
		list = append(list, above)
	}
	slices.SortFunc(list, func(a, b *frame) int { // the widest first, so that pictures can be compared
		if a.value != b.value {
			return int(min(max(b.value-a.value, -1), 1))
		}
		return strings.Compare(a.name, b.name)
	})
	for _, above := range list {
		w := wide * float64(above.value) / float64(f.value)
		if w >= narrowest {
			drawFrame(b, above, total, x, y+rowHeight, w)
		}
		x += w
	}
}

// short leaves the path of the package out, and then the end.
func short(name string, room int) string {
	if i := strings.LastIndex(name, "/"); i >= 0 {
		name = name[i+1:]
	}
	if len(name) > room {
		return name[:room-1] + "…"
	}
	return name
}

// shade gives what is ours, the runtime, the kernel's door and the rest a color of
// their own, and each function a tone of it.
func shade(name string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	tone := int(h.Sum32() % 40)
	switch {
	case strings.HasPrefix(name, "headstart/"):
		return fmt.Sprintf("rgb(%d,%d,80)", 215+tone, 120+tone)
	case strings.HasPrefix(name, "runtime.") || strings.HasPrefix(name, "internal/runtime"):
		return fmt.Sprintf("rgb(%d,%d,%d)", 170+tone, 170+tone, 175+tone)
	case strings.Contains(name, "yscall"):
		return fmt.Sprintf("rgb(120,%d,%d)", 170+tone, 205+tone)
	}
	return fmt.Sprintf("rgb(%d,%d,120)", 165+tone, 195+tone)
}
