package pools

// waiting is what waits for a worker: all tasks by age and, in a lane of its
// own, those of each requester. Lanes take turns, so that one requester that
// asks for much waits for itself and not the others for it.
type waiting struct {
	byAge taskList
	lanes map[string]*lane
	// turn is the lane that is next; those that have tasks form a ring. free is a
	// list of lanes for reuse.
	turn, free *lane
}

// lane has the tasks of one requester, oldest in front.
type lane struct {
	who        string
	tasks      taskList
	prev, next *lane
}

func newWaiting() waiting {
	return waiting{byAge: taskList{link: linkAge}, lanes: make(map[string]*lane)}
}

func (w *waiting) len() int { return w.byAge.len }

// oldest returns the task that has waited longest, nil when there is none.
func (w *waiting) oldest() *task { return w.byAge.front }

func (w *waiting) push(t *task) {
	l := w.lanes[t.who]
	if l == nil {
		l = w.open(t.who)
	}
	t.lane, t.queued = l, true
	w.byAge.push(t)
	l.tasks.push(t)
}

// open makes a lane whose turn comes after all others.
func (w *waiting) open(who string) *lane {
	l := w.free
	if l == nil {
		l = &lane{tasks: taskList{link: linkLane}}
	} else {
		w.free = l.next
	}
	l.who = who
	w.lanes[who] = l
	if w.turn == nil {
		l.prev, l.next, w.turn = l, l, l
		return l
	}
	l.prev, l.next = w.turn.prev, w.turn
	l.prev.next, l.next.prev = l, l
	return l
}

func (w *waiting) remove(t *task) {
	l := t.lane
	t.lane, t.queued = nil, false
	w.byAge.remove(t)
	if l.tasks.remove(t); l.tasks.len > 0 {
		return
	}
	delete(w.lanes, l.who)
	if w.turn == l {
		w.turn = l.next
	}
	if w.turn == l { // it was the only one
		w.turn = nil
	}
	l.prev.next, l.next.prev = l.next, l.prev
	l.who, l.prev, l.next, w.free = "", nil, w.free, l
}

// pick returns the task whose turn it is, nil when there is none: its
// requester's oldest, or newest. The next turn is another one's.
func (w *waiting) pick(newest bool) *task {
	l := w.turn
	if l == nil {
		return nil
	}
	w.turn = l.next
	if newest {
		return l.tasks.back
	}
	return l.tasks.front
}

// crowd returns the oldest task of the requester that has most of them.
func (w *waiting) crowd() *task {
	most := w.turn
	for l := w.turn.next; l != w.turn; l = l.next {
		if l.tasks.len > most.tasks.len {
			most = l
		}
	}
	return most.tasks.front
}
