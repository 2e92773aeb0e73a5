package auth

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestTrailIsBounded: a trail has the last calls, at most so many and so many bytes, and knows since
// when it has all.
func TestTrailIsBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	trail := NewTrail("n1", func() time.Time { now = now.Add(time.Second); return now })
	begun := now
	bytes := func() (all int) {
		for _, r := range trail.records {
			all += proto.Size(r)
		}
		return all
	}
	check := func(first, last uint64, since time.Time) {
		t.Helper()
		page := trail.Page(&TrailQuery{}, trailCallsMax+1)
		if n := len(page.Records); n != int(last-first+1) || page.Kept != n || page.Records[0].Serial != last ||
			page.Records[n-1].Serial != first || !page.Since.Equal(since) || trail.bytes != bytes() || bytes() > trailBytesMax {
			t.Errorf("%d calls %d to %d, %d bytes (%d), all since %v; want %d to %d since %v", n, page.Records[n-1].Serial,
				page.Records[0].Serial, trail.bytes, bytes(), page.Since, first, last, since)
		}
	}
	for range trailCallsMax {
		trail.add(&belfryv1.AuditRecord{})
	}
	check(1, trailCallsMax, begun)
	trail.add(&belfryv1.AuditRecord{})
	check(2, trailCallsMax+1, begun.Add(time.Second))
	for range trailCallsMax {
		trail.add(&belfryv1.AuditRecord{Request: strings.Repeat("x", auditedBytesMax)})
	}
	last := uint64(2*trailCallsMax + 1)
	first := last + 1 - uint64(len(trail.records))
	check(first, last, begun.Add(time.Duration(first-1)*time.Second))
	if n := len(trail.records); n < 500 || n > 512 {
		t.Errorf("%d calls of 4 KiB are kept in 2 MiB", n)
	}
}

// TestTrailPages: pages follow each other without a gap, also if the clock goes back or stands still.
func TestTrailPages(t *testing.T) {
	times := []int64{5, 5, 5, 9, 2, 3, 3, 9}
	next := 0
	trail := NewTrail("n1", func() time.Time {
		at := time.Unix(times[max(0, next-1)], 0)
		next++
		return at
	})
	for range times {
		trail.add(&belfryv1.AuditRecord{Outcome: outcomeOK})
	}
	var got []string
	query := &TrailQuery{}
	for {
		page := trail.Page(query, 3)
		if len(page.Records) == 0 {
			break
		}
		for _, r := range page.Records {
			got = append(got, fmt.Sprintf("%d:%d", r.EndedAt.Seconds, r.Serial))
			query.After = r
		}
	}
	if want := "[9:8 9:4 5:3 5:2 5:1 3:7 3:6 2:5]"; fmt.Sprint(got) != want {
		t.Errorf("the pages have %v, want %s", got, want)
	}
}

// TestTrailAtOnce: calls may be added and read at once.
func TestTrailAtOnce(t *testing.T) {
	trail := NewTrail("n1", time.Now)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 500 {
				trail.add(&belfryv1.AuditRecord{Outcome: outcomeOK})
				for _, r := range trail.Page(&TrailQuery{}, 10).Records {
					if _, err := proto.Marshal(r); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	if page := trail.Page(&TrailQuery{}, 1); page.Kept != trailCallsMax || page.Records[0].Serial != 2000 {
		t.Errorf("%d calls are kept, the last is %v", page.Kept, page.Records[0])
	}
}
