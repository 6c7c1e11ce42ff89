package shards

import (
	"sync/atomic"
	"time"
)

// races ejects a peer that loses most of its races (S37). One word:
//
//	level (4 bits) | races (8) | won (8) | ejected until, Unix ms (44)
//
// Races are judged in rounds. A round with fewer wins than losses ejects the
// peer: for ejectFor at first, twice as long each time. When that is over the
// peer is back on trial, in short rounds, until as many good rounds have gone
// by as bad ones before.
type races struct{ word atomic.Uint64 }

const (
	raceRound  = 16
	trialRound = 4
	ejectFor   = 10 * time.Second
	maxLevel   = 6
)

// raceWord is the word taken apart.
type raceWord struct{ level, races, won, untilMS int64 }

const (
	untilBits = 44
	untilMask = 1<<untilBits - 1
)

func (w raceWord) pack() uint64 {
	return uint64(w.level)<<60 | uint64(w.races)<<52 | uint64(w.won)<<untilBits | uint64(w.untilMS)&untilMask
}

func unpackRaces(w uint64) raceWord {
	return raceWord{
		level: int64(w >> 60), races: int64(w >> 52 & 0xff),
		won: int64(w >> untilBits & 0xff), untilMS: int64(w & untilMask),
	}
}

// note adds a race. When that ejects the peer it returns until when, else 0.
// Races that end while the peer is ejected began before, or were a last
// resort: they don't count.
func (r *races) note(won bool, now int64) int64 {
	for {
		old := r.word.Load()
		w := unpackRaces(old)
		if now < w.untilMS {
			return 0
		}
		w.races++
		if won {
			w.won++
		}
		ejects := w.judge(now)
		if !r.word.CompareAndSwap(old, w.pack()) {
			continue
		}
		if ejects {
			return w.untilMS
		}
		return 0
	}
}

// judge closes a round that is complete and reports whether it ejects.
func (w *raceWord) judge(now int64) bool {
	round := int64(raceRound)
	if w.level > 0 {
		round = trialRound
	}
	if w.races < round {
		return false
	}
	lost := 2*w.won < w.races
	w.races, w.won, w.untilMS = 0, 0, 0
	if !lost {
		w.level = max(0, w.level-1)
		return false
	}
	w.untilMS = now + ejectFor.Milliseconds()<<w.level
	w.level = min(w.level+1, maxLevel)
	return true
}

// ejectedUntilMS is 0 when the peer is not ejected.
func (r *races) ejectedUntilMS(now int64) int64 {
	if until := unpackRaces(r.word.Load()).untilMS; now < until {
		return until
	}
	return 0
}

func (r *races) forget() { r.word.Store(0) }
