package objstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"headstart/engine/block"
	"headstart/pools"
)

func TestS11_RunIsOneGETAndItsBlocksComeOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		o := fake.put("a/b c+d", fakeObject{size: 10*blockSize + 5, version: 1})
		s := fake.store(Options{})
		release := make(chan struct{})
		fake.onGet(func(_ int64, w http.ResponseWriter, r *http.Request) bool {
			from, to := askedRange(t, r)
			partial(w, from, to, 10*blockSize+5)
			fake.send(w, r, content(o.Key, 1, from, from+blockSize))
			flush(w)
			<-release
			fake.send(w, r, content(o.Key, 1, from+blockSize, to))
			return true
		})
		st, err := s.Fetch(t.Context(), fetch(o, 2, 3))
		if err != nil {
			t.Fatal(err)
		}
		p, err := st.Next()
		if err != nil || p.Index != 2 || !bytes.Equal(p.Buf.Bytes(), content(o.Key, 1, 2*blockSize, 3*blockSize)) {
			t.Fatalf("first block: %d, %v", p.Index, err)
		}
		p.Buf.Release()
		close(release) // the first block did not wait for the second
		indexes, data, err := readAll(t, st)
		if err != nil || fmt.Sprint(indexes) != "[3 4]" || !bytes.Equal(data, content(o.Key, 1, 3*blockSize, 5*blockSize)) {
			t.Errorf("blocks %v, %v", indexes, err)
		}
		if got := fake.ranges(); got != "bytes=8000-19999" || fake.heads.Load() != 0 {
			t.Errorf("asked for %q and %d HEADs", got, fake.heads.Load())
		}
		if m := s.Metrics(); m.Gets != 1 || m.Bytes != 3*blockSize || m.Discarded != 0 || m.InFlight != 0 || m.Aborted != 0 {
			t.Errorf("metrics %+v", m)
		}
	})
}

func TestS11_RunWithHolesIsOneGETForEachSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		o := fake.put("k", fakeObject{size: 6*blockSize - 1})
		s := fake.store(Options{})
		f := fetch(o, 1, 1)
		f.Run.Want = 0b1111_0000_1101_1001 // blocks 1, 4, 5 and, past the end or not there, more
		st, err := s.Fetch(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		indexes, data, err := readAll(t, st)
		want := append(content("k", 0, blockSize, 2*blockSize), content("k", 0, 4*blockSize, 6*blockSize-1)...)
		if err != nil || fmt.Sprint(indexes) != "[1 4 5]" || !bytes.Equal(data, want) {
			t.Errorf("blocks %v, %v", indexes, err)
		}
		if got := fake.ranges(); got != "bytes=4000-7999 bytes=16000-23998" {
			t.Errorf("asked for %q", got)
		}
	})
}

func TestOS04_TailEmptyAndFirstByte(t *testing.T) {
	const b = blockSize
	for _, size := range []int64{0, 1, b - 1, b, b + 1, 3 * b, 5<<30 + 1} {
		last := uint64(max(size-1, 0) / b)
		for _, run := range []block.Run{
			block.NewRun(0, 1), block.NewRun(0, 3), block.NewRun(0, 16), block.NewRun(last, 1), block.NewRun(last, 5),
			block.NewRun(last+1, 1), block.NewRun(last+100, 16),
		} {
			for _, known := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					fake := newFake(t)
					o := fake.put("k", fakeObject{size: size, version: 7})
					f := fetch(o, 0, 1)
					f.Run = run
					if known {
						f.Meta.Size = size
					}
					data, meta, err := get(t.Context(), t, fake.store(Options{}), f)
					from := min(int64(run.First)*b, size)
					to := min(from+int64(run.Count())*b, size)
					if err != nil || !bytes.Equal(data, content("k", 7, from, to)) {
						t.Errorf("size %d, %v, known %v: %d bytes, %v", size, run, known, len(data), err)
					}
					if meta.Size != size || !known && meta.Version != "v7" {
						t.Errorf("size %d, %v, known %v: meta %+v", size, run, known, meta)
					}
					if gets := fake.gets.Load(); known && from == to && gets != 0 || gets > 1 {
						t.Errorf("size %d, %v, known %v: %d GETs", size, run, known, gets)
					}
				})
			}
		}
	}
}

