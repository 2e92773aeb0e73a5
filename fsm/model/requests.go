package model

import (
	"cmp"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// request is rule Requests: it answers from memory, refuses, or carries out.
func (m *Model) request(r *fsm.Request) []fsm.Result {
	m.client = r.Client
	if r.ID == "" {
		results, _ := m.carryOutAll(r)
		return results
	}
	content := codec.RequestHash(r)
	a := m.answer(r.Caller, r.ID)
	switch {
	case a == nil && m.tooOld(r.ID):
		return refused(r, fsm.RequestExpired)
	case a == nil:
	case a.Content != content:
		return refused(r, fsm.Invalid)
	case !isLoneReserve(r):
		return replayed(a.Results)
	default:
		if live := m.live(a.Results[0].Grants); len(live) > 0 {
			return replayed([]fsm.Result{{Grants: live}})
		}
	}
	results, changed := m.carryOutAll(r)
	if changed {
		m.remember(fsm.Answer{Caller: r.Caller, ID: r.ID, Content: content, At: m.Clock, Results: slices.Clone(results)})
	}
	return results
}

func (m *Model) carryOutAll(r *fsm.Request) (results []fsm.Result, changed bool) {
	for _, c := range r.Commands {
		result, did := m.carryOut(c)
		results = append(results, result)
		changed = changed || did
	}
	return results, changed
}

func refused(r *fsm.Request, code fsm.Code) []fsm.Result {
	results := make([]fsm.Result, len(r.Commands))
	for i := range results {
		results[i].Code = code
	}
	return results
}

func replayed(results []fsm.Result) []fsm.Result {
	results = slices.Clone(results)
	for i := range results {
		results[i].Replayed = true
	}
	return results
}

func isLoneReserve(r *fsm.Request) bool {
	return len(r.Commands) == 1 && (r.Commands[0].Kind() == fsm.KindReserve || r.Commands[0].Kind() == fsm.KindReserveJob)
}

// live returns those of the grants whose leases are still held.
func (m *Model) live(grants []fsm.Grant) []fsm.Grant {
	var live []fsm.Grant
	for _, g := range grants {
		q := m.queue(g.Queue)
		if q == nil || q.Partition != g.Partition {
			continue
		}
		j := q.bySerial(g.Serial)
		if j != nil && j.State == fsm.Reserved && j.Fence == g.Fence && !m.passed(j.Until) {
			live = append(live, g)
		}
	}
	return live
}

// answer returns what is remembered of a request, nil if nothing or nothing any more.
func (m *Model) answer(caller, id string) *answer {
	for i := range m.answers {
		a := &m.answers[i]
		if a.Caller == caller && a.ID == id && !m.answerPast(a) {
			return a
		}
	}
	return nil
}

func (m *Model) answerPast(a *answer) bool { return m.Clock.Sub(a.At) > fsm.RequestWindow }

// remember keeps an answer instead of an earlier one of the same request, and evicts the oldest
// ones if there is no room.
func (m *Model) remember(a fsm.Answer) {
	m.answers = slices.DeleteFunc(m.answers, func(b answer) bool { return a.Caller == b.Caller && a.ID == b.ID })
	m.answers = append(m.answers, answer{a, codec.AnswerBytes(&a)})
	for m.answersBytes() > m.cfg.AnswersBytesMax {
		m.LowWater = m.answers[0].At
		m.answers = slices.Delete(m.answers, 0, 1)
	}
}

func (m *Model) answersBytes() int64 {
	sum := int64(0)
	for i := range m.answers {
		sum += m.answers[i].bytes
	}
	return sum
}

// tooOld reports whether a request may have been carried out and forgotten, by the time in its id.
func (m *Model) tooOld(id string) bool {
	at, ok := timeOfUUIDv7(id)
	return ok && (at < m.Clock-fsm.Time(fsm.RequestWindow) || at <= m.LowWater)
}

// timeOfUUIDv7 returns the time in an id of the form xxxxxxxx-xxxx-7xxx-[89ab]xxx-xxxxxxxxxxxx,
// whose first 48 bits are milliseconds since the Unix epoch (RFC 9562, section 5.7).
func timeOfUUIDv7(id string) (fsm.Time, bool) {
	if i := strings.IndexAny(id, "#~"); i >= 0 {
		id = id[:i]
	}
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' {
		return 0, false
	}
	b, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(b) != 16 || b[6]>>4 != 7 || b[8]>>6 != 2 {
		return 0, false
	}
	milliseconds := int64(0)
	for _, x := range b[:6] {
		milliseconds = milliseconds<<8 | int64(x)
	}
	if milliseconds > math.MaxInt64/int64(time.Millisecond) {
		return fsm.TimeMax, true
	}
	return fsm.Time(milliseconds * int64(time.Millisecond)), true
}

// sweep is rule Sweeping.
func (m *Model) sweep() {
	for _, t := range atMost(m.tombstonesPast(), fsm.SweepMax) {
		m.forget(t)
	}
	for range fsm.SweepMax {
		if len(m.answers) > 0 && m.answerPast(&m.answers[0]) {
			m.answers = slices.Delete(m.answers, 0, 1)
		}
	}
	leases := slices.SortedFunc(slices.Values(m.finished), byExpiry)
	for _, f := range atMost(leases, fsm.SweepMax) {
		if f.expiry < m.Clock {
			m.finished = slices.DeleteFunc(m.finished, func(g finished) bool { return f == g })
		}
	}
	m.sweepKeys()
}

// tombstonesPast returns the tombstones past their window, in the order in which they are swept.
func (m *Model) tombstonesPast() []fsm.Tombstone {
	var past []fsm.Tombstone
	for _, q := range m.queues {
		for _, t := range m.tombstonesOf(q) {
			if m.pastWindow(q, &t) {
				past = append(past, t)
			}
		}
	}
	slices.SortStableFunc(past, func(a, b fsm.Tombstone) int {
		return cmp.Or(
			cmp.Compare(a.Ended.Add(m.queue(a.Queue).window()), b.Ended.Add(m.queue(b.Queue).window())),
			cmp.Compare(m.queue(a.Queue).CreateSeq, m.queue(b.Queue).CreateSeq),
			cmp.Compare(a.Serial, b.Serial))
	})
	return past
}
