package mirrortrial

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
)

// ledger is what became of each payload. Its methods may be called from any goroutine.
type ledger struct {
	mu      sync.Mutex
	fates   []fate
	unknown []string
}

// fate is that of one payload.
type fate struct {
	sure          bool // the producer was told that it is there; else it may be
	redis, belfry uint8
	grants        []grant
	// mayHave says that a consumer of Belfry may be given it though Redis delivers it: a bridge was
	// putting it on the ready list when it ended, or its consumer at the source was late, and no
	// program has cancelled it yet. That is so until a time, or without end if that is zero.
	mayHave  bool
	until    time.Time
	attempts int // at least, of such a grant
}

// grant is that Belfry gave a payload to a consumer.
type grant struct {
	at      time.Time
	attempt int
}

// twice reports whether the payload was delivered more often than is promised.
func (f *fate) twice() bool {
	if f.redis > 1 || f.belfry > 1 {
		return true
	}
	return f.redis > 0 && (f.belfry > 0 && len(f.grants) == 0 || slices.ContainsFunc(f.grants, func(g grant) bool {
		return !f.allows(g)
	}))
}

// allows reports whether a consumer of Belfry may have been given what Redis delivers: once the
// lease of the bridge had ended, and before the next process came.
func (f *fate) allows(g grant) bool {
	return f.mayHave && g.attempt >= f.attempts && (f.until.IsZero() || g.at.Before(f.until))
}

const payloadPrefix = "order "

// begin enters a payload that is about to be offered.
func (l *ledger) begin() (n int, payload []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = len(l.fates)
	l.fates = append(l.fates, fate{})
	return n, fmt.Appendf(nil, "%s%d", payloadPrefix, n)
}

// offered enters that an offer was answered.
func (l *ledger) offered(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fates[n].sure = true
}

// number is that of a payload; the caller holds the lock.
func (l *ledger) number(payload string) (int, bool) {
	text, ok := strings.CutPrefix(payload, payloadPrefix)
	n, err := strconv.Atoi(text)
	return n, ok && err == nil && n >= 0 && n < len(l.fates)
}

// byRedis enters payloads that Redisson has delivered, or holds alone.
func (l *ledger) byRedis(payloads ...string) {
	l.won(payloads, func(f *fate) *uint8 { return &f.redis })
}

// byBelfry enters payloads that Belfry has delivered, or holds alone.
func (l *ledger) byBelfry(payloads ...string) {
	l.won(payloads, func(f *fate) *uint8 { return &f.belfry })
}

func (l *ledger) won(payloads []string, side func(*fate) *uint8) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, payload := range payloads {
		if n, ok := l.number(payload); ok {
			*side(&l.fates[n])++
		} else {
			l.unknown = append(l.unknown, payload)
		}
	}
}

// granted enters jobs that Belfry gave to a consumer.
func (l *ledger) granted(jobs []*client.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, job := range jobs {
		if n, ok := l.number(string(job.Body)); ok {
			l.fates[n].grants = append(l.fates[n].grants, grant{job.LeaseUntil.Add(-job.TTR), job.Attempt})
		}
	}
}

// mayHave enters until when a consumer of Belfry may be given a payload that Redis delivers, and
// that it is the so many-th to be given it, at least.
func (l *ledger) mayHave(payload string, until time.Time, attempts int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n, ok := l.number(payload); ok {
		l.fates[n].mayHave, l.fates[n].until, l.fates[n].attempts = true, until, attempts
	}
}

// isInBelfry reports whether Belfry is known to have had a payload.
func (l *ledger) isInBelfry(payload string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, ok := l.number(payload)
	return ok && l.fates[n].belfry > 0
}

// missing returns the payloads whose offer was answered and that no consumer received.
func (l *ledger) missing() (payloads []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n, f := range l.fates {
		if f.sure && f.redis+f.belfry == 0 {
			payloads = append(payloads, fmt.Sprint(payloadPrefix, n))
		}
	}
	return payloads
}

