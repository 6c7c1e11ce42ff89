package block

import (
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"math"
	"strings"
	"testing"
	"time"
)

func TestParsePath(t *testing.T) {
	for _, c := range []struct {
		path, bucket string
		want         Object
	}{
		{"s3://data/a/b.parquet", "", Object{"s3", "data", "a/b.parquet"}},
		{"s3://data/a", "other", Object{"s3", "data", "a"}},
		{"s3a://data/a", "", Object{"s3", "data", "a"}},
		{"S3N://data/a", "", Object{"s3", "data", "a"}},
		{"logs/x://y", "data", Object{"s3", "data", "logs/x://y"}},
		{"s3://data//a", "", Object{"s3", "data", "/a"}},
		{"s3://data/a b/ü?x=1#y", "", Object{"s3", "data", "a b/ü?x=1#y"}},
		{"a/b", "data", Object{"s3", "data", "a/b"}},
		{"/a/b", "data", Object{"s3", "data", "a/b"}},
		{"s3://data/x://y", "", Object{"s3", "data", "x://y"}},
	} {
		got, err := ParsePath(c.path, c.bucket)
		if err != nil || got != c.want {
			t.Errorf("ParsePath(%q, %q) = %+v, %v; want %+v", c.path, c.bucket, got, err, c.want)
		}
	}
	for _, c := range []struct{ path, bucket string }{
		{"", ""}, {"", "data"}, {"/", "data"}, {"a/b", ""}, {"s3://", "data"}, {"s3://data", "data"},
		{"s3://data/", "data"}, {"s3:///a", "data"}, {"://data/a", "data"},
		{"hdfs://data/a", "data"}, {"cold://data/a", "data"}, {"s3b://data/a", ""}, {"http://host/a", "data"}, {"s3+x://data/a", ""},
	} {
		if o, err := ParsePath(c.path, c.bucket); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", c.path)) {
			t.Errorf("ParsePath(%q, %q) = %+v, %v; want an error that names the path", c.path, c.bucket, o, err)
		}
	}
}

// FuzzParsePath: what is read from a path is written as a path that reads the same.
func FuzzParsePath(f *testing.F) {
	f.Add("s3://data/a", "")
	f.Add("/a://b/c", "data")
	f.Add("x:://b//c", "d://e")
	f.Fuzz(func(t *testing.T, path, bucket string) {
		o, err := ParsePath(path, bucket)
		if err != nil {
			return
		}
		if again, err := ParsePath(o.String(), "other"); err != nil || again != o {
			t.Errorf("%q is %+v, which reads as %+v, %v", path, o, again, err)
		}
		if o.Store == "" || o.Bucket == "" || o.Key == "" {
			t.Errorf("%q is %+v", path, o)
		}
	})
}

func TestS14_BaseIDDependsOnEveryPart(t *testing.T) {
	seen := map[ID]string{}
	for _, c := range []struct {
		o Object
		v Version
	}{
		{Object{"s3", "data", "key"}, "v"}, {Object{"s4", "data", "key"}, "v"}, {Object{"s3", "data2", "key"}, "v"},
		{Object{"s3", "data", "key2"}, "v"}, {Object{"s3", "data", "key"}, "v2"}, {Object{"s3", "data", "keyv"}, ""},
		{Object{"s3", "dat", "akey"}, "v"}, {Object{"s3d", "ata", "key"}, "v"}, {Object{"s3", "", "datakey"}, "v"},
		{Object{"s3", "data", "key"}, Immutable}, {Object{"s3", "data", strings.Repeat("k", 2000)}, "v"},
		{Object{"s3", "data", strings.Repeat("k", 1999)}, "v"},
	} {
		id := BaseID(c.o, c.v)
		if other, taken := seen[id]; taken || id.Index != 0 {
			t.Errorf("%v version %q has the id of %s", c.o, c.v, other)
		}
		seen[id] = c.o.String()
	}
}

