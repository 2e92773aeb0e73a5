// Package remembered keeps what a shard remembers of requests and of acked leases, within bounds.
package remembered

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/digest"
	"github.com/belfrydb/belfry/fsm/store"
)

// Shard is what a shard remembers. Sum is the digest of its records, which every change updates.
type Shard struct {
	Store   *store.Store
	Scalars *fsm.Scalars
	Sum     *uint64
	Config  *fsm.Config
	encoded []byte // a buffer that Remember reuses
}

// Remember stores the results of a request that changed something.
func (s *Shard) Remember(a *fsm.Answer) {
	answers := &s.Store.Answers
	s.encoded = codec.AppendAnswer(s.encoded[:0], a)
	*s.Sum += digest.EncodedAnswer(a.At, s.encoded)
	answers.Add(a.Caller, a.ID, a.At, s.encoded)
	for answers.Bytes() > s.Config.AnswersBytesMax {
		index, ok := answers.Oldest()
		if !ok {
			break
		}
		s.Scalars.LowWater = answers.Time(index)
		s.ForgetAnswer(index)
	}
}

// ForgetAnswer forgets the remembered request at index.
func (s *Shard) ForgetAnswer(index uint32) {
	a := &s.Store.Answers
	*s.Sum -= digest.EncodedAnswer(a.Time(index), a.Encoded(index))
	a.Remove(index)
}

// Finish remembers an acked lease, after it has made room.
func (s *Shard) Finish(serial, fence uint64, expiry fsm.Time) {
	for s.Store.Finished.Len() >= s.Config.FinishedMax {
		index, _, _ := s.Store.Finished.First()
		s.forgetFinished(index)
	}
	s.AddFinished(store.FinishedLease{Fence: fence, Serial: serial, Expiry: expiry})
}

// AddFinished stores a lease that was read from a record.
func (s *Shard) AddFinished(l store.FinishedLease) {
	s.Store.Finished.Add(l)
	*s.Sum += digest.Finished(l.Serial, l.Fence, l.Expiry)
}

func (s *Shard) forgetFinished(index uint32) store.FinishedLease {
	l := s.Store.Finished.Remove(index)
	*s.Sum -= digest.Finished(l.Serial, l.Fence, l.Expiry)
	return l
}

// Next calls f with the earliest times at which an entry forgets something because its time is over.
func (s *Shard) Next(f func(fsm.Time)) {
	if at, some := s.Store.Answers.OldestTime(); some {
		f(at.Add(fsm.RequestWindow + 1))
	}
	if _, expiry, some := s.Store.Finished.First(); some {
		f(expiry.Add(1))
	}
}

// Sweep forgets what is past its time, a bounded number of records of each kind.
func (s *Shard) Sweep() {
	now := s.Scalars.Clock
	for range fsm.SweepMax {
		index, ok := s.Store.Answers.Oldest()
		if !ok || s.Store.Answers.Time(index).Add(fsm.RequestWindow) >= now {
			break
		}
		s.ForgetAnswer(index)
	}
	for range fsm.SweepMax {
		index, expiry, ok := s.Store.Finished.First()
		if !ok || expiry >= now {
			break
		}
		s.forgetFinished(index)
	}
}

// Reset moves the times of remembered requests to the new clock at the latest, and the ends of
// finished leases as far after it as they were after the old one: left says how far that was.
func (s *Shard) Reset(to fsm.Time, left func(fsm.Time) fsm.Duration) {
	for _, index := range s.Store.Answers.After(to) {
		s.resetAnswer(to, index)
	}
	for _, index := range s.Store.Finished.After(to) {
		l := s.forgetFinished(index)
		l.Expiry = to.Add(left(l.Expiry))
		s.AddFinished(l)
	}
}

// resetAnswer makes a request remembered as of the new clock. Its time is in its encoding as well.
func (s *Shard) resetAnswer(to fsm.Time, index uint32) {
	a := &s.Store.Answers
	*s.Sum -= digest.EncodedAnswer(a.Time(index), a.Encoded(index))
	v := a.Answer(index)
	v.At = to
	encoded := codec.AppendAnswer(nil, &v)
	a.Replace(index, to, encoded)
	*s.Sum += digest.EncodedAnswer(to, encoded)
}