// account is what a ledger adds up to.
type account struct {
	// Offered were answered. Of those in Doubt the answer was cut off; There are those of them that
	// came all the same.
	Offered, Doubt, There int
	// Redis and Belfry have so many each.
	Redis, Belfry int
	// Lost were offered and are nowhere, Twice are there more often than is promised, Unknown were
	// never offered. Both are there twice as may be.
	Lost, Twice, Unknown, Both int
}

func (l *ledger) account() account {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := account{Unknown: len(l.unknown)}
	for _, f := range l.fates {
		times := f.redis + f.belfry
		count := func(n *int, when bool) {
			if when {
				*n++
			}
		}
		count(&a.Offered, f.sure)
		count(&a.Doubt, !f.sure)
		count(&a.There, !f.sure && times > 0)
		count(&a.Redis, f.redis > 0)
		count(&a.Belfry, f.belfry > 0)
		count(&a.Lost, f.sure && times == 0)
		count(&a.Twice, f.twice())
		count(&a.Both, times > 1 && !f.twice())
	}
	return a
}

// some names payloads of which something is wrong.
func (l *ledger) some(wrong func(fate) bool) (names []string) {
	const most = 10
	l.mu.Lock()
	defer l.mu.Unlock()
	for n, f := range l.fates {
		if wrong(f) && len(names) < most {
			names = append(names, fmt.Sprintf("%d (%+v)", n, f))
		}
	}
	return names
}

// close checks that every payload reached one side, once, and that both had some if both should.
func (l *ledger) close(t *testing.T, both bool) account {
	t.Helper()
	a := l.account()
	if a.Lost > 0 || a.Twice > 0 || a.Unknown > 0 {
		t.Errorf("%d are lost, such as %v; %d are there twice, such as %v; %d were never offered", a.Lost,
			l.some(func(f fate) bool {
				return f.sure && f.redis+f.belfry == 0
			}),
			a.Twice, l.some(func(f fate) bool { return f.twice() }), a.Unknown)
	}
	if a.Offered == 0 || both && (a.Redis == 0 || a.Belfry == 0) {
		t.Errorf("the trial shows little: %+v", a)
	}
	return a
}

// TestLedger: what is lost, there twice or from nowhere is found; an offer in doubt may come or
// not.
func TestLedger(t *testing.T) {
	l := &ledger{}
	for n := range 12 {
		if _, payload := l.begin(); string(payload) != fmt.Sprintf("order %d", n) {
			t.Fatalf("payload %d is %q", n, payload)
		}
		if n < 6 || n > 7 {
			l.offered(n)
		}
	}
	l.byRedis("order 0", "order 1", "order 2", "order 6")
	l.byBelfry("order 2", "order 3", "order 4", "order 4", "order 12", "else")
	// Four that a bridge was putting on the list: one came after its lease, one before, one too late,
	// one was not acked.
	l.byRedis("order 8", "order 9", "order 10", "order 11")
	l.byBelfry("order 8", "order 9", "order 10")
	for n, attempt := range map[int]int{8: 2, 9: 1, 10: 2, 11: 1} {
		l.mayHave(fmt.Sprint("order ", n), time.Unix(int64(n)%10, 0), 2)
		l.granted([]*client.Job{{
			Body: fmt.Append(nil, "order ", n), Attempt: attempt, LeaseUntil: time.Unix(10, 0), TTR: 5 * time.Second,
		}})
	}
	if got := l.missing(); len(got) != 1 || got[0] != "order 5" {
		t.Errorf("missing are %q", got)
	}
	want := account{Offered: 10, Doubt: 2, There: 1, Redis: 8, Belfry: 6, Lost: 1, Twice: 5, Unknown: 2, Both: 1}
	if got := l.account(); got != want {
		t.Errorf("it adds up to %+v, should be %+v", got, want)
	}
	if !l.isInBelfry("order 4") || l.isInBelfry("order 0") {
		t.Error("it does not know what Belfry has")
	}
}
