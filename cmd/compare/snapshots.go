package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/belfrydb/belfry/client"
)

const (
	// A server writes a snapshot once it has logged as much as the last one holds: the log is filled with large jobs, put and cancelled, at a steady rate.
	ballastBytes   = 256 << 10
	ballastEvery   = 10 * time.Millisecond
	ballastCallers = 8
	snapshotsMax   = 3 * time.Minute
)

// answered is one put of the schedule.
type answered struct {
	at   time.Time
	took time.Duration
}

// span is the time from begin to end.
type span struct{ begin, end time.Time }

// snapshots fills servers, and compares puts on schedule while one of them writes a snapshot with those before and after.
func snapshots(ctx context.Context, r *running, set settings) (_ []sample, err error) {
	fill, err := fillUp(ctx, r, set.jobs, false)
	if err != nil {
		return nil, err
	}
	putters, err := crowdOf(ctx, r, lateCallers, library)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, putters.leave()) }()
	var mu sync.Mutex
	var puts []answered
	began := time.Now()
	window, stop := context.WithTimeout(ctx, snapshotsMax)
	defer stop()
	group, window := errgroup.WithContext(window)
	group.Go(func() error { return ballast(window, r.sdk) })
	group.Go(func() error {
		err := putters.onSchedule(window, scheduleRate*int64(snapshotsMax.Seconds()), 0, func(at time.Time, took time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			puts = append(puts, answered{at, took})
		})
		if window.Err() != nil {
			return nil // it ends when all have written a snapshot
		}
		return err
	})
	group.Go(func() error {
		defer stop()
		return awaitSnapshots(window, r.processes, began)
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var spans []span
	for _, p := range r.processes {
		some, err := snapshotsOf(p)
		if err != nil {
			return nil, err
		}
		spans = append(spans, some...)
	}
	calm, during := split(puts, spans)
	calm.Jobs, during.Jobs = set.jobs, set.jobs
	return []sample{fill, calm, during}, nil
}

// ballast puts large jobs and cancels them, each at its time or as soon as a caller is free.
func ballast(ctx context.Context, sdk *client.Client) error {
	ticks := time.NewTicker(ballastEvery)
	defer ticks.Stop()
	group, ctx := errgroup.WithContext(ctx)
	for range ballastCallers {
		group.Go(func() error {
			body := make([]byte, ballastBytes)
			for {
				select {
				case <-ticks.C:
				case <-ctx.Done():
					return nil
				}
				put, err := sdk.Put(ctx, queueName(0), body, client.In(time.Hour))
				if err == nil {
					_, err = sdk.Cancel(ctx, queueName(0), put.ID)
				}
				if ctx.Err() != nil {
					return nil
				}
				if err != nil {
					return fmt.Errorf("filling the log: %w", err)
				}
			}
		})
	}
	return group.Wait()
}

// awaitSnapshots waits until each process has written a snapshot that began after a time.
func awaitSnapshots(ctx context.Context, processes []*process, after time.Time) error {
	for {
		wrote := 0
		for _, p := range processes {
			spans, err := snapshotsOf(p)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(spans, func(s span) bool { return s.begin.After(after) }) {
				wrote++
			}
		}
		if wrote == len(processes) {
			return nil
		}
		if err := rest(ctx, time.Second/4); err != nil {
			return fmt.Errorf("within %v %d of %d servers wrote a snapshot: %w", snapshotsMax, wrote, len(processes), err)
		}
	}
}

// snapshotsOf reads in the log of a server when it wrote snapshots.
func snapshotsOf(p *process) ([]span, error) {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return nil, err
	}
	var spans []span
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if one, ok := spanOf(lines.Text()); ok {
			spans = append(spans, one)
		}
	}
	return spans, lines.Err()
}

// split sorts puts into those that were under way while a snapshot was written and the others, each a sample.
func split(puts []answered, spans []span) (calm, during sample) {
	calm, during = sample{Phase: "calm", Seconds: 1}, sample{Phase: "snapshot", Seconds: 1}
	without, with := newHistogram(), newHistogram()
	for _, p := range puts {
		inside := slices.ContainsFunc(spans, func(s span) bool { return p.at.Before(s.end) && p.at.Add(p.took).After(s.begin) })
		if inside {
			with.record(p.took)
			continue
		}
		without.record(p.took)
	}
	calm.times(without)
	during.times(with)
	return calm, during
}

// spanOf reads a line of the log: it is written at the end of a snapshot, and says how long it took.
func spanOf(line string) (span, bool) {
	if !strings.Contains(line, `msg="snapshot taken"`) {
		return span{}, false
	}
	end, err := time.Parse(time.RFC3339Nano, valueOf(line, "time"))
	if err != nil {
		return span{}, false
	}
	seconds, err := strconv.ParseFloat(valueOf(line, "seconds"), 64)
	if err != nil {
		return span{}, false
	}
	return span{end.Add(-time.Duration(seconds * float64(time.Second))), end}, true
}

// valueOf returns the value of a key of a line of the log in text, without its quotes; "" if it has none.
func valueOf(line, key string) string {
	for _, word := range strings.Fields(line) {
		if value, ok := strings.CutPrefix(word, key+"="); ok {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}
