package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/compare/peer"
)

// A server writes a snapshot once it has logged as many bytes as the last snapshot has, and at
// least 64 MiB. Large jobs that are put and cancelled fill the log: at full speed until the next
// snapshot is near, and then slowly, so the measurement covers the snapshot and not the filling.
const (
	ballastBytes   = 64 << 10
	ballastCallers = 8
	// ballastEvery is how often a large job is put in the slow part.
	ballastEvery = 20 * time.Millisecond
	// nearPart is how much of the way is gone fast, nearStep how much of it at a time, loggedMin the
	// least that is logged between two snapshots.
	nearPart  = 0.85
	nearStep  = 0.05
	loggedMin = 64 << 20
	// snapshotsMax is how long a snapshot is waited for.
	snapshotsMax = 4 * time.Minute
)

// answered is one put of the schedule.
type answered struct {
	at   time.Time
	took time.Duration
}

// span is the time from begin to end.
type span struct{ begin, end time.Time }

// removed is when the files that a snapshot replaced are gone: their removal follows, and rests as
// the writing did. It takes less than that.
func (s span) removed() time.Time { return s.end.Add(s.end.Sub(s.begin)) }

// snapshots fills servers, and compares puts on schedule while one of them writes a snapshot with
// those before and after.
func snapshots(ctx context.Context, r *peer.Running, set settings) (_ []sample, err error) {
	fill, err := fillUp(ctx, r, set.jobs, false)
	if err != nil {
		return nil, err
	}
	if err := nearSnapshot(ctx, r); err != nil {
		return nil, err
	}
	putters, err := crowdOf(ctx, r, lateCallers, peer.Library)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, putters.closeAll()) }()
	puts, err := putsAroundSnapshot(ctx, r, putters)
	if err != nil {
		return nil, err
	}
	spans, err := snapshotsOf(r.Processes)
	if err != nil {
		return nil, err
	}
	calm, during := split(puts, spans)
	calm.Jobs, during.Jobs = set.jobs, set.jobs
	return []sample{fill, calm, during}, nil
}

// nearSnapshot logs until snapshots were written, and then most of what is logged until the next.
// What is logged while one is written counts towards the next.
func nearSnapshot(ctx context.Context, r *peer.Running) error {
	ctx, cancel := context.WithTimeoutCause(ctx, snapshotsMax,
		fmt.Errorf("no snapshot was written within %v", snapshotsMax))
	defer cancel()
	var logged []progress
	for began := time.Now(); ; {
		spans, err := lastSnapshots(r.Processes, began)
		if err != nil {
			return err
		}
		size, err := snapshotBytes(ctx, r.URLs[0])
		if err != nil {
			return err
		}
		size = max(size, loggedMin)
		if len(spans) == len(r.Processes) && float64(loggedSince(logged, spans)) >= nearPart*size {
			return nil
		}
		bytes := int64(size * nearStep)
		if err := ballast(ctx, r.SDK, 0, bytes); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		logged = append(logged, progress{time.Now(), bytes})
	}
}

// progress is what was logged in the step that ended at a time.
type progress struct {
	at    time.Time
	bytes int64
}

// loggedSince returns how much was logged after the first of some snapshots began.
func loggedSince(logged []progress, spans []span) (bytes int64) {
	first := slices.MinFunc(spans, func(a, b span) int { return a.begin.Compare(b.begin) })
	for _, p := range logged {
		if p.at.After(first.begin) {
			bytes += p.bytes
		}
	}
	return bytes
}

// lastSnapshots returns the last snapshot of each process that has written one which began after a
// time.
func lastSnapshots(processes []*peer.Process, after time.Time) (last []span, err error) {
	for _, p := range processes {
		spans, err := snapshotsOf([]*peer.Process{p})
		if err != nil {
			return nil, err
		}
		if n := len(spans); n > 0 && spans[n-1].begin.After(after) {
			last = append(last, spans[n-1])
		}
	}
	return last, nil
}

