package admin

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/wire"
)

// minutes adds up the minutes of a queue's parts. since is the latest time from which all parts know
// theirs.
func minutes(parts []fsm.Reading) (out []*belfryv1.QueueMinute, since *timestamppb.Timestamp) {
	sums, from := map[fsm.Time]fsm.QueueMinute{}, fsm.Time(0)
	for i := range parts {
		from = max(from, parts[i].Since)
		for _, m := range parts[i].Minutes {
			sum := sums[m.Start]
			sum.Puts, sum.Grants, sum.Acks = sum.Puts+m.Puts, sum.Grants+m.Grants, sum.Acks+m.Acks
			sum.Failures += m.Failures
			sum.LateP50, sum.LateP99 = max(sum.LateP50, m.LateP50), max(sum.LateP99, m.LateP99)
			sums[m.Start] = sum
		}
	}
	for _, start := range slices.Sorted(maps.Keys(sums)) {
		if start+fsm.Minute <= from { // a part does not know it
			continue
		}
		m := sums[start]
		minute := &belfryv1.QueueMinute{
			Start: wire.ExactTime(start), Puts: m.Puts, Reserves: m.Grants, Acks: m.Acks, Failures: m.Failures,
		}
		if m.LateP99 > 0 {
			minute.LateP50, minute.LateP99 = durationpb.New(m.LateP50), durationpb.New(m.LateP99)
		}
		out = append(out, minute)
	}
	return out, wire.ExactTime(from)
}
