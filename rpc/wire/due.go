package wire

import (
	"cmp"
	"slices"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// AddDue adds what another part of a queue, or another queue, knows of when jobs fall due.
func AddDue(sum, v *fsm.Due) {
	AddDueSums(sum, v)
	sum.Minutes, sum.Hours, sum.Days = addSlices(sum.Minutes, v.Minutes), addSlices(sum.Hours, v.Hours),
		addSlices(sum.Days, v.Days)
}

// AddDueSums is AddDue without the slices.
func AddDueSums(sum, v *fsm.Due) {
	sum.Overdue += v.Overdue
	sum.Minute += v.Minute
	sum.Hour += v.Hour
	sum.Day += v.Day
	sum.Month += v.Month
	sum.Later += v.Later
}

// addSlices adds slices to a list in the order of their times. The list is the caller's own.
func addSlices(list, more []fsm.DueSlice) []fsm.DueSlice {
	for _, s := range more {
		i, ok := slices.BinarySearchFunc(list, s, func(a, b fsm.DueSlice) int { return cmp.Compare(a.Start, b.Start) })
		if ok {
			list[i].Jobs += s.Jobs
		} else {
			list = slices.Insert(list, i, s)
		}
	}
	return list
}

// DueHistogram converts a histogram.
func DueHistogram(v *fsm.Due) *belfryv1.DueHistogram {
	out := DueSums(v)
	out.Minutes, out.Hours, out.Days = wireSlices(v.Minutes), wireSlices(v.Hours), wireSlices(v.Days)
	return out
}

// DueSums is DueHistogram without the slices.
func DueSums(v *fsm.Due) *belfryv1.DueHistogram {
	return &belfryv1.DueHistogram{
		Overdue: Count(v.Overdue), NextMinute: Count(v.Minute), NextHour: Count(v.Hour), NextDay: Count(v.Day),
		NextMonth: Count(v.Month),
		Later:     Count(v.Later),
	}
}

func wireSlices(list []fsm.DueSlice) []*belfryv1.DueSlice {
	out := make([]*belfryv1.DueSlice, len(list))
	for i, s := range list {
		out[i] = &belfryv1.DueSlice{Start: ExactTime(s.Start), Jobs: Count(s.Jobs)}
	}
	return out
}
