package placement

import (
	"context"
	"time"
)

// The intervals of Run.
const (
	judgeEvery  = time.Second
	saveEvery   = 5 * time.Second
	expireEvery = time.Hour
	// lastSave bounds the save when Run ends.
	lastSave = 5 * time.Second
)

// Run notices who falls silent, keeps the tablets that have become known, and
// forgets those that nobody asks for, until ctx ends. A Directory that is not
// run answers all the same.
func (d *Directory) Run(ctx context.Context) {
	ticker := time.NewTicker(judgeEvery)
	defer ticker.Stop()
	saved, expired := time.Now(), time.Time{}
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSave)
			d.saveTablets(last)
			cancel()
			return
		case now := <-ticker.C:
			d.mu.Lock()
			d.judgeLocked(now)
			d.mu.Unlock()
			if now.Sub(expired) >= expireEvery {
				expired = now
				d.tablets.expire(day(now) - uint16(min(d.options.TabletExpiryDays, int(day(now)))))
			}
			if now.Sub(saved) >= saveEvery {
				saved = now
				d.saveTablets(ctx)
			}
		}
	}
}

// saveTablets tells the store of tablets that have become known.
func (d *Directory) saveTablets(ctx context.Context) {
	buckets := d.tablets.unsaved()
	if len(buckets) == 0 {
		return
	}
	d.change.Lock()
	defer d.change.Unlock()
	if d.saveLocked(ctx, Change{Tablets: buckets}) != nil {
		d.tablets.saveAgain(buckets)
	}
}
