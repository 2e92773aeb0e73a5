package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/belfrydb/belfry/jepsen/history"
	"github.com/belfrydb/belfry/jepsen/report"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// outages says for each fault the longest time in which some shard answered no call that changes
// something: it begins with the fault or during it, and ends with the next answer, also after the
// fault.
func outages(h *history.History, faults []report.Fault, loaded time.Duration) []time.Duration {
	answered := map[uint32][]time.Duration{}
	for _, o := range h.Ops() {
		answer, ok := o.Response.(interface{ GetWitness() *belfryv1.Witness })
		if ok && changes(o) && answer.GetWitness() != nil && o.Returned <= loaded {
			answered[answer.GetWitness().GetShard()] = append(answered[answer.GetWitness().GetShard()], o.Returned)
		}
	}
	longest := make([]time.Duration, len(faults))
	for _, times := range answered {
		slices.Sort(times)
		times = append(times, loaded)
		for i, f := range faults {
			began := asDuration(f.From)
			next, _ := slices.BinarySearch(times, began)
			for ; next < len(times) && began <= asDuration(f.To); next++ {
				longest[i] = max(longest[i], times[next]-began)
				began = times[next]
			}
		}
	}
	return longest
}

// printOutages prints for each nemesis how often it struck, and the median and the longest of the
// outages that it made, the longest first.
func printOutages(out io.Writer, outages map[string][]float64) error {
	type row struct {
		name            string
		struck          int
		median, longest float64
	}
	var rows []row
	for name, each := range outages {
		each = slices.Sorted(slices.Values(each))
		rows = append(rows, row{name, len(each), each[(len(each)-1)/2], each[len(each)-1]})
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.longest, a.longest), cmp.Compare(a.name, b.name))
	})
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "\nlongest time in which a shard changed nothing for anybody, from the beginning of the "+
		"fault\nmedian s\tlongest s\tstruck\tnemesis\t\n")
	for _, r := range rows {
		fmt.Fprintf(table, "%.1f\t%.1f\t%d\t%s\t\n", r.median, r.longest, r.struck, r.name)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the table of faults: %w", err)
	}
	return nil
}
