package s3

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// overwritten is an object that a writer replaces while readers read it.
type overwritten struct {
	w        *world
	key      string
	versions int
	whole    atomic.Int64
	cut      atomic.Int64
	busy     atomic.Int64
	// latest is the last version whose write was answered.
	latest atomic.Int64
}

// overBlock is the block size of that object, which has a bit more than three.
const overBlock = 16 << 10

// sizeOf makes one version as long as the next one, and others not.
func sizeOf(version int) int64 { return 3*overBlock + int64(version/2%3)*1000 }

// read reads a range and checks that it is of one version, whole.
func (o *overwritten) read(r *rand.Rand) {
	from := r.Int64N(3 * overBlock)
	to := from + 1 + r.Int64N(3*overBlock-from)
	req, err := http.NewRequest("GET", "http://"+o.w.addr+"/"+testBucket+"/"+o.key, nil)
	must(o.w.t, err)
	part := r.IntN(3) > 0
	if part {
		req.Header.Set("Range", rangeOf(from, to))
	}
	after := o.latest.Load()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		o.cut.Add(1)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode == 503:
		o.busy.Add(1)
		return
	case resp.StatusCode/100 != 2:
		o.w.t.Errorf("status %d: %s", resp.StatusCode, head(body))
		return
	case err != nil:
		o.cut.Add(1)
		return
	}
	if !part {
		from = 0
	}
	first := int((16 - from%16) % 16)
	if len(body) < first+16 {
		return // too short to tell
	}
	version := int(binary.BigEndian.Uint32(body[first+4:]))
	if !part {
		to = sizeOf(version)
	}
	if want := content(o.key, version, sizeOf(version))[from:to]; !bytes.Equal(body, want) {
		o.w.t.Errorf("bytes %d to %d of version %d: %d of them, not the version's", from, to, version, len(body))
	}
	if etag := resp.Header.Get("ETag"); etag == "" || !part && resp.ContentLength != to {
		o.w.t.Errorf("ETag %q, length %d of version %d", etag, resp.ContentLength, version)
	}
	if int64(version) < after && o.w.settings.RevalidateMS.Load() == 0 {
		o.w.t.Errorf("version %d was read after version %d was written", version, after)
	}
	o.whole.Add(1)
}

// run overwrites the object, now through the front and now past it, while 32
// readers read.
func (o *overwritten) run(past int) {
	t, c := o.w.t, o.w.sdk(adminID, adminKey)
	o.w.put(o.key, content(o.key, 0, sizeOf(0)))
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for i := range 32 {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		readers.Go(func() { // ends with stop
			for {
				select {
				case <-stop:
					return
				default:
					o.read(r)
				}
			}
		})
	}
	for v := 1; v <= o.versions; v++ {
		data := content(o.key, v, sizeOf(v))
		if past > 0 && v%past == 0 {
			o.w.put(o.key, data)
		} else {
			_, err := c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String(testBucket), Key: aws.String(o.key), Body: bytes.NewReader(data)})
			must(t, err)
		}
		o.latest.Store(int64(v))
	}
	close(stop)
	readers.Wait()
	t.Logf("%d versions: %d answers whole, %d cut, %d told to come back", o.versions, o.whole.Load(), o.cut.Load(), o.busy.Load())
	if o.whole.Load() < int64(o.versions)/2 {
		t.Errorf("only %d answers were whole", o.whole.Load())
	}
}

// TestS14OS05_OverwrittenObjectIsNeverMixed: 32 readers of an object that is
// overwritten a thousand times get one version, whole, or an answer that is cut.
func TestS14OS05_OverwrittenObjectIsNeverMixed(t *testing.T) {
	versions := 1000
	if testing.Short() {
		versions = 100
	}
	for _, c := range []struct {
		revalidate int64
		past       int
	}{{0, 2}, {1000, 0}, {1000, 2}, {-1, 0}} {
		t.Run(fmt.Sprintf("revalidate %d, one in %d past the front", c.revalidate, c.past), func(t *testing.T) {
			w := newWorld(t, options{blockSize: overBlock})
			w.settings.RevalidateMS.Store(c.revalidate)
			o := &overwritten{w: w, key: "k", versions: versions / 4}
			o.run(c.past)
			if c.past == 0 {
				w.get("k", "", content("k", o.versions, sizeOf(o.versions)))
			}
		})
	}
}

// TestS14OS05_AnswerUnderWayIsCut: an object that changes when its first blocks are
// out leaves the client with less than was announced, and never with a mix.
func TestS14OS05_AnswerUnderWayIsCut(t *testing.T) {
	w := newWorld(t, options{})
	w.settings.ReadaheadBlocks.Store(1)
	const blocks = 300
	w.put("k", content("k", 1, blocks*testBlock))
	resp, err := http.Get("http://" + w.addr + "/data/k")
	must(t, err)
	defer resp.Body.Close()
	first := make([]byte, testBlock)
	_, err = io.ReadFull(resp.Body, first)
	must(t, err)
	w.put("k", content("k", 2, blocks*testBlock))
	rest, err := io.ReadAll(resp.Body)
	got := append(first, rest...)
	if err == nil || !strings.Contains(err.Error(), "EOF") || len(got) >= blocks*testBlock {
		t.Errorf("%d bytes, %v: want an answer that is cut", len(got), err)
	}
	if !bytes.Equal(got, content("k", 1, blocks*testBlock)[:len(got)]) {
		t.Error("the bytes before the cut are not those of one version")
	}
	w.drained()
	w.settings.RevalidateMS.Store(0)
	w.get("k", "bytes=0-99", content("k", 2, 100))
	if w.Metrics().Cut != 1 {
		t.Errorf("%d answers were cut", w.Metrics().Cut)
	}
}
