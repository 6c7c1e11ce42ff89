package profile

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"headstart/engine/block"
)

// maxNodes bounds the peers that one query lists: more than a cluster has.
const maxNodes = 4096

// Query is the counters of one query. All methods may be called at the same
// time, and on nil.
type Query struct {
	id string
	// used is set by whoever looks the query up and cleared by the hand of the
	// ring.
	used atomic.Bool

	kinds            [kinds]kindCounters
	groups           [2]peerCounters // of the other groups, of the own group
	storeBytes       atomic.Int64
	storeTime        atomic.Int64
	peerWins, s3Wins atomic.Int64
	lazyFetches      atomic.Int64
	lazyFetchTime    atomic.Int64
	// nodes is replaced by compare and swap, never changed: a reader may keep it.
	nodes atomic.Pointer[[]block.Addr]
}

// The kinds that have counters of their own.
const (
	data = iota
	invertedIndex
	segmentFooter
	kinds
)

// kindCounters are those of one kind of data.
type kindCounters struct {
	local                 Tally
	store, peer, peerTime atomic.Int64
}

// peerCounters are those of one side of the border of the compute group.
type peerCounters struct{ reads, bytes, time atomic.Int64 }

// kind returns the counters of a kind: footers and internal indexes share theirs.
func (q *Query) kind(k block.Kind) *kindCounters {
	switch k {
	case block.KindInvertedIndex:
		return &q.kinds[invertedIndex]
	case block.KindSegmentFooter, block.KindInternalIndex:
		return &q.kinds[segmentFooter]
	}
	return &q.kinds[data]
}

// AddLocal counts blocks from the own File Cache.
func (q *Query) AddLocal(k block.Kind, blocks, bytes int64) {
	if q != nil {
		q.kind(k).local.Add(0, blocks, bytes)
	}
}

// AddPeer counts a block that the peer at addr gave, and how long it took.
// Only bytes that this read has moved count: a reader that joined the flight of
// another one passes 0.
func (q *Query) AddPeer(k block.Kind, sameGroup bool, addr block.Addr, bytes int64, took time.Duration) {
	if q == nil {
		return
	}
	c := q.kind(k)
	c.peer.Add(1)
	c.peerTime.Add(int64(took))
	g := &q.groups[0]
	if sameGroup {
		g = &q.groups[1]
	}
	g.reads.Add(1)
	g.bytes.Add(bytes)
	g.time.Add(int64(took))
	q.addNode(addr)
}

// AddStore counts a block from object storage; bytes as for AddPeer.
func (q *Query) AddStore(k block.Kind, bytes int64, took time.Duration) {
	if q == nil {
		return
	}
	q.kind(k).store.Add(1)
	q.storeBytes.Add(bytes)
	q.storeTime.Add(int64(took))
}

// AddRace counts a race that one of the legs has won.
func (q *Query) AddRace(peerWon bool) {
	switch {
	case q == nil:
	case peerWon:
		q.peerWins.Add(1)
	default:
		q.s3Wins.Add(1)
	}
}

// AddLazyFetch counts a read that found no candidates.
func (q *Query) AddLazyFetch() {
	if q != nil {
		q.lazyFetches.Add(1)
	}
}

// AddLazyFetchTime adds the time of a look-up that the query has started, when
// it ends.
func (q *Query) AddLazyFetchTime(took time.Duration) {
	if q != nil {
		q.lazyFetchTime.Add(int64(took))
	}
}

// addNode adds a peer that is not listed yet. Who loses the swap looks again.
func (q *Query) addNode(addr block.Addr) {
	for {
		old := q.nodes.Load()
		var listed []block.Addr
		if old != nil {
			listed = *old
		}
		if slices.Contains(listed, addr) || len(listed) == maxNodes {
			return
		}
		next := append(slices.Clone(listed), addr)
		if q.nodes.CompareAndSwap(old, &next) {
			return
		}
	}
}