func TestLC29_KeysThatShareAShortHash(t *testing.T) {
	fnv32 := func(key string) uint32 {
		h := fnv.New32a()
		h.Write([]byte(key))
		return h.Sum32()
	}
	crc := func(key string) uint32 { return crc32.ChecksumIEEE([]byte(key)) }
	for _, c := range []struct {
		short func(string) uint32
		a, b  string
	}{
		{fnv32, "costarring", "liquid"}, {fnv32, "declinate", "macallums"}, {crc, "plumless", "buckeroo"},
	} {
		if c.short(c.a) != c.short(c.b) {
			t.Fatalf("%s and %s do not share a hash", c.a, c.b)
		}
		a := BaseID(Object{DefaultStore, "data", c.a}, "v")
		b := BaseID(Object{DefaultStore, "data", c.b}, "v")
		if a.Hi == b.Hi || a.Lo == b.Lo || a.Hi == a.Lo {
			t.Errorf("%s and %s have ids of too few bits: %v, %v", c.a, c.b, a, b)
		}
	}
}

func TestLC29_BaseIDSpreads(t *testing.T) {
	const objects = 1 << 14
	var ones [128]int
	for i := range objects {
		id := BaseID(Object{DefaultStore, "data", fmt.Sprintf("part-%05d.parquet", i)}, "v")
		for bit := range 64 {
			ones[bit] += int(id.Hi >> bit & 1)
			ones[64+bit] += int(id.Lo >> bit & 1)
		}
	}
	for bit, n := range ones { // 8 standard deviations
		if math.Abs(float64(n)-objects/2) > 8*math.Sqrt(objects)/2 {
			t.Errorf("bit %d is set in %d of %d ids", bit, n, objects)
		}
	}
}

func TestLC29_BlocksOfOneObjectAreApart(t *testing.T) {
	base := BaseID(Object{DefaultStore, "data", "key"}, "v")
	seen := map[ID]bool{}
	for _, index := range []uint64{0, 1, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<32 + 1, 1 << 43} {
		id := base.At(index)
		if seen[id] || id.Index != index || id.At(0) != base {
			t.Errorf("block %d has the id of another", index)
		}
		seen[id] = true
	}
}

func TestS18_RoutesOfTwoKindsAreApart(t *testing.T) {
	for _, id := range []int64{0, 1, 1 << 31, 1 << 32, math.MaxInt64 - 1, math.MaxInt64} {
		r := TabletRoute(id)
		if r.Kind != RouteTablet || r.ID != uint64(id) || r.String() != fmt.Sprintf("tablet %d", id) {
			t.Errorf("tablet %d has the route %v", id, r)
		}
		if (Route{Kind: RouteExternal, ID: r.ID}) == r {
			t.Errorf("%v is an external route too", r)
		}
	}
	o := Object{DefaultStore, "data", "key"}
	a, b := ExternalRoute(o), ExternalRoute(Object{"s4", "data", "key"})
	if a.Kind != RouteExternal || a == b || a != ExternalRoute(o) {
		t.Errorf("routes %v and %v", a, b)
	}
	if a.ID == BaseID(o, "").Hi {
		t.Error("a route must not tell the id of the object's blocks")
	}
}

func TestS14_Versions(t *testing.T) {
	when := time.Unix(1000, 5)
	if v := VersionOf("abc", 7, when); v != "abc" {
		t.Errorf("version %q of an object with an ETag", v)
	}
	without := VersionOf("", 7, when)
	if without == VersionOf("", 8, when) || without == VersionOf("", 7, when.Add(1)) || without != VersionOf("", 7, when) {
		t.Error("without an ETag, size and time of change make the version")
	}
	for _, c := range []struct {
		meta Meta
		want bool
	}{
		{UnknownMeta(""), false}, {UnknownMeta(Immutable), false}, {Meta{Size: 0, Version: "v"}, true},
		{Meta{Size: 7}, false}, {Meta{Size: 7, Version: Immutable}, true},
	} {
		if c.meta.Known() != c.want {
			t.Errorf("%+v known: %v", c.meta, !c.want)
		}
	}
}

func TestAddrString(t *testing.T) {
	for addr, want := range map[Addr]string{
		{"10.0.0.1", 8060}: "10.0.0.1:8060", {"::1", 1}: "[::1]:1", {"be-1", 65535}: "be-1:65535",
	} {
		if addr.String() != want {
			t.Errorf("%q, want %q", addr.String(), want)
		}
	}
}
