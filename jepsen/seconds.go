package main

import (
	"time"

	"github.com/belfrydb/belfry/jepsen/history"
	"github.com/belfrydb/belfry/jepsen/report"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// seconds says what clients saw in each second.
func seconds(h *history.History) []report.Second {
	var c report.Collector
	var end time.Duration // not the present, which is long after the run when it is judged again
	for _, o := range h.Ops() {
		end = max(end, o.Returned)
		one := report.Call{Ended: o.Returned, Kind: report.Unknown}
		switch {
		case o.OK():
			one.Kind = report.Applied
			if changes(o) {
				one.Latency = o.Returned - o.Invoked
			}
		case o.Outcome == belfryv1.Outcome_OUTCOME_NOT_APPLIED:
			one.Kind = report.Refused
		}
		if answer, ok := o.Response.(*belfryv1.ReserveResponse); ok {
			one.Lateness = lateness(h.Start.Add(o.Returned), answer.GetJobs())
		}
		c.Add(one)
	}
	return c.Seconds(end)
}

// changes reports whether a call changes something and does not wait.
func changes(o *history.Op) bool {
	switch o.Request.(type) {
	case *belfryv1.ReserveRequest, *belfryv1.GetRequest, *belfryv1.ListRequest, *belfryv1.GetQueueRequest:
		return false
	default:
		return true
	}
}

// lateness says how long after their due times jobs were handed out for the first time.
func lateness(at time.Time, jobs []*belfryv1.Job) (late []time.Duration) {
	for _, j := range jobs {
		if j.GetAttempt() == 1 {
			late = append(late, at.Sub(j.GetDueAt().AsTime()))
		}
	}
	return late
}
