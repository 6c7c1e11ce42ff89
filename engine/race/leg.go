package race

import (
	"context"

	"headstart/engine/block"
)

type legID uint8

const (
	peerLeg legID = iota
	storeLeg
)

func (l legID) source() block.Source {
	if l == peerLeg {
		return block.SourcePeer
	}
	return block.SourceStore
}

// event is one word of a leg to the race: a piece, or its end.
type event struct {
	leg   legID
	piece block.Piece
	meta  block.Meta
	err   error
	ended bool
}

// leg is the race's side of one leg.
//
//	new ── start ──▶ running ── stop ──▶ stopped ──┐
//	                    └────────── end ───────────┴──▶ ended
//
// A leg starts again once at most: the other one does not stop it then.
type leg struct {
	cancel context.CancelFunc
	// stopped: the race has given the leg up; what it still says is spare.
	started, stopped, ended, last bool
	err                           error
	// asked are the blocks of the run that the leg was started for, lacks those
	// of them that it has said it will not bring.
	asked, lacks uint16
}

// idle reports that nothing more can come from the leg.
func (l *leg) idle() bool { return !l.started || l.ended }

// brings returns the blocks that the leg has not given up.
func (l *leg) brings() uint16 {
	if l.idle() || l.stopped {
		return 0
	}
	return l.asked &^ l.lacks
}

// stop gives a leg up, for err.
func (l *leg) stop(err error) {
	if l.idle() || l.stopped {
		return
	}
	l.stopped, l.err = true, err
	l.cancel()
}

// mayStart tells whether the leg can be asked for need. A leg that has failed
// at something has failed; but one that we have stopped, because the other one
// had answered, or that was never asked for these blocks, is asked once more.
func (l *leg) mayStart(need uint16) bool {
	if !l.started {
		return true
	}
	clean := l.err == nil || l.err == errStopped
	return l.ended && !l.last && clean && (l.stopped || need&^l.asked != 0)
}