// putsAroundSnapshot puts on schedule until a snapshot was written.
func putsAroundSnapshot(ctx context.Context, r *peer.Running, putters crowd) ([]answered, error) {
	var mu sync.Mutex
	var puts []answered
	began := time.Now()
	window, stop := context.WithTimeoutCause(ctx, snapshotsMax,
		fmt.Errorf("no snapshot was written within %v", snapshotsMax))
	defer stop()
	group, window := errgroup.WithContext(window)
	group.Go(func() error { return ballast(window, r.SDK, ballastEvery, math.MaxInt64) })
	group.Go(func() error {
		err := putters.onSchedule(window, scheduleRate*int64(snapshotsMax.Seconds()), 0,
			func(at time.Time, took time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				puts = append(puts, answered{at, took})
			})
		if window.Err() != nil {
			return nil // it ends with the snapshot
		}
		return err
	})
	group.Go(func() error {
		defer stop()
		return awaitSnapshot(window, r.Processes, began)
	})
	return puts, group.Wait()
}

// ballast puts large jobs and cancels them until ctx ends or so many bytes are logged, one each so
// often, or as fast as it goes.
func ballast(ctx context.Context, sdk *client.Client, every time.Duration, bytes int64) error {
	var put atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range ballastCallers {
		group.Go(func() error {
			body := make([]byte, ballastBytes)
			for put.Add(ballastBytes) <= bytes {
				job, err := sdk.Put(ctx, peer.QueueName(0), body, client.In(time.Hour))
				if err == nil {
					_, err = sdk.Cancel(ctx, peer.QueueName(0), job.ID)
				}
				if err == nil && every > 0 {
					err = pause(ctx, ballastCallers*every)
				}
				if ctx.Err() != nil {
					return nil
				}
				if err != nil {
					return fmt.Errorf("filling the log: %w", err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// awaitSnapshot waits until a process has written a snapshot that began after a time, and has
// removed what that replaced.
func awaitSnapshot(ctx context.Context, processes []*peer.Process, after time.Time) error {
	for {
		spans, err := lastSnapshots(processes, after)
		if err != nil {
			return err
		}
		if len(spans) > 0 {
			return pause(ctx, time.Until(spans[0].removed()))
		}
		if err := pause(ctx, time.Second/4); err != nil {
			return err
		}
	}
}

// snapshotBytes returns the size of the largest snapshot of a server, by its metrics.
func snapshotBytes(ctx context.Context, url string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("asking for metrics: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, fmt.Errorf("asking for metrics: %w", err)
	}
	return largest(string(text), "belfry_shard_snapshot_bytes"), nil
}

// largest returns the greatest value of a metric in the text format of Prometheus, 0 if there is
// none.
func largest(text, metric string) float64 {
	most := 0.0
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 2 || !strings.HasPrefix(fields[0], metric+"{") {
			continue
		}
		if value, err := strconv.ParseFloat(fields[1], 64); err == nil {
			most = max(most, value)
		}
	}
	return most
}

// snapshotsOf reads in the logs of servers when they wrote snapshots.
func snapshotsOf(processes []*peer.Process) ([]span, error) {
	var spans []span
	for _, p := range processes {
		text, err := os.ReadFile(p.Log)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if one, ok := spanOf(line); ok {
				spans = append(spans, one)
			}
		}
	}
	return spans, nil
}

// split sorts puts into those that were under way while a snapshot was written and what it replaced
// removed, and the others, each a sample.
func split(puts []answered, spans []span) (calm, during sample) {
	calm, during = sample{Phase: "calm", Seconds: 1}, sample{Phase: "snapshot", Seconds: 1}
	without, with := newHistogram(), newHistogram()
	for _, p := range puts {
		inside := slices.ContainsFunc(spans, func(s span) bool {
			return p.at.Before(s.removed()) && p.at.Add(p.took).After(s.begin)
		})
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

// spanOf reads a line of the log: it is written at the end of a snapshot, and says how long it
// took.
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

// valueOf returns the value of a key of a line of the log in text, without its quotes; "" if it has
// none.
func valueOf(line, key string) string {
	for _, word := range strings.Fields(line) {
		if value, ok := strings.CutPrefix(word, key+"="); ok {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}
