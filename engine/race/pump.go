package race

import (
	"context"
	"fmt"
	"io"

	"headstart/engine/block"
)

// pump reads one leg's stream to its end and passes all of it on. It never
// blocks: events has room for all that a leg can send.
func pump(ctx context.Context, id legID, open Open, run block.Run, events chan<- event) {
	events <- event{leg: id, err: relay(ctx, id, open, run, events), ended: true}
}

// relay returns nil when the stream has ended by itself. A panic of a leg is
// that leg's error: it must not take the other one with it.
func relay(ctx context.Context, id legID, open Open, run block.Run, events chan<- event) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w in the %s leg: %v", ErrPanic, id.source(), p)
		}
	}()
	stream, err := open(ctx, run)
	if err != nil {
		return err
	}
	defer stream.Close()
	filling, failed := false, false
	for sent := run; ; {
		piece, err := stream.Next()
		if err == io.EOF {
			if sent == run { // nothing came: the metadata may still tell why
				events <- event{leg: id, meta: stream.Meta(), piece: block.Piece{Index: run.First, Status: block.StatusNotFound}}
			}
			return nil
		}
		if err != nil {
			return err
		}
		if ended := piece.Status == block.StatusFillTimeout; ended || piece.Status == block.StatusFilling {
			if ended == filling && !failed { // said once, and no answer on a block yet
				filling, failed = !ended, ended
				events <- event{leg: id, piece: piece, meta: stream.Meta()}
			}
			continue
		}
		if !sent.Has(piece.Index) || (piece.Status == block.StatusData) != (piece.Buf != nil) {
			if piece.Buf != nil {
				piece.Buf.Release()
			}
			return fmt.Errorf("%s leg: block %d was not asked for, came twice or without its bytes", id.source(), piece.Index)
		}
		sent = sent.Without(piece.Index)
		events <- event{leg: id, piece: piece, meta: stream.Meta()}
	}
}
