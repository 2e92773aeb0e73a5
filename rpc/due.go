package rpc

import (
	"cmp"
	"slices"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// addDue adds what another part of a queue, or another queue, knows of when jobs fall due.
func addDue(sum, v *fsm.Due) {
	addDueSums(sum, v)
	sum.Minutes, sum.Hours, sum.Days = addSlices(sum.Minutes, v.Minutes), addSlices(sum.Hours, v.Hours), addSlices(sum.Days, v.Days)
}

// addDueSums is addDue without the slices.
func addDueSums(sum, v *fsm.Due) {
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

// wireDue converts a histogram.
func wireDue(v *fsm.Due) *belfryv1.DueHistogram {
	out := wireDueSums(v)
	out.Minutes, out.Hours, out.Days = wireSlices(v.Minutes), wireSlices(v.Hours), wireSlices(v.Days)
	return out
}

// wireDueSums is wireDue without the slices.
func wireDueSums(v *fsm.Due) *belfryv1.DueHistogram {
	return &belfryv1.DueHistogram{
		Overdue: count32(v.Overdue), NextMinute: count32(v.Minute), NextHour: count32(v.Hour), NextDay: count32(v.Day), NextMonth: count32(v.Month),
		Later: count32(v.Later),
	}
}

func wireSlices(list []fsm.DueSlice) []*belfryv1.DueSlice {
	out := make([]*belfryv1.DueSlice, len(list))
	for i, s := range list {
		out[i] = &belfryv1.DueSlice{Start: exactTime(s.Start), Jobs: count32(s.Jobs)}
	}
	return out
}
