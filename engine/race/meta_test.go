package race_test

import (
	"io"
	"testing"

	"headstart/engine/block"
	"headstart/engine/race"
)

// of is an object of version v with size bytes.
func of(v block.Version, size int64) block.Meta { return block.Meta{Size: size, Version: v} }

func TestS14_SizeIsLearnedFromEitherLeg(t *testing.T) {
	small := of("v9", 2*blockSize+16) // three blocks
	for _, from := range []block.Source{peerSrc, storeSrc} {
		bubble(t, func(t *testing.T, b *books) {
			peer, store := serves(b, ms(5), ms(1)), serves(b, ms(40), ms(1))
			if from == storeSrc {
				peer = says(b, silent())
			}
			peer.meta, store.meta = small, small
			if from == peerSrc {
				store.meta = block.Meta{Size: block.SizeUnknown}
			}
			out := run(t, t.Context(), block.NewRun(1, 16), block.UnknownMeta(""),
				race.Legs{HeadStart: headStart}, peer, store)
			if out.err != io.EOF || len(out.blocks) != 2 || out.meta != small {
				t.Fatalf("got %v, %v, %+v; want blocks 1 and 2 of an object of three", out.blocks, out.err, out.meta)
			}
			for i, g := range out.blocks {
				if g.index != uint64(i+1) || g.source != from {
					t.Errorf("block %d from %v, want %d from %v", g.index, g.source, i+1, from)
				}
			}
		})
	}
}

func TestS11_ObjectWithoutTheBlocksIsAnAnswer(t *testing.T) {
	for _, c := range []struct {
		name string
		size int64
		run  block.Run
	}{
		{"empty object", 0, block.NewRun(0, 4)},
		{"past the end", 2 * blockSize, block.NewRun(2, 4)},
	} {
		for _, winner := range []race.Winner{race.PeerWon, race.StoreWon} {
			t.Run(c.name, func(t *testing.T) {
				bubble(t, func(t *testing.T, b *books) {
					peer, store := serves(b, ms(5), 0), serves(b, ms(30), 0)
					peer.meta, store.meta = of("v1", c.size), of("v1", c.size)
					if winner == race.StoreWon {
						peer = nil
					}
					out := run(t, t.Context(), c.run, block.UnknownMeta(""), race.Legs{HeadStart: headStart}, peer, store)
					out.want(t, io.EOF)
					if out.meta.Size != c.size || out.stats.Winner != winner {
						t.Errorf("meta %+v, winner %d; want %d bytes from %d", out.meta, out.stats.Winner, c.size, winner)
					}
				})
			})
		}
	}
}

func TestS14_BlocksBeyondTheObjectAreDropped(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		peer := says(b, has(3, ms(1)), has(0, ms(1)))
		peer.meta = of("v1", blockSize)
		out := run(t, t.Context(), block.NewRun(0, 4), block.UnknownMeta(""), race.Legs{HeadStart: headStart}, peer, serves(b, ms(30), 0))
		out.want(t, io.EOF, got{0, peerSrc, ms(2)})
		if out.stats.WastedBytes == 0 {
			t.Error("the block beyond the end was not counted as waste")
		}
	})
}

// TestOS05_VersionsNeverMix: run, in its check of each block, compares its
// version with that of the race.
func TestOS05_VersionsNeverMix(t *testing.T) {
	old, now := of("v1", 4*blockSize), of("v2", 4*blockSize)
	t.Run("store is newer than what the peer began", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			peer, store := says(b, lacks(1, 0), has(0, ms(1)), has(2, ms(50)), has(3, 0)), serves(b, ms(30), 0)
			peer.meta, store.meta = old, now
			out := run(t, t.Context(), block.NewRun(0, 4), block.UnknownMeta(""), race.Legs{HeadStart: headStart}, peer, store)
			out.want(t, block.ErrChanged, got{0, peerSrc, ms(1)}, got{2, peerSrc, ms(51)}, got{3, peerSrc, ms(51)})
		})
	})
	t.Run("peer is older than what the store began", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			peer, store := serves(b, ms(31), 0), serves(b, ms(30), ms(10))
			peer.meta, store.meta = old, now
			out := run(t, t.Context(), block.NewRun(0, 3), block.UnknownMeta(""), race.Legs{}, peer, store)
			out.want(t, io.EOF, got{0, storeSrc, ms(30)}, got{1, storeSrc, ms(40)}, got{2, storeSrc, ms(50)})
		})
	})
	t.Run("a peer that gave nothing does not decide", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			peer, store := says(b, lacks(0, 0), lacks(1, 0)), serves(b, ms(30), 0)
			peer.meta, store.meta = of("v1", blockSize), of("v2", 2*blockSize)
			out := run(t, t.Context(), block.NewRun(0, 2), block.UnknownMeta(""), race.Legs{HeadStart: headStart}, peer, store)
			// The store leg was started for the one block of the peer's version.
			out.want(t, io.EOF, got{0, storeSrc, ms(30)}, got{1, storeSrc, ms(60)})
			if out.meta.Version != "v2" {
				t.Errorf("learned %+v, want the store's word", out.meta)
			}
		})
	})
}

