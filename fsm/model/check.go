package model

import (
	"errors"
	"fmt"

	"github.com/belfrydb/belfry/fsm"
)

// Check returns what is wrong with the state: everything that must hold after every entry, whatever
// was applied.
func (m *Model) Check() error {
	var errs []error
	fences, serials := map[uint64]bool{}, map[uint64]bool{}
	for i, q := range m.queues {
		if m.restored.Next > 0 { // what comes from two shards may have equal ones, in two queues
			fences, serials = map[uint64]bool{}, map[uint64]bool{}
		}
		if i > 0 && m.queues[i-1].CreateSeq >= q.CreateSeq || q.CreateSeq > m.QueuesCreated {
			errs = append(errs, fmt.Errorf("queue %q: creation number %d out of order", q.Name, q.CreateSeq))
		}
		if !m.restored.Open() { // a queue comes before its jobs
			errs = append(errs, q.checkCounters())
		}
		ids := map[[2]string]bool{}
		for _, j := range q.jobs {
			errs = append(errs, m.checkJob(q, j))
			name := [2]string{j.ID}
			if q.Partitions != 1 {
				name[1] = j.Key
			}
			if ids[name] || serials[j.Serial] || j.Fence != 0 && fences[j.Fence] {
				errs = append(errs, fmt.Errorf("queue %q: id %q, serial %d or fence %d is there twice", q.Name, j.ID, j.Serial,
					j.Fence))
			}
			ids[name], serials[j.Serial], fences[j.Fence] = true, true, true
		}
	}
	for _, f := range m.finished {
		if fences[f.fence] {
			errs = append(errs, fmt.Errorf("fence %d is there twice, once finished", f.fence))
		}
		fences[f.fence] = true
	}
	return errors.Join(append(errs, m.checkMemory())...)
}

// checkCounters holds the conservation of jobs: whatever was put is held or was counted out.
func (q *queue) checkCounters() error {
	c, held := q.Counters, uint64(len(q.jobs))
	if gone := c.Acked + c.Cancelled + c.Expired + c.Purged; c.Put != held+gone {
		return fmt.Errorf("queue %q: %d put, but %d held and %d gone", q.Name, c.Put, held, gone)
	}
	return nil
}

func (m *Model) checkJob(q *queue, j *job) error {
	bad := func(what string) error {
		return fmt.Errorf("queue %q: job %q (%+v): %s", q.Name, j.ID, j.Job, what)
	}
	switch {
	case !j.State.Held():
		return bad("is held in a state that is not")
	case j.Serial == 0 || j.Serial > m.Serial || j.Fence > m.Serial:
		return bad("serial or fence is beyond the shard's serial")
	case j.Fence != 0 && j.Fence <= j.Serial:
		return bad("fence is not above its serial")
	case j.State == fsm.Reserved && (j.Fence == 0 || j.Attempt == 0 || j.LeaseTTR <= 0 || j.Until == 0):
		return bad("is reserved without a lease")
	case j.State == fsm.Dead && j.Died == 0:
		return bad("is dead since never")
	case j.Created > m.Clock || j.Created < q.Created:
		return bad("was created before its queue or after now")
	case j.Due.Ceil() != j.Due || j.FirstDue.Ceil() != j.FirstDue || j.Until.Ceil() != j.Until || j.TTL.Ceil() != j.TTL:
		return bad("is due, leased or alive until a part of a millisecond")
	}
	return nil
}

// checkMemory holds the bounds of what is remembered.
func (m *Model) checkMemory() error {
	var errs []error
	if n := len(m.tombstones); n > m.cfg.TombstonesMax {
		errs = append(errs, fmt.Errorf("%d tombstones, at most %d", n, m.cfg.TombstonesMax))
	}
	if n := len(m.finished); n > m.cfg.FinishedMax {
		errs = append(errs, fmt.Errorf("%d finished leases, at most %d", n, m.cfg.FinishedMax))
	}
	if n := m.answersBytes(); n > m.cfg.AnswersBytesMax {
		errs = append(errs, fmt.Errorf("%d bytes of remembered requests, at most %d", n, m.cfg.AnswersBytesMax))
	}
	seen := map[[3]string]bool{}
	for _, t := range m.tombstones {
		q := m.queue(t.Queue)
		if q == nil {
			errs = append(errs, fmt.Errorf("tombstone of %q in %q, which is gone", t.ID, t.Queue))
		} else if name := [3]string{t.Queue, t.ID}; q.byPutID(t.ID, t.Key) != nil || q.Partitions == 1 && seen[name] {
			errs = append(errs, fmt.Errorf("tombstone of %q in %q is not alone with its id", t.ID, t.Queue))
		}
		seen[[3]string{t.Queue, t.ID}] = true
	}
	for i := range m.answers {
		if i > 0 && m.answers[i].At < m.answers[i-1].At {
			errs = append(errs, fmt.Errorf("remembered request %d is older than the one before", i))
		}
	}
	return errors.Join(errs...)
}