// Counters is a snapshot. The fields are the reference's counters, by its
// names, in the order of the text form; in JSON times are nanoseconds.
type Counters struct {
	NumLocalIOTotal                    int64
	NumRemoteIOTotal                   int64
	NumPeerIOTotal                     int64
	BytesScannedFromCache              Bytes
	BytesScannedFromRemote             Bytes
	BytesScannedFromPeer               Bytes
	RemoteIOUseTimer                   time.Duration
	PeerIOUseTimer                     time.Duration
	SameCGPeerIOTotal                  int64
	SameCGPeerBytesRead                Bytes
	SameCGPeerIOTime                   time.Duration
	CrossCGPeerIOTotal                 int64
	CrossCGPeerBytesRead               Bytes
	CrossCGPeerIOTime                  time.Duration
	PeerRaceWin                        int64
	S3RaceWin                          int64
	PeerLazyFetch                      int64
	PeerLazyFetchTime                  time.Duration
	PeerCacheNodes                     []string
	InvertedIndexNumLocalIOTotal       int64
	InvertedIndexNumRemoteIOTotal      int64
	InvertedIndexNumPeerIOTotal        int64
	InvertedIndexPeerIOUseTimer        time.Duration
	SegmentFooterIndexNumLocalIOTotal  int64
	SegmentFooterIndexNumRemoteIOTotal int64
	SegmentFooterIndexNumPeerIOTotal   int64
	SegmentFooterIndexPeerIOUseTimer   time.Duration
}

// Counters returns what has been counted so far. Totals are sums of their
// parts, so that they always agree.
func (q *Query) Counters() Counters {
	c := Counters{PeerCacheNodes: []string{}}
	if q == nil {
		return c
	}
	var local [kinds]Sums
	for i := range q.kinds {
		local[i] = q.kinds[i].local.Sums()
		c.NumLocalIOTotal += local[i].Blocks
		c.BytesScannedFromCache += Bytes(local[i].Bytes)
		c.NumRemoteIOTotal += q.kinds[i].store.Load()
	}
	c.BytesScannedFromRemote = Bytes(q.storeBytes.Load())
	c.RemoteIOUseTimer = time.Duration(q.storeTime.Load())

	cross, same := &q.groups[0], &q.groups[1]
	c.SameCGPeerIOTotal, c.CrossCGPeerIOTotal = same.reads.Load(), cross.reads.Load()
	c.SameCGPeerBytesRead, c.CrossCGPeerBytesRead = Bytes(same.bytes.Load()), Bytes(cross.bytes.Load())
	c.SameCGPeerIOTime, c.CrossCGPeerIOTime = time.Duration(same.time.Load()), time.Duration(cross.time.Load())
	c.NumPeerIOTotal = c.SameCGPeerIOTotal + c.CrossCGPeerIOTotal
	c.BytesScannedFromPeer = c.SameCGPeerBytesRead + c.CrossCGPeerBytesRead
	c.PeerIOUseTimer = c.SameCGPeerIOTime + c.CrossCGPeerIOTime

	c.PeerRaceWin, c.S3RaceWin = q.peerWins.Load(), q.s3Wins.Load()
	c.PeerLazyFetch, c.PeerLazyFetchTime = q.lazyFetches.Load(), time.Duration(q.lazyFetchTime.Load())
	if nodes := q.nodes.Load(); nodes != nil {
		for _, addr := range *nodes {
			c.PeerCacheNodes = append(c.PeerCacheNodes, addr.String())
		}
	}
	slices.SortFunc(c.PeerCacheNodes, strings.Compare)

	inverted, footer := &q.kinds[invertedIndex], &q.kinds[segmentFooter]
	c.InvertedIndexNumLocalIOTotal = local[invertedIndex].Blocks
	c.InvertedIndexNumRemoteIOTotal = inverted.store.Load()
	c.InvertedIndexNumPeerIOTotal = inverted.peer.Load()
	c.InvertedIndexPeerIOUseTimer = time.Duration(inverted.peerTime.Load())
	c.SegmentFooterIndexNumLocalIOTotal = local[segmentFooter].Blocks
	c.SegmentFooterIndexNumRemoteIOTotal = footer.store.Load()
	c.SegmentFooterIndexNumPeerIOTotal = footer.peer.Load()
	c.SegmentFooterIndexPeerIOUseTimer = time.Duration(footer.peerTime.Load())
	return c
}
