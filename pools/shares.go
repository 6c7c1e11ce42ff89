package pools

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// Shares bounds how much of one thing is used at a time, as Tokens does, and by
// whom. While several want it, none of them gets more than its part of the
// whole: what one has beyond that comes back as its work ends, and goes to the
// others. Who asks alone may have it all, up to what SetLimitEach says. It
// never waits.
type Shares struct {
	mu struct {
		sync.Mutex
		limit, each, inUse int64
		// users are those who hold something or have lately been refused.
		users map[string]*user
		// cleared is when users were last looked through.
		cleared time.Time
		refused uint64
	}
}

// user is one requester.
type user struct {
	holds int64
	// wanted is when it was last refused.
	wanted time.Time
}

// keen is how long somebody who was refused counts as wanting more.
const keen = time.Second

// NewShares returns shares of limit things.
func NewShares(limit int) *Shares {
	s := &Shares{}
	s.mu.limit, s.mu.each = int64(limit), math.MaxInt64
	s.mu.users = make(map[string]*user)
	return s
}

// SetLimit changes how much there is.
func (s *Shares) SetLimit(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.limit = int64(limit)
}

// SetLimitEach changes how much one may have, whoever else wants it; 0 means
// that only the limit for all holds. One who has nothing gets what it asks for
// even when that is more.
func (s *Shares) SetLimitEach(limit int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.each = limit; limit <= 0 {
		s.mu.each = math.MaxInt64
	}
}

// TryAcquire takes n things for who, who gives them back with Release, or
// reports that it can't have them.
func (s *Shares) TryAcquire(who string, n int64) bool {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clearLocked(now)
	u := s.mu.users[who]
	if u == nil {
		u = &user{}
		s.mu.users[who] = u
	}
	part := min(s.mu.each, max(s.mu.limit/int64(len(s.mu.users)), 1))
	if n > s.mu.limit-s.mu.inUse || u.holds > 0 && u.holds+n > part {
		u.wanted = now
		s.mu.refused++
		return false
	}
	u.holds += n
	s.mu.inUse += n
	return true
}

// clearLocked forgets who neither holds nor wants anything, several times in
// the time that a refusal is remembered.
func (s *Shares) clearLocked(now time.Time) {
	if now.Sub(s.mu.cleared) < keen/4 {
		return
	}
	s.mu.cleared = now
	for who, u := range s.mu.users {
		if u.holds == 0 && now.Sub(u.wanted) >= keen {
			delete(s.mu.users, who)
		}
	}
}

// Release gives back n things of who.
func (s *Shares) Release(who string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.mu.users[who]
	if u == nil || u.holds < n {
		panic(fmt.Sprintf("pools: Release of %d things that %q does not hold", n, who))
	}
	u.holds -= n
	s.mu.inUse -= n
}

// InUse returns how much is taken.
func (s *Shares) InUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.mu.inUse)
}

// SharesMetrics is a snapshot of Shares.
type SharesMetrics struct {
	InUse, Limit int
	// Users are those who hold something or have lately been refused.
	Users int
	// Refused counts TryAcquire calls that got nothing.
	Refused uint64
}

// Metrics returns a snapshot.
func (s *Shares) Metrics() SharesMetrics {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SharesMetrics{InUse: int(s.mu.inUse), Limit: int(s.mu.limit), Users: len(s.mu.users), Refused: s.mu.refused}
}
