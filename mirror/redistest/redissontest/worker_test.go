package redissontest

import (
	"context"
	"errors"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// beginMs is when each bubble of synctest begins, midnight UTC 2000-01-01.
const beginMs = 946_684_800_000

// happening is what a worker under test is told at a moment, in milliseconds since it began.
type happening struct {
	at    int64
	event any // of the channel
}

// message is a message with a time, in milliseconds since the worker began.
func message(at, dueIn int64) happening {
	return happening{at, &redis.Message{Payload: strconv.FormatInt(beginMs+dueIn, 10)}}
}

func subscribed(at int64) happening { return happening{at, &redis.Subscription{Kind: "subscribe"}} }

// due is an answer with a time, in milliseconds since the worker began.
func due(in int64) reply {
	return reply{next: strconv.FormatInt(beginMs+in, 10)}
}

// schedule is what a worker hears, what its transfers answer one after the other and how long each
// takes, and when it transfers. After the answers that are given, nothing is left. All times are in
// milliseconds.
type schedule struct {
	name    string
	hears   []happening
	answers []reply
	takes   int64
	want    []int64
}

func schedules() []schedule {
	nothing := reply{}
	return []schedule{
		{"nothing to do", []happening{subscribed(3)}, nil, 0, []int64{3}},
		{"it subscribes again", []happening{subscribed(0), subscribed(70)}, nil, 0, []int64{0, 70}},
		{"a message sets the timer", []happening{message(0, 100)}, nil, 0, []int64{100}},
		{"soon is now", []happening{message(0, 10)}, nil, 0, []int64{0}},
		{"later is not", []happening{message(0, 11)}, nil, 0, []int64{11}},
		{"what is over is now", []happening{message(20, -100)}, nil, 0, []int64{20}},
		{"an earlier time", []happening{message(0, 500), message(50, 100)}, nil, 0, []int64{100}},
		{"a later time delays", []happening{message(0, 100), message(50, 500)}, nil, 0, []int64{500}},
		{"an answer is as a message", []happening{subscribed(0)}, []reply{due(300), due(700)}, 0, []int64{0, 300, 700}},
		{"a backlog goes at once", []happening{subscribed(0)}, []reply{due(-9), due(-8), due(-7)}, 0, []int64{0, 0, 0, 0}},
		{"an error", []happening{subscribed(0)}, []reply{{err: errors.New("broken")}, due(6000)}, 0, []int64{0, 5000, 6000}},
		{"a fraction", []happening{subscribed(0)}, []reply{{next: "1700000000123.5"}}, 0, []int64{0, 5000}},
		{"too large", []happening{subscribed(0)}, []reply{{next: "1e+17"}, {next: "inf"}}, 0, []int64{0, 5000, 10000}},
		{"an error delays", []happening{message(0, 900), subscribed(1)}, []reply{{err: errors.New("broken")}}, 0,
			[]int64{1, 5001}},
		{"a message before the time to try again", []happening{subscribed(0), message(50, 100)},
			[]reply{{err: errors.New("broken")}}, 0, []int64{0, 100}},
		{"a wake-up",
			[]happening{message(0, 300), {50, &redis.Message{Payload: "0"}}}, []reply{due(300)}, 0, []int64{50, 300}},
		{"a wake-up stops the timer", []happening{message(0, 300), {50, &redis.Message{Payload: "0"}}}, nil, 0, []int64{50}},
		{"no answer leaves the timer", []happening{subscribed(0), message(10, 100)}, []reply{nothing}, 20, []int64{0, 100}},
		{"an answer that was overtaken delays", []happening{subscribed(0), message(10, 100)}, []reply{due(400)}, 20,
			[]int64{0, 400}},
		{"transfers go side by side", []happening{subscribed(0), message(10, 0)}, nil, 20, []int64{0, 10}},
		{"no number", []happening{message(0, 100), {50, &redis.Message{Payload: "soon"}}}, nil, 0, []int64{100}},
		{"the end of time", []happening{{0, &redis.Message{Payload: strconv.Itoa(math.MaxInt64)}}}, nil, 0, nil},
	}
}

// TestSchedule: when a worker transfers, to the millisecond.
func TestSchedule(t *testing.T) {
	for _, tc := range schedules() {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				incoming, ended := make(chan any), make(chan struct{})
				var transfers []int64
				w := tc.worker(&transfers)
				go func() {
					defer close(ended)
					w.follow(ctx, incoming)
				}()
				for _, h := range tc.hears {
					time.Sleep(time.Until(time.UnixMilli(beginMs + h.at)))
					incoming <- h.event
					synctest.Wait()
				}
				time.Sleep(time.Hour)
				cancel()
				<-ended
				if diff := cmp.Diff(tc.want, transfers); diff != "" {
					t.Errorf("it transferred (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// worker returns a worker whose transfers are entered in a list and answer what the schedule says.
func (s schedule) worker(transfers *[]int64) *worker {
	c := New(nil, "orders", NewGeneration, time.Now)
	return &worker{clock: c.clock, observe: c.observe, retryAfter: c.retryAfter, transfer: func(_ context.Context,
		nowMs int64) (string, error) {
		*transfers = append(*transfers, nowMs-beginMs)
		var r reply
		if n := len(*transfers); n <= len(s.answers) {
			r = s.answers[n-1]
		}
		<-time.NewTimer(time.Duration(s.takes) * time.Millisecond).C
		return r.next, r.err
	}}
}

// live is a worker that runs against a real server.
type live struct {
	*queue
	replies chan reply
}

// run starts a worker, which is stopped when the test ends.
func run(q *queue) *live {
	l := &live{q, make(chan reply, 100)}
	q.retryAfter = time.Millisecond
	ctx, cancel := context.WithCancel(q.Context())
	l.Observe(func(next string, err error) {
		select {
		case l.replies <- reply{next, err}:
		case <-ctx.Done():
		}
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Client.Run(ctx)
	}()
	q.Cleanup(func() {
		cancel()
		<-ended
	})
	return l
}

// wantReplies waits for as many transfers, and compares what they answer.
func (l *live) wantReplies(want ...string) {
	l.Helper()
	for _, w := range want {
		if r := <-l.replies; r.err != nil || r.next != w {
			l.Errorf("a transfer answers %q, %v, want %q", r.next, r.err, w)
		}
	}
}

// TestRun: a worker delivers what was due before it came, then what falls due, and what fell due
// while it was cut off.
func TestRun(t *testing.T) {
	q := newQueue(t, NewGeneration)
	for due := range int64(150) {
		q.offer(r0, strconv.FormatInt(due, 10), due)
	}
	l := run(q)
	l.wantReplies("100", "")
	if all, err := q.TakeAll(t.Context()); err != nil || len(all) != 150 || !equal(all[149], "149") {
		t.Errorf("%d were delivered, %v", len(all), err)
	}
	q.offer(r0, "soon", time.Now().Add(20*time.Millisecond).UnixMilli())
	l.wantReplies("")
	q.wantReady("soon")
	q.offerRaw(unhex(t, "080001020304050607050000000000000068656c6c6f"), "1") // it is not announced
	if cut := q.server.CutClients(); cut == 0 {
		t.Error("nobody was cut off")
	}
	l.wantReplies("")
	q.wantReady("soon", "hello")
}

// TestRunWake: what was added and not published is delivered once anything is, such as a time that
// is over.
func TestRunWake(t *testing.T) {
	l := run(newQueue(t, OldGeneration))
	l.wantReplies("")
	l.offerRaw(unhex(t, "81e97df41022b143050000000000000068656c6c6f"), "1")
	l.wantReady()
	if err := l.redis.Publish(t.Context(), l.channel, 0).Err(); err != nil {
		t.Fatal(err)
	}
	l.wantReplies("")
	l.wantReady("hello")
}

// TestRunPoison: what cannot be read is tried again and again, and what is before it delivered as
// often.
func TestRunPoison(t *testing.T) {
	q := newQueue(t, NewGeneration)
	q.offer(r0, "first", 1)
	q.offerRaw(unhex(t, "81e97df41022b143050000000000000068656c6c6f"), "2")
	l := run(q)
	for range 3 {
		if r := <-l.replies; r.err == nil {
			t.Errorf("a transfer answers %q", r.next)
		}
	}
	if ready, err := q.redis.LRange(t.Context(), q.ready, 0, 2).Result(); err != nil || !cmp.Equal(ready,
		[]string{"first", "first", "first"}) {
		t.Errorf("ready are %q, %v", ready, err)
	}
}

// TestRunNegative: a score below zero has a worker transfer without a pause.
func TestRunNegative(t *testing.T) {
	q := newQueue(t, NewGeneration)
	q.offer(r0, "never", -1)
	l := run(q)
	for range 1000 {
		l.wantReplies("-1")
	}
	l.wantReady()
}
