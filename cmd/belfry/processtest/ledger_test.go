package processtest

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/client"
)

// story is what happens to the first job of a ledger: put at second 0, due at second 1.
type story struct {
	l    *Ledger
	zero time.Time
	body []byte
	// fence is that of the last delivery, which an ack is for.
	fence uint64
}

// second returns a moment of the story.
func (s *story) second(n int) time.Time { return s.zero.Add(time.Duration(n) * time.Second) }

// put ends the put.
func (s *story) put(err error) { s.l.wasPut(0, time.Millisecond, err) }

// deliver delivers the job with a lease of two seconds.
func (s *story) deliver(second, attempt int, fence uint64) { s.deliverLate(second, 0, attempt, fence) }

// deliverLate is deliver of a job whose answer was so many seconds on its way.
func (s *story) deliverLate(second, late, attempt int, fence uint64) {
	s.l.delivered(&client.Job{
		Queue: "q", ID: "0-1", Body: s.body, Attempt: attempt, Fence: fence, FirstDueAt: s.second(1),
		LeaseUntil: s.second(second - late + 2),
	}, s.second(second))
	s.fence = fence
}

// ack ends an ack of the last delivery.
func (s *story) ack(err error) { s.l.wasAcked(0, s.fence, err) }

// ledgerCase is a story of one job, what it adds up to, and what is called wrong.
type ledgerCase struct {
	name     string
	play     func(s *story)
	want     Account
	problems []string // each is part of the error
}

// kept are stories in which every promise is kept.
func kept() []ledgerCase {
	return []ledgerCase{
		{"put, delivered, acked", func(s *story) {
			s.put(nil)
			s.deliver(1, 1, 5)
			s.ack(nil)
		}, Account{Put: 1, Acked: 1}, nil},
		{"delivered before its put returns", func(s *story) {
			s.deliver(1, 1, 5)
			s.ack(nil)
			s.put(nil)
		}, Account{Put: 1, Acked: 1}, nil},
		{"acked twice", func(s *story) {
			s.put(nil)
			s.deliver(1, 1, 5)
			s.ack(nil)
			s.ack(nil)
		}, Account{Put: 1, Acked: 1}, nil},
		{
			"delivered again after its lease", func(s *story) {
				s.put(nil)
				s.deliver(1, 1, 5)
				s.deliver(3, 2, 6)
				s.ack(client.ErrStaleLease)
				s.deliver(5, 3, 7)
				s.ack(nil)
			},
			Account{Put: 1, Acked: 1, Twice: 1, StaleAcks: 1}, nil,
		},
		{"a grant that nobody saw", func(s *story) {
			s.put(nil)
			s.deliver(9, 3, 7)
			s.ack(nil)
		}, Account{Put: 1, Acked: 1, Unseen: 2}, nil},
		{
			"an answer that comes after the next holder's", func(s *story) {
				s.put(nil)
				s.deliver(3, 2, 6)
				s.deliverLate(4, 3, 1, 5)
				s.ack(client.ErrStaleLease)
				s.deliver(5, 3, 7)
				s.ack(nil)
			},
			Account{Put: 1, Acked: 1, Twice: 1, StaleAcks: 1}, nil,
		},
		{
			"an answer that comes after the next holder's ack", func(s *story) {
				s.put(nil)
				s.deliver(3, 2, 6)
				s.ack(nil)
				s.deliverLate(4, 3, 1, 5)
				s.ack(client.ErrStaleLease)
			},
			Account{Put: 1, Acked: 1, Twice: 1, StaleAcks: 1}, nil,
		},
	}
}

