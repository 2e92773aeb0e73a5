// Package sums adds up what is known of queues, and says which of them need attention.
package sums

import (
	"cmp"
	"slices"
	"time"

	g "maragu.dev/gomponents"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/markup"
)

// Totals are sums over queues.
type Totals struct {
	// Delayed, Ready, Reserved and Dead count jobs, and Bytes is what is stored of them.
	Delayed, Ready, Reserved, Dead, Bytes uint64
	// Puts, Reserves and Acks are per second, over the last minute.
	Puts, Reserves, Acks float64
}

// Add adds those of a queue.
func (t *Totals) Add(q *belfryv1.Queue) {
	t.Delayed += uint64(q.Counts.GetDelayed())
	t.Ready += uint64(q.Counts.GetReady())
	t.Reserved += uint64(q.Counts.GetReserved())
	t.Dead += uint64(q.Counts.GetDead())
	t.Bytes += q.Bytes
	t.Puts += q.Rates.GetPutsPerSecond()
	t.Reserves += q.Rates.GetReservesPerSecond()
	t.Acks += q.Rates.GetAcksPerSecond()
}

// Waiting writes how many consumers wait for a queue; nothing if that is not known.
func Waiting(q *belfryv1.Queue) string {
	if q.WaitingConsumers == nil {
		return ""
	}
	return format.Grouped(*q.WaitingConsumers)
}

// Due says how many jobs fall due when: in the next minute, hour, day and 30 days.
type Due struct{ Overdue, Minute, Hour, Day, Month, Later uint64 }

// Add adds those of a histogram.
func (d *Due) Add(h *belfryv1.DueHistogram) {
	d.Overdue += uint64(h.GetOverdue())
	d.Minute += uint64(h.GetNextMinute())
	d.Hour += uint64(h.GetNextHour())
	d.Day += uint64(h.GetNextDay())
	d.Month += uint64(h.GetNextMonth())
	d.Later += uint64(h.GetLater())
}

// Facts shows how many jobs fall due when.
func (d *Due) Facts() g.Node {
	return markup.Facts(markup.Fact("Overdue", format.Grouped(d.Overdue)),
		markup.Fact("In the next minute", format.Grouped(d.Minute)),
		markup.Fact("In the next hour", format.Grouped(d.Hour)), markup.Fact("In the next day", format.Grouped(d.Day)),
		markup.Fact("In the next 30 days", format.Grouped(d.Month)), markup.Fact("Later", format.Grouped(d.Later)))
}

// A queue is suspect if its oldest ready job has waited for longer than readyWaitMax.
const readyWaitMax = time.Minute

// suspectsMax is how many queues the page names.
const suspectsMax = 20

// Suspect is a queue that needs attention.
type Suspect struct {
	Queue *belfryv1.Queue
	// Because says why.
	Because []string
}

// Suspects returns the queues that need attention, at most 20: those with most dead jobs first.
func Suspects(queues []*belfryv1.Queue) []Suspect {
	var all []Suspect
	for _, q := range queues {
		var because []string
		if n := q.Counts.GetDead(); n > 0 {
			because = append(because, format.Grouped(n)+" dead")
		}
		if age := q.OldestReadyAge.AsDuration(); age > readyWaitMax {
			because = append(because, "ready for "+format.Span(age))
			if q.WaitingConsumers != nil && *q.WaitingConsumers == 0 && !q.Settings.GetPaused() {
				because = append(because, "no consumer waits")
			}
		}
		if q.Settings.GetPaused() && q.Counts.GetReady() > 0 {
			because = append(because, "paused with "+format.Grouped(q.Counts.GetReady())+" ready")
		}
		if len(because) > 0 {
			all = append(all, Suspect{q, because})
		}
	}
	slices.SortStableFunc(all, func(a, b Suspect) int {
		return cmp.Or(cmp.Compare(b.Queue.Counts.GetDead(), a.Queue.Counts.GetDead()),
			cmp.Compare(b.Queue.OldestReadyAge.AsDuration(), a.Queue.OldestReadyAge.AsDuration()))
	})
	return all[:min(len(all), suspectsMax)]
}
