package ledger

import "github.com/belfrydb/belfry/fsm"

// agendaEntry is a job's place in an order; it counts as long as the job has its version.
type agendaEntry struct {
	at       fsm.Time
	serial   uint64
	account  *Job
	version  uint32
	priority int64
}

func (t *agendaEntry) less(u *agendaEntry) bool {
	if t.priority != u.priority {
		return t.priority < u.priority
	}
	if t.at != u.at {
		return t.at < u.at
	}
	return t.serial < u.serial
}

// agenda is a heap of entries, some of which count no more.
type agenda struct{ entries []agendaEntry }

func (h *agenda) push(t agendaEntry) {
	h.entries = append(h.entries, t)
	i := len(h.entries) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !h.entries[i].less(&h.entries[up]) {
			break
		}
		h.entries[i], h.entries[up] = h.entries[up], h.entries[i]
		i = up
	}
}

// first returns the first entry that counts, nil if there is none. It stays.
func (h *agenda) first() *agendaEntry {
	for len(h.entries) > 0 {
		if t := &h.entries[0]; t.version == t.account.version {
			return t
		}
		h.pop()
	}
	return nil
}

// due returns the first job whose time has come, nil if there is none. It stays until its version
// changes.
func (h *agenda) due(now fsm.Time) *Job {
	if t := h.first(); t != nil && t.at <= now {
		return t.account
	}
	return nil
}

func (h *agenda) pop() {
	last := len(h.entries) - 1
	h.entries[0] = h.entries[last]
	h.entries[last] = agendaEntry{}
	h.entries = h.entries[:last]
	for i := 0; ; {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < last && h.entries[child].less(&h.entries[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.entries[i], h.entries[least] = h.entries[least], h.entries[i]
		i = least
	}
}