// brokenPromises are stories in which one is broken.
func brokenPromises() []ledgerCase {
	broken := errors.New("broken")
	return []ledgerCase{
		{
			"never delivered", func(s *story) { s.put(nil) }, Account{Put: 1, Lost: 1, Problems: 1},
			[]string{"job 0 was put and never delivered and acked; it has 0 deliveries"},
		},
		{
			"delivered and not acked", func(s *story) { s.put(nil); s.deliver(1, 1, 5) }, Account{Put: 1, Lost: 1, Problems: 1},
			[]string{"it has 1 deliveries"},
		},
		{
			"early", func(s *story) {
				s.put(nil)
				s.deliver(0, 1, 5)
				s.ack(nil)
			}, Account{Put: 1, Acked: 1, Early: 1, Problems: 1},
			[]string{"job 0 was delivered 1s early"},
		},
		{
			"after its ack", func(s *story) { s.put(nil); s.deliver(1, 1, 5); s.ack(nil); s.deliver(4, 2, 6) },
			Account{Put: 1, Acked: 1, Twice: 1, Problems: 1}, []string{"job 0 was delivered after its ack"},
		},
		{
			"two holders", func(s *story) { s.put(nil); s.deliver(1, 1, 5); s.deliver(2, 2, 6); s.ack(nil) },
			Account{Put: 1, Acked: 1, Twice: 1, Problems: 1}, []string{"while the lease of fence 5 ran"},
		},
		{
			"two holders, of which the first hears of it last", func(s *story) {
				s.put(nil)
				s.deliver(2, 2, 6)
				s.deliverLate(3, 2, 1, 5)
				s.ack(client.ErrStaleLease)
				s.deliver(4, 3, 7)
				s.ack(nil)
			},
			Account{Put: 1, Acked: 1, Twice: 1, StaleAcks: 1, Problems: 1}, []string{"while the lease of fence 5 ran"},
		},
		{
			"fence and attempt stand still", func(s *story) { s.put(nil); s.deliver(1, 1, 5); s.deliver(4, 1, 5); s.ack(nil) },
			Account{
				Put: 1, Acked: 1, Twice: 1, Problems: 2,
			}, []string{"fence 5 came after fence 5", "attempt 1 came after attempt 1"},
		},
		{"a put that failed", func(s *story) {
			s.put(broken)
		}, Account{FailedCalls: 1, Problems: 1}, []string{"putting job 0: broken"}},
		{
			"an ack that failed", func(s *story) { s.put(nil); s.deliver(1, 1, 5); s.ack(broken); s.ack(nil) },
			Account{Put: 1, Acked: 1, FailedCalls: 1, Problems: 1}, []string{"acking job 0: broken"},
		},
		{
			"a job that nobody put", func(s *story) {
				s.put(nil)
				s.deliver(1, 1, 5)
				s.ack(nil)
				binary.LittleEndian.PutUint64(s.body, 1)
				s.deliver(1, 1, 6)
				s.body = nil
				s.deliver(1, 1, 7)
			},
			Account{Put: 1, Acked: 1, Problems: 2}, []string{"job 0-1 of q was delivered, which nobody put"},
		},
	}
}

func TestLedger(t *testing.T) {
	for _, tc := range slices.Concat(kept(), brokenPromises()) {
		t.Run(tc.name, func(t *testing.T) {
			s := &story{l: NewLedger(), zero: time.Unix(1_000_000, 0)}
			_, s.body = s.l.beginPut(s.zero, time.Second)
			tc.play(s)
			got, err := s.l.Close()
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("account (-want +got):\n%s", diff)
			}
			if (err == nil) != (len(tc.problems) == 0) {
				t.Errorf("the error is %v, want %q", err, tc.problems)
			}
			for _, problem := range tc.problems {
				if err != nil && !strings.Contains(err.Error(), problem) {
					t.Errorf("the error is %v, want %q", err, problem)
				}
			}
		})
	}
}

// TestAwait: it returns when the last job is acked, and says how many are missing when it must give
// up.
func TestAwait(t *testing.T) {
	l := NewLedger()
	if err := l.Await(t.Context()); err != nil {
		t.Errorf("nothing was put: %v", err)
	}
	for range 2 {
		n, _ := l.beginPut(time.Now(), 0)
		l.wasPut(n, 0, nil)
	}
	l.wasAcked(0, 0, nil)
	done := make(chan error)
	go func() { done <- l.Await(t.Context()) }()
	l.wasAcked(1, 0, nil)
	if err := <-done; err != nil {
		t.Errorf("both are acked: %v", err)
	}
	n, _ := l.beginPut(time.Now(), 0)
	l.wasPut(n, 0, nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Await(ended); err == nil || !strings.HasPrefix(err.Error(), "1 jobs whose put returned ok") {
		t.Errorf("one is not acked: %v", err)
	}
}

// TestSpans: lateness and unseen grants count by the due time and puts by their beginning, up to a
// span's end and not with it.
func TestSpans(t *testing.T) {
	zero := time.Unix(1_000_000, 0)
	l := NewLedger()
	for i := range 4 {
		at := zero.Add(time.Duration(i) * time.Second)
		n, body := l.beginPut(at, 0)
		l.wasPut(n, time.Duration(i)*time.Millisecond, nil)
		l.delivered(&client.Job{Body: body, Attempt: max(1, i), FirstDueAt: at}, at.Add(time.Duration(i)*time.Minute))
	}
	within := Span{zero.Add(time.Second), zero.Add(3 * time.Second)}
	if diff := cmp.Diff(Durations{time.Minute, 2 * time.Minute}, l.Lateness(within)); diff != "" {
		t.Errorf("lateness (-want +got):\n%s", diff)
	}
	if unseen := l.Unseen(within); unseen != 1 {
		t.Errorf("%d jobs were granted to nobody's knowledge, want 1", unseen)
	}
	if diff := cmp.Diff(Durations{time.Millisecond, 2 * time.Millisecond}, l.PutTimes(within)); diff != "" {
		t.Errorf("puts (-want +got):\n%s", diff)
	}
}

func TestDurations(t *testing.T) {
	hundred := make(Durations, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i)
	}
	for _, tc := range []struct {
		of    Durations
		share float64
		want  time.Duration
	}{
		{nil, 0.5, 0},
		{Durations{7}, 0, 7},
		{Durations{7}, 1, 7},
		{Durations{3, 1, 2}, 0.5, 2},
		{Durations{3, 1, 2}, 0.99, 3},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 1, 100},
	} {
		if got := tc.of.At(tc.share); got != tc.want {
			t.Errorf("%v at %v is %v, want %v", tc.of, tc.share, got, tc.want)
		}
	}
}
