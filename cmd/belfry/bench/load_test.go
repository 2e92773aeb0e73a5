package bench

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestBudgetOfJobs gives out exactly as many as there are, whichever goroutine asks.
func TestBudgetOfJobs(t *testing.T) {
	b := newBudget(10, time.Hour)
	var got []int
	for range 5 {
		got = append(got, b.take(4))
	}
	if want := [5]int{4, 4, 2, 0, 0}; [5]int(got) != want {
		t.Errorf("took %v, want %v", got, want)
	}
}

func TestBudgetOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(0, time.Second)
		if got := b.take(4); got != 4 {
			t.Errorf("at the beginning: %d, want 4", got)
		}
		<-time.After(time.Second)
		if got := b.take(4); got != 0 {
			t.Errorf("at the end: %d, want 0", got)
		}
	})
}

// TestClosedMeasuresCalls lets calls take a known time.
func TestClosedMeasuresCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := closed(t.Context(), 2, newBudget(10, 0), 1, func(_ context.Context, worker, jobs int) (int, error) {
			<-time.After([]time.Duration{10 * time.Millisecond, 33 * time.Millisecond}[worker])
			return jobs, nil
		})
		if m.calls != 10 || m.jobs != 10 || m.errors != 0 || m.failure(t.Context()) != nil {
			t.Errorf("got %+v, want 10 calls and jobs", m)
		}
		if most := time.Duration(m.latency.Max()) * time.Microsecond; most < 33*time.Millisecond ||
			most > 34*time.Millisecond {
			t.Errorf("the slowest call took %v, want 33ms", most)
		}
		// The slow worker begins its third call, the last of all, at 66 ms, when the fast one is in its
		// seventh.
		if m.length != 99*time.Millisecond {
			t.Errorf("it took %v, want 99ms", m.length)
		}
	})
}

// TestErrorEndsItsWorker counts the call that failed, and makes no further one.
func TestErrorEndsItsWorker(t *testing.T) {
	broken := errors.New("broken")
	var calls atomic.Int64
	m := closed(t.Context(), 1, newBudget(10, 0), 1, func(context.Context, int, int) (int, error) {
		if calls.Add(1) == 3 {
			return 0, broken
		}
		return 1, nil
	})
	if calls.Load() != 3 || m.jobs != 2 || m.errors != 1 || !errors.Is(m.failure(t.Context()), broken) {
		t.Errorf("%d calls, %+v; want 3 calls, 2 jobs and the error", calls.Load(), m)
	}
}

func TestStamp(t *testing.T) {
	at := time.Unix(1900000000, 123456789)
	same := filler(100)
	body := stamped(same, at)
	got, err := stampOf(body)
	if err != nil || !got.Equal(at) {
		t.Errorf("got %v, %v; want %v", got, err, at)
	}
	if len(body) != 100 || string(body[stampBytes:]) != string(same[stampBytes:]) || same[0] != 'a' {
		t.Errorf("the body is %q, made from %q", body, same)
	}
	if _, err := stampOf([]byte("short")); !errors.Is(err, errForeign) {
		t.Errorf("a foreign body gave %v", err)
	}
}

func TestPerJob(t *testing.T) {
	if got := perJob(Memory{ResidentBytes: 100}, Memory{ResidentBytes: 1100}, 10); got != 100 {
		t.Errorf("got %v, want 100", got)
	}
	if got := perJob(Memory{}, Memory{ResidentBytes: 1}, 0); got != 0 {
		t.Errorf("without jobs: %v, want 0", got)
	}
}
