package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

// recorded is a profile of main calling get (30 of 40) and put, each stack from
// the innermost function on.
func recorded(t *testing.T) *bytes.Buffer {
	t.Helper()
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}}
	at := func(name string) *profile.Location {
		f := &profile.Function{ID: uint64(len(p.Function) + 1), Name: name}
		l := &profile.Location{ID: f.ID, Line: []profile.Line{{Function: f}}}
		p.Function, p.Location = append(p.Function, f), append(p.Location, l)
		return l
	}
	main, get, put := at("main.main"), at("headstart/x.get"), at("x.put[<T>]")
	p.Sample = []*profile.Sample{
		{Location: []*profile.Location{get, main}, Value: []int64{3, 30}},
		{Location: []*profile.Location{put, main}, Value: []int64{1, 10}},
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestFramesAreAsWideAsTheirTime(t *testing.T) {
	root, err := read(recorded(t), "")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := draw(&b, `a "<hit>"`, root); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
	}
	for _, want := range []string{
		"<title>main.main: 100.0 %</title>", "<title>headstart/x.get: 75.0 %</title>", "<title>x.put[&lt;T&gt;]: 25.0 %</title>", `width="885.0"`, ">x.get</text>",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestFocusLeavesTheRestOut(t *testing.T) {
	root, err := read(recorded(t), "headstart/x.get")
	if err != nil || root.value != 30 || len(root.above) != 1 || root.above["headstart/x.get"] == nil {
		t.Errorf("%+v (%v)", root, err)
	}
	if _, err := read(recorded(t), "nobody"); err == nil {
		t.Error("a picture of nothing")
	}
	if _, err := read(strings.NewReader("no profile"), ""); err == nil {
		t.Error("a profile of nothing")
	}
}
