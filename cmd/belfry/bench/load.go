package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// The range of what is measured: from a microsecond to an hour, to three digits.
const (
	lowestMicros  = 1
	highestMicros = int64(time.Hour / time.Microsecond)
	digits        = 3
)

func newHistogram() *hdr.Histogram { return hdr.New(lowestMicros, highestMicros, digits) }

// record adds a duration; one beyond the range counts as its end.
func record(h *hdr.Histogram, d time.Duration) {
	micros := min(max(d.Microseconds(), 0), highestMicros)
	h.RecordValue(micros) //nolint:errcheck // it is in range
}

// latencies are the durations that several workers measure, in a few histograms: each worker's own
// would be more memory than caches hold and a tenth of the client's time, a single one would be
// fought over.
type latencies [8]struct {
	sync.Mutex
	histogram *hdr.Histogram
}

func newLatencies() *latencies {
	l := &latencies{}
	for i := range l {
		l[i].histogram = newHistogram()
	}
	return l
}

// record adds a duration that a worker measured.
func (l *latencies) record(worker int, d time.Duration) {
	part := &l[worker%len(l)]
	part.Lock()
	defer part.Unlock()
	record(part.histogram, d)
}

// sum returns all durations. No worker may still record.
func (l *latencies) sum() *hdr.Histogram {
	sum := newHistogram()
	for i := range l {
		sum.Merge(l[i].histogram)
	}
	return sum
}

// budget is what a phase may still do: so many jobs, or until a time. Any goroutine may use it.
type budget struct {
	began    time.Time
	left     atomic.Int64
	limited  bool
	deadline time.Time
}

func newBudget(jobs uint64, length time.Duration) *budget {
	b := &budget{began: time.Now(), limited: jobs > 0}
	if b.limited {
		b.left.Store(int64(jobs)) //nolint:gosec // no benchmark has 2^63 jobs
	} else {
		b.deadline = b.began.Add(length)
	}
	return b
}

// take returns how many of the wanted jobs may be done; 0 ends the phase.
func (b *budget) take(want int) int {
	if !b.limited {
		if time.Now().Before(b.deadline) {
			return want
		}
		return 0
	}
	left := b.left.Add(-int64(want))
	if left >= 0 {
		return want
	}
	return max(0, want+int(left))
}

// measured is what a phase did.
type measured struct {
	calls, jobs uint64
	errors      uint64
	firstError  error
	length      time.Duration
	latency     *hdr.Histogram
}

// closed lets workers make one call after the other until the budget is used up, and times each
// call. op makes one call for up to so many jobs and returns how many it did. A call that fails
// ends its worker: what comes after an error measures something else.
func closed(ctx context.Context, workers int, b *budget, want int,
	op func(ctx context.Context, worker, jobs int) (int, error)) measured {
	parts := make([]measured, workers)
	calls := newLatencies()
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			part := &parts[worker]
			for ctx.Err() == nil {
				jobs := b.take(want)
				if jobs == 0 {
					return
				}
				start := time.Now()
				done, err := op(ctx, worker, jobs)
				calls.record(worker, time.Since(start))
				part.calls++
				part.jobs += uint64(done) //nolint:gosec // a count
				if err != nil {
					part.errors++
					part.firstError = err
					return
				}
			}
		})
	}
	group.Wait()
	m := merged(parts)
	m.length, m.latency = time.Since(b.began), calls.sum()
	return m
}

// merged adds up what workers did side by side.
func merged(parts []measured) (sum measured) {
	for _, part := range parts {
		sum.calls += part.calls
		sum.jobs += part.jobs
		sum.errors += part.errors
		if sum.firstError == nil {
			sum.firstError = part.firstError
		}
	}
	return sum
}

// failure returns the error that makes a phase worthless, if there is one.
func (m measured) failure(ctx context.Context) error {
	if m.firstError != nil {
		return m.firstError
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// stampBytes is the length of the time stamp at the beginning of each body.
const stampBytes = 8

// filler returns what a body of the given size has behind its stamp; it is made once, so that the
// client's own work does not count against the server.
func filler(size int) []byte {
	text := make([]byte, size)
	for i := range text {
		text[i] = 'a' + byte(i%26)
	}
	return text
}

// stamped returns a body that says when it was made, and is else as the filler.
func stamped(filler []byte, now time.Time) []byte {
	body := append([]byte(nil), filler...)
	restamp(body, now)
	return body
}

// restamp writes another time into a stamped body.
func restamp(body []byte, now time.Time) {
	binary.BigEndian.PutUint64(body, uint64(now.UnixNano())) //nolint:gosec // after 1970
}

// errForeign is a body that no producer of this run made.
var errForeign = errors.New("a job came that this run did not put")

// stampOf returns the time that stamped wrote.
func stampOf(body []byte) (time.Time, error) {
	if len(body) < stampBytes {
		return time.Time{}, errForeign
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(body))), nil //nolint:gosec // written by stamped
}
