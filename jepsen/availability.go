package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/availability"

	"github.com/belfrydb/belfry/jepsen/checker"
	"github.com/belfrydb/belfry/jepsen/history"
	"github.com/belfrydb/belfry/jepsen/report"
)

const (
	// stallTick is how often the harness looks whether it gets the processor, stallLeast how late it
	// may be without that being a stall.
	stallTick  = 20 * time.Millisecond
	stallLeast = 30 * time.Millisecond
)

// watch tries the cluster until ctx ends, and notes when the harness itself stalls.
func (e *experiment) watch(ctx context.Context) error {
	stalls := make(chan []checker.Span, 1)
	go func() { stalls <- measureStalls(ctx, e.history.Now) }()
	err := e.prober.Run(ctx)
	e.kept.Stalls = <-stalls
	return err
}

// measureStalls returns, when ctx has ended, the times in which this process wanted to go on and
// was not let.
func measureStalls(ctx context.Context, now func() time.Duration) (stalls []checker.Span) {
	for {
		due := now() + stallTick
		t := time.NewTimer(stallTick)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return stalls
		}
		if late := now(); late-due >= stallLeast {
			stalls = append(stalls, checker.Span{From: due, To: late})
		}
	}
}

// strikes are the faults as the checker judges availability by them.
func strikes(faults []report.Fault) []availability.Strike {
	all := make([]availability.Strike, 0, len(faults))
	for _, f := range faults {
		s := availability.Strike{Name: f.Name, From: asDuration(f.From), To: asDuration(f.To)}
		if e := f.Effect; e != nil {
			s.Began, s.Struck, s.Healing = asDuration(e.Began), asDuration(e.Struck), asDuration(e.Healing)
			s.Healthy, s.Victims, s.Allowed = e.Healthy, e.Victims, asDuration(e.Allowed)
		}
		all = append(all, s)
	}
	return all
}

// judged notes with each fault what was found of the availability while it lasted.
func judged(faults []report.Fault, found []availability.Result) {
	for i, a := range found {
		if faults[i].Effect == nil {
			continue
		}
		faults[i].Availability = &report.Availability{Unjudged: a.Unjudged, Served: inSeconds(a.Served),
			Named: inSeconds(a.Named), Slack: a.Slack.Seconds()}
	}
}

func inSeconds(times map[string]time.Duration) map[string]float64 {
	seconds := make(map[string]float64, len(times))
	for node, took := range times {
		seconds[node] = took.Seconds()
	}
	return seconds
}

// readStatuses adds to a history what nodes said of the cluster in its run, all of it.
func readStatuses(dir string, kept *record, h *history.History) (err error) {
	if kept.Statuses == 0 {
		return nil
	}
	file, err := os.Open(filepath.Join(dir, statusName))
	if err != nil {
		return fmt.Errorf("opening the statuses: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := h.ReadStatuses(file); err != nil {
		return err
	}
	if n := len(h.Statuses()); n != kept.Statuses {
		return fmt.Errorf("there are %d statuses, not %d as when they were written", n, kept.Statuses)
	}
	return nil
}
