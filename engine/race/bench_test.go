package race_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"headstart/bench/latency"
	"headstart/engine/block"
	"headstart/engine/race"
)

// instant has all blocks of a run at once.
type instant struct {
	run  block.Run
	buf  *block.Buf
	next uint64
}

func (s *instant) Next() (block.Piece, error) {
	for ; s.next < block.MaxRun; s.next++ {
		if index := s.run.First + s.next; s.run.Has(index) {
			s.next++
			return block.Piece{Index: index, Status: block.StatusData, Buf: s.buf.Retain()}, nil
		}
	}
	return block.Piece{}, io.EOF
}

func (s *instant) Meta() block.Meta { return block.Meta{Size: 16 * blockSize, Version: "v1"} }

func (s *instant) Close() {}

// BenchmarkRace is what a race costs beside what its legs do: the peer has the
// blocks at once, and object storage is not asked.
func BenchmarkRace(b *testing.B) {
	buf := block.NewBuf(make([]byte, blockSize), nil)
	buf.Seal()
	legs := race.Legs{
		Peer:  func(_ context.Context, run block.Run) (block.Stream, error) { return &instant{run: run, buf: buf}, nil },
		Store: func(context.Context, block.Run) (block.Stream, error) { return nil, errors.New("asked the store") },
		// Nobody's head start is over in this benchmark, however slow the machine.
		HeadStart: time.Hour, BlockSize: blockSize,
	}
	for name, run := range map[string]block.Run{"one block": block.NewRun(0, 1), "sixteen blocks": block.NewRun(0, 16)} {
		b.Run(name, func(b *testing.B) {
			took := latency.New()
			b.ReportAllocs()
			for b.Loop() {
				began := time.Now()
				r := race.Start(context.Background(), run, (&instant{}).Meta(), legs)
				pieces := 0
				for {
					p, _, err := r.Next()
					if err != nil {
						break
					}
					p.Buf.Release()
					pieces++
				}
				if s := r.Wait(); s.Winner != race.PeerWon || pieces != run.Count() {
					b.Fatalf("%d pieces, %+v", pieces, s)
				}
				took.Add(time.Since(began))
			}
			took.ReportTo(b)
		})
	}
}
