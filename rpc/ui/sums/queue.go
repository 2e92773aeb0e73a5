package sums

import (
	"cmp"

	g "maragu.dev/gomponents"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/markup"
)

// LastMinuteFacts shows what happened in a queue in the last minute.
func LastMinuteFacts(q *belfryv1.Queue) g.Node {
	perSecond := func(name string, n float64) g.Node {
		if q.Rates == nil {
			return markup.Fact(name, "not known")
		}
		return markup.Fact(name, format.Rate(n))
	}
	return markup.Facts(
		perSecond("Put per second", q.Rates.GetPutsPerSecond()),
		perSecond("Handed out per second", q.Rates.GetReservesPerSecond()),
		perSecond("Acked per second", q.Rates.GetAcksPerSecond()),
		markup.Fact("Lateness, half of the jobs", cmp.Or(format.Duration(q.Lateness.GetP50()), "–")),
		markup.Fact("Lateness, 99 of 100", cmp.Or(format.Duration(q.Lateness.GetP99()), "–")))
}

// TotalFacts shows what happened in a queue since it was made.
func TotalFacts(t *belfryv1.QueueTotals) g.Node {
	return markup.Facts(markup.Fact("Put", format.Grouped(t.GetPuts())), markup.Fact("Handed out",
		format.Grouped(t.GetReserves())),
		markup.Fact("Acked", format.Grouped(t.GetAcks())), markup.Fact("Failed", format.Grouped(t.GetNacks())),
		markup.Fact("Lapsed leases", format.Grouped(t.GetLapses())), markup.Fact("Given back",
			format.Grouped(t.GetReleases())),
		markup.Fact("Became dead", format.Grouped(t.GetDeaths())), markup.Fact("Cancelled or purged",
			format.Grouped(t.GetCancels())),
		markup.Fact("Expired", format.Grouped(t.GetExpiries())), markup.Fact("Redriven", format.Grouped(t.GetRedrives())))
}