// TestS14_KnownVersionIsACondition: what both legs bring must be of it.
func TestS14_KnownVersionIsACondition(t *testing.T) {
	old, now := of("v1", 4*blockSize), of("v2", 4*blockSize)
	t.Run("store has changed before the peer answers", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			b.lag = ms(60)
			peer, store := says(b, has(0, ms(40)), fails(io.EOF, ms(60))), says(b, has(1, ms(30)), silent())
			peer.meta, store.meta = old, now
			out := run(t, t.Context(), block.NewRun(0, 2), old, race.Legs{}, peer, store)
			out.want(t, block.ErrChanged, got{0, peerSrc, ms(60)})
			if len(store.opened) != 1 {
				t.Errorf("a store that has another version was asked %d times", len(store.opened))
			}
		})
	})
	t.Run("a known version is a condition on both", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			peer, store := serves(b, ms(5), 0), serves(b, ms(30), 0)
			peer.meta, store.meta = now, now
			out := run(t, t.Context(), block.NewRun(0, 2), old, race.Legs{HeadStart: headStart}, peer, store)
			out.want(t, block.ErrChanged)
			if out.stats.Winner != race.BothFailed || len(store.opened) != 1 || out.stats.PeerErr != block.ErrChanged {
				t.Errorf("stats %+v after %d store legs", out.stats, len(store.opened))
			}
		})
	})
	t.Run("a stream that changes under way", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			changed := has(1, ms(1))
			changed.meta = &now
			peer, store := says(b, has(0, ms(1)), changed), serves(b, ms(30), 0)
			peer.meta, store.meta = old, old
			out := run(t, t.Context(), block.NewRun(0, 2), block.UnknownMeta(""), race.Legs{HeadStart: headStart}, peer, store)
			out.want(t, io.EOF, got{0, peerSrc, ms(1)}, got{1, storeSrc, ms(32)})
		})
	})
	t.Run("an immutable file has one version under two names", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			peer, store := says(b, has(0, ms(1))), serves(b, ms(30), 0)
			peer.meta = of(block.Immutable, 4*blockSize)
			store.meta = of("an-etag", 4*blockSize)
			out := run(t, t.Context(), block.NewRun(0, 2), of(block.Immutable, 4*blockSize), race.Legs{HeadStart: headStart}, peer, store)
			out.want(t, io.EOF, got{0, peerSrc, ms(1)}, got{1, storeSrc, ms(31)})
		})
	})
}

// The length of a block follows from the size of the object. A leg that brings
// another one is as good as one that lacks it.
func TestS13_BlocksOfAnotherLengthAreNotTaken(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		peer, store := says(b, has(15, ms(5))), serves(b, ms(40), ms(1))
		peer.meta = block.Meta{Size: block.SizeUnknown}
		out := run(t, t.Context(), block.NewRun(15, 1), known(), race.Legs{HeadStart: headStart}, peer, store)
		if out.err != io.EOF || len(out.blocks) != 1 || out.blocks[0].source != storeSrc {
			t.Errorf("got %v, %v; the peer's block 15 is too long", out.blocks, out.err)
		}
		if out.at != ms(45) || out.stats.WastedBytes != blockSize {
			t.Errorf("after %v with %d bytes wasted", out.at, out.stats.WastedBytes)
		}
	})
}
