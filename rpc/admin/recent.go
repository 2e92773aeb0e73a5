package admin

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/wire"
)

// recentSum is the sum of the recent activity of a queue's parts.
type recentSum struct {
	// unknown is set if the activity of a part is not known.
	unknown bool
	// window is the shortest of the parts' windows.
	window              time.Duration
	puts, reserves, ack float64
	late                [fsm.LateBuckets]uint64
	lateMax             time.Duration
}

// sumRecent sums up the parts of a queue. Each part has its own window, since it has its own
// leader.
func sumRecent(parts []queuePart) recentSum {
	sum := recentSum{window: fsm.RecentWindow}
	for i := range parts {
		r := parts[i].Recent
		if r == nil || r.Window <= 0 {
			sum.unknown = true
			continue
		}
		seconds := r.Window.Seconds()
		sum.puts += float64(r.Puts) / seconds
		sum.reserves += float64(r.Grants) / seconds
		sum.ack += float64(r.Acks) / seconds
		for k, n := range r.Late {
			sum.late[k] += n
		}
		sum.window, sum.lateMax = min(sum.window, r.Window), max(sum.lateMax, r.LateMax)
	}
	return sum
}

// rates returns the events per second; nil if those of a part are not known.
func (s *recentSum) rates() *belfryv1.QueueRates {
	if s.unknown {
		return nil
	}
	return &belfryv1.QueueRates{
		PutsPerSecond: s.puts, ReservesPerSecond: s.reserves, AcksPerSecond: s.ack, Window: durationpb.New(s.window),
	}
}

// lateness returns how late jobs were granted. It is nil if no job was granted, or if the lateness
// of a part is not known.
func (s *recentSum) lateness() *belfryv1.Lateness {
	var jobs uint64
	for _, n := range s.late {
		jobs += n
	}
	if jobs == 0 || s.unknown {
		return nil
	}
	return &belfryv1.Lateness{
		P50: durationpb.New(s.quantile(jobs, 50)), P99: durationpb.New(s.quantile(jobs, 99)),
		Max: durationpb.New(s.lateMax), Jobs: wire.Count(jobs), Window: durationpb.New(s.window),
	}
}

// quantile returns a bound that percent of the jobs did not exceed: the end of a bucket, or lateMax
// if that is less.
func (s *recentSum) quantile(jobs, percent uint64) time.Duration {
	rank := (jobs*percent + 99) / 100
	var seen uint64
	for i, n := range s.late {
		if seen += n; seen >= rank {
			return min(s.lateMax, time.Duration(1<<i)*time.Millisecond)
		}
	}
	return s.lateMax
}
