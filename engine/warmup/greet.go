package warmup

import (
	"context"
	"sync"
	"time"

	"headstart/engine/block"
	"headstart/shards/placement"
)

// greetTimeout bounds how long sources may take to answer a greeting: the FE
// waits for it, and a source that is silent is a suspect for readers as well.
const greetTimeout = 500 * time.Millisecond

// greet calls the sources of batches of balance that nobody has vouched for, all
// at the same time: a connection to each is there before the first reader needs
// it, and readers know that they answer.
func (s *Service) greet(ctx context.Context, batches []placement.WarmBatch) {
	if s.Peers == nil {
		return
	}
	strangers := make(map[block.Addr]bool)
	for i := range batches {
		for _, g := range batches[i].Groups {
			for _, source := range g.Sources {
				if batches[i].Balance && !s.Engine.Breakers.Vouched(source.Addr) {
					strangers[source.Addr] = true
				}
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	var all sync.WaitGroup
	for addr := range strangers {
		all.Go(func() { // ends with ctx
			if _, err := s.Peers.Hot(ctx, addr, nil); err == nil {
				s.Engine.Breakers.Vouch(addr)
			}
		})
	}
	all.Wait()
}