// Some servers say nothing in a 416, or answer an empty object with 200.
func TestOS04_EmptyObjectOfOtherServers(t *testing.T) {
	for name, fault := range map[string]func(int64, http.ResponseWriter, *http.Request) bool{
		"416 without a size": refuse(http.StatusRequestedRangeNotSatisfiable, "InvalidRange"),
		"200": func(_ int64, w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("ETag", `"v1"`)
			w.Header().Set("Content-Length", "0")
			return true
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFake(t)
			o := fake.put("k", fakeObject{version: 1})
			fake.onGet(fault)
			f := fetch(o, 0, 2)
			f.Meta.Version = block.Immutable
			data, meta, err := get(t.Context(), t, fake.store(Options{}), f)
			if err != nil || len(data) != 0 || meta.Size != 0 || meta.Version != block.Immutable || meta.ETag != "v1" {
				t.Errorf("%s: %d bytes, %+v, %v", name, len(data), meta, err)
			}
		})
	}
}

func TestS14_MetaIsLearnedFromTheFirstReply(t *testing.T) {
	for _, c := range []struct {
		name   string
		object fakeObject
		asked  block.Version
		want   block.Meta
	}{
		{"etag", fakeObject{size: 9, version: 3}, "", block.Meta{Version: "v3", ETag: "v3"}},
		{"no etag", fakeObject{size: 9, version: 3, noETag: true}, "", block.Meta{Version: "9-1700000003000000000"}},
		{"immutable", fakeObject{size: 9, version: 3}, block.Immutable, block.Meta{Version: block.Immutable, ETag: "v3"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFake(t)
			o := fake.put("k", c.object)
			s := fake.store(Options{})
			c.want.Size, c.want.Modified, c.want.ContentType = 9, c.object.modified(), "application/x-test"
			f := fetch(o, 0, 1)
			f.Meta.Version = c.asked
			data, meta, err := get(t.Context(), t, s, f)
			if err != nil || len(data) != 9 || meta != c.want {
				t.Errorf("%s: %+v, %v", c.name, meta, err)
			}
			if fake.heads.Load() != 0 {
				t.Errorf("%s: a HEAD for what the GET tells", c.name)
			}
			// What was learned is a condition from now on, and it holds.
			f.Meta = meta
			if _, _, err := get(t.Context(), t, s, f); err != nil {
				t.Errorf("%s: again: %v", c.name, err)
			}
			if c.asked == block.Immutable {
				c.want.Version = "v3"
			}
			if head, err := s.Head(t.Context(), o); err != nil || head != c.want {
				t.Errorf("%s: head %+v, %v", c.name, head, err)
			}
		})
	}
}

func TestOS05_ChangedObjectIsNeverMixed(t *testing.T) {
	old := fakeObject{size: 3 * blockSize, version: 1}
	for _, c := range []struct {
		name  string
		now   fakeObject
		known block.Version
		// deaf servers don't look at If-Match.
		deaf bool
	}{
		{"same size", fakeObject{size: 3 * blockSize, version: 2}, "v1", false},
		{"same size, server ignores the condition", fakeObject{size: 3 * blockSize, version: 2}, "v1", true},
		{"grown", fakeObject{size: 4 * blockSize, version: 2}, "v1", true},
		{"shrunk", fakeObject{size: blockSize, version: 2}, "v1", true},
		{"emptied", fakeObject{size: 0, version: 2}, "v1", true},
		{"immutable, but was written again", fakeObject{size: 3 * blockSize, version: 2}, block.Immutable, true},
		{"without ETag", fakeObject{size: 3 * blockSize, version: 2, noETag: true}, "12000-1700000001000000000", true},
	} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFake(t)
			o := fake.put("k", c.now)
			fake.onGet(func(_ int64, _ http.ResponseWriter, r *http.Request) bool {
				if c.deaf {
					r.Header.Del("If-Match")
				}
				return false
			})
			s := fake.store(Options{})
			f := fetch(o, 1, 2)
			f.Meta = block.Meta{Size: old.size, Version: c.known, ETag: old.etag()}
			if c.now.noETag {
				f.Meta.ETag = ""
			}
			data, _, err := get(t.Context(), t, s, f)
			if !errors.Is(err, block.ErrChanged) || len(data) != 0 {
				t.Errorf("%s: %d bytes, %v", c.name, len(data), err)
			}
			if fake.gets.Load() != 1 || s.Metrics().Errors[ReasonChanged] != 1 {
				t.Errorf("%s: %d GETs, %+v", c.name, fake.gets.Load(), s.Metrics())
			}
		})
	}
}

