package object

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"headstart/engine/block"
)

// held adds up what the entries of a table have in strings and lines, which is
// what the table is to have counted.
func (t *Table) held() (sum int64) {
	t.entries.Range(func(_ Key, known *Known) bool {
		sum += known.text.Load()
		return true
	})
	return sum
}

// linesOf makes a line of each further header.
func linesOf(m *block.Meta) *Header {
	h := &Header{}
	for line := range strings.Lines(m.Extra) {
		name, value, _ := strings.Cut(line, ": ")
		h.Lines = append(h.Lines, Line{Name: []byte(name), Value: []byte(value)})
		h.Block = append(h.Block, line...)
	}
	return h
}

func long(i int) block.Meta {
	return block.Meta{Size: 1, Version: "v", ETag: "v", ContentType: "text/plain", Extra: fmt.Sprintf("x-amz-meta-%d: %s\n", i, strings.Repeat("x", 10_000))}
}

// TestHeadersAreBounded: objects with large headers are forgotten when all of them
// say too much, though there is room for more objects; the lines that are made of a
// header count as well.
func TestHeadersAreBounded(t *testing.T) {
	const limit = 1 << 20
	for _, front := range []bool{false, true} {
		table := NewTable(0)
		table.maxText = limit
		for i := range 1000 {
			k := KeyOf(named(i), "")
			known := table.Learn(k, long(i), time.Now())
			if table.Get(k) != known {
				t.Fatalf("object %d was dropped as soon as it was learned", i)
			}
			if front && len(known.Header(linesOf).Lines) != 1 {
				t.Fatal("no header")
			}
			if n := table.text.Load(); n > limit {
				t.Fatalf("%d bytes, the limit is %d", n, limit)
			}
		}
		per := 10_000
		if front {
			per = 30_000
		}
		if n := table.Len(); n > limit/per || n < limit/per*8/10 {
			t.Errorf("front %v: %d objects are known", front, n)
		}
		if got, want := table.text.Load(), table.held(); got != want {
			t.Errorf("front %v: %d bytes are counted, the entries have %d", front, got, want)
		}
	}
}

// TestTextIsCountedWhoeverComesAndGoes: what is counted is what the entries have,
// after news, changes, forgetting and headers at once; nothing is counted when
// nothing is left.
func TestTextIsCountedWhoeverComesAndGoes(t *testing.T) {
	table := NewTable(64)
	table.maxText = 1 << 20
	var done sync.WaitGroup
	for w := range 8 {
		done.Go(func() {
			for i := range 500 {
				k := KeyOf(named((i*7+w)%100), "")
				known := table.LearnAsked(k, long(i), time.Unix(int64(i%50), 0), time.Now())
				known.Header(linesOf)
				switch i % 5 {
				case 1:
					table.Forget(k, known)
				case 2:
					table.Change(k, time.Unix(int64(i%40), 0))
				}
			}
		})
	}
	done.Wait()
	if got, want := table.text.Load(), table.held(); got != want {
		t.Errorf("%d bytes are counted, the entries have %d", got, want)
	}
	for i := range 100 {
		k := KeyOf(named(i), "")
		if known, ok := table.entries.Load(k); ok {
			table.Forget(k, known)
		}
	}
	if n := table.text.Load(); n != 0 || table.Len() != 0 {
		t.Errorf("%d bytes are counted of %d objects", n, table.Len())
	}
}

// TestBytesPerObject: what the memory budget says of an object holds, and what is
// counted besides is what it takes.
func TestBytesPerObject(t *testing.T) {
	const n = 100_000
	for _, front := range []bool{false, true} {
		before := heap()
		table := NewTable(n)
		for i := range n {
			etag := fmt.Sprintf("%032x", i)
			known := table.Learn(KeyOf(block.Object{Store: block.DefaultStore, Bucket: "data", Key: fmt.Sprintf("lake/table/part-%028d.parquet", i)}, ""),
				block.Meta{Size: 1, Version: block.Version(etag), ETag: etag, ContentType: "application/octet-stream", Extra: strings.Clone("x-amz-meta-a: b\nx-amz-meta-c: d\n")}, time.Now())
			if front {
				known.Header(linesOf)
			}
		}
		per, counted := float64(heap()-before)/n, float64(table.text.Load())/n
		t.Logf("front %v: %.0f bytes an object, %.0f of them counted as text", front, per, counted)
		if per-counted > 384 {
			t.Errorf("front %v: %.0f bytes an object beside its text", front, per-counted)
		}
		runtime.KeepAlive(table)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