// The object is written between two attempts of one GET: the second one must
// not bring the rest of another version.
func TestOS05_ChangedBetweenTwoAttempts(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFake(t)
			o := fake.put("k", fakeObject{size: 2 * blockSize, version: 1})
			fake.onGet(func(n int64, w http.ResponseWriter, r *http.Request) bool {
				if n > 1 {
					if r.Header.Get("If-Match") != `"v1"` {
						t.Errorf("If-Match is %q", r.Header.Get("If-Match"))
					}
					if deaf {
						r.Header.Del("If-Match")
					}
					return false
				}
				w.Header().Set("ETag", `"v1"`)
				partial(w, 0, 2*blockSize, 2*blockSize)
				fake.send(w, r, content("k", 1, 0, blockSize+17))
				fake.put("k", fakeObject{size: 2 * blockSize, version: 2})
				panic(http.ErrAbortHandler)
			})
			data, _, err := get(t.Context(), t, fake.store(Options{}), fetch(o, 0, 2))
			if !errors.Is(err, block.ErrChanged) || !bytes.Equal(data, content("k", 1, 0, blockSize)) {
				t.Errorf("%d bytes, %v", len(data), err)
			}
		})
	}
}

func TestOS07_NothingIsLogged(t *testing.T) {
	fake := newFakeTCP(t)
	o := fake.put("k", fakeObject{size: 20})
	file, err := os.Create(t.TempDir() + "/stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	stderr := os.Stderr
	os.Stderr = file
	defer func() { os.Stderr = stderr }()
	s := fake.store(Options{})
	for range 500 {
		if _, _, err := get(t.Context(), t, s, fetch(o, 0, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(file); err != nil || len(text) != 0 {
		t.Errorf("logged %q, %v", text, err)
	}
}

func TestFetchChecksWhatItIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		o := fake.put("k", fakeObject{size: 5})
		s := fake.store(Options{})
		for name, change := range map[string]func(f *block.Fetch){
			"no block":            func(f *block.Fetch) { f.Run.Want = 0 },
			"no block size":       func(f *block.Fetch) { f.BlockSize = 0 },
			"negative block size": func(f *block.Fetch) { f.BlockSize = -1 },
			"huge block size":     func(f *block.Fetch) { f.BlockSize = 1 << 62 },
			"huge block number":   func(f *block.Fetch) { f.Run.First = 1 << 63 },
			"overflow":            func(f *block.Fetch) { f.BlockSize, f.Run.First = 1<<30, 1<<33 },
		} {
			f := fetch(o, 0, 1)
			change(f)
			if _, _, err := get(t.Context(), t, s, f); !errors.Is(err, block.ErrRange) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if fake.gets.Load() != 0 {
			t.Errorf("%d GETs", fake.gets.Load())
		}
	})
}

// No memory: nothing is asked for that there is no room for, and what has come
// already is good.
func TestBusyBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		o := fake.put("k", fakeObject{size: 3 * blockSize})
		buffers := newBuffers(t, pools.BuffersOptions{BlockSize: blockSize, BudgetBytes: 2 * blockSize})
		s := fake.store(Options{Buffers: buffers})
		var held []*block.Buf
		for range 2 {
			buf, err := buffers.Get(blockSize)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, buf)
		}
		if _, _, err := get(t.Context(), t, s, fetch(o, 0, 1)); !errors.Is(err, block.ErrBusy) || fake.gets.Load() != 0 {
			t.Errorf("%v, %d GETs", err, fake.gets.Load())
		}
		held[0].Release()
		st, err := s.Fetch(t.Context(), fetch(o, 0, 3))
		if err != nil {
			t.Fatal(err)
		}
		p, err := st.Next()
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // an error is the last word
			if _, err := st.Next(); !errors.Is(err, block.ErrBusy) {
				t.Errorf("second block: %v", err)
			}
		}
		if !bytes.Equal(p.Buf.Bytes(), content("k", 0, 0, blockSize)) {
			t.Error("wrong bytes")
		}
		p.Buf.Release()
		held[1].Release()
		if m := s.Metrics(); m.Errors[ReasonBusy] != 2 || m.InFlight != 0 {
			t.Errorf("metrics %+v", m)
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	for _, opts := range []Options{
		{MaxInFlight: -1}, {Attempts: -1}, {IdleTimeout: -1}, {AttemptTimeout: -1}, {AccessKey: "a"}, {SecretKey: "s"},
		{Endpoint: "localhost:9000"}, {Endpoint: "ftp://x"}, {Endpoint: "http://"}, {Endpoint: "http://[::1"},
	} {
		if _, err := New(t.Context(), opts); err == nil || !strings.HasPrefix(err.Error(), "object storage: ") {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}

// Without keys of its own a Store takes those that the SDK finds.
func TestCredentialsOfTheEnvironment(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "from-the-environment")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	fake := newFakeTCP(t)
	o := fake.put("k", fakeObject{size: 5})
	fake.onGet(func(_ int64, _ http.ResponseWriter, r *http.Request) bool {
		if got := r.Header.Get("Authorization"); !strings.Contains(got, "Credential=from-the-environment/") || !strings.Contains(got, "/eu-north-1/s3/") {
			t.Errorf("Authorization is %q", got)
		}
		return false
	})
	s, err := New(t.Context(), Options{Endpoint: fake.endpoint, Region: "eu-north-1", PathStyle: true})
	if err != nil {
		t.Fatal(err)
	}
	if data, _, err := get(t.Context(), t, s, fetch(o, 0, 1)); err != nil || len(data) != 5 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Whatever a reply says of itself, what is taken of it lies in the range that
// was asked for and in the object.
func FuzzReplyHeader(f *testing.F) {
	f.Add(206, int64(4000), "bytes 4000-7999/12000", int64(4000), int64(4000), int64(-1))
	f.Add(206, int64(4000), "bytes 4000-7999/*", int64(0), int64(4000), int64(12000))
	f.Add(206, int64(-1), "bytes 0-9223372036854775806/9223372036854775807", int64(0), int64(10), int64(-1))
	f.Add(200, int64(5), "", int64(0), int64(4000), int64(5))
	f.Fuzz(func(t *testing.T, status int, length int64, contentRange string, from, count, known int64) {
		if from < 0 || count <= 0 || count > 16<<30 || from > 1<<62 || known < -1 {
			return
		}
		w := want{from: from, to: from + count, known: block.Meta{Size: known}}
		meta, to, err := w.check(header{status: status, length: length, contentRange: contentRange})
		if err != nil {
			return
		}
		if to < from || to > w.to || to > meta.Size || to == from && meta.Size != 0 || known >= 0 && meta.Size != known {
			t.Errorf("%+v, status %d, %q, length %d: size %d, bytes up to %d", w, status, contentRange, length, meta.Size, to)
		}
	})
}

func TestReasonsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for r := range Reasons {
		if name := r.String(); name == "" || name == "unknown" || seen[name] {
			t.Errorf("reason %d is called %q", r, name)
		} else {
			seen[name] = true
		}
	}
	if Reasons.String() != "unknown" {
		t.Errorf("no reason is called %q", Reasons)
	}
}
