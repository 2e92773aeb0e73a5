package node

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/outcome"
)

// moreOf is limitOf for a share that may still grow.
func moreOf(l admit.Limit, quota, granted uint64) admit.ShardQuota {
	s := limitOf(l, quota, granted)
	s.More[l] = true
	return s
}

// puts returns so many puts into a queue.
func puts(n int, queue string) (all []fsm.Command) {
	for range n {
		all = append(all, put(queue, "", 0))
	}
	return all
}

// waitingPut puts in the background and returns what tells how it ended.
func waitingPut(t *testing.T, n *Node, puts ...fsm.Command) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- tryPut(t, n, puts...) }()
	synctest.Wait()
	return ended
}

// shortOf returns what is used of a limit of t, and how much more is wanted.
func shortOf(n *Node, l admit.Limit) (used, short uint64) {
	_, all := n.QuotaUse(0)
	return all["t"].Use[l], all["t"].Short[l]
}

// TestDebtOfPutsIsPaidAtTheNewRate: a batch above a small share of a rate is paid for at what the
// share grows to.
func TestDebtOfPutsIsPaidAtTheNewRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, limitOf(admit.PutRate, 1_000_000, 1000))
		do(t, n, 0, puts(100, "t/q")...)
		for _, step := range []struct {
			rate uint64
			wait time.Duration
		}{{1000, 100 * time.Second}, {100_000, 10 * time.Millisecond}, {50_000, 1020 * time.Millisecond},
			{0, admit.QuotaWait}, {100_000, 10 * time.Millisecond}} {
			giveQuota(t, n, limitOf(admit.PutRate, 1_000_000, step.rate))
			quota, ok := errors.AsType[*admit.QuotaError](tryPut(t, n, put("t/q", "", 0)))
			if !ok || quota.Wait.Round(time.Millisecond) != step.wait {
				t.Errorf("at %d thousandths of a put per second it is to wait for %+v, want %v", step.rate, quota, step.wait)
			}
		}
		time.Sleep(10 * time.Millisecond)
		do(t, n, 0, put("t/q", "", 0))
	})
}

// TestRateIsWaitedFor: where a rate may still grow, a put that is above it goes on when time has
// made room.
func TestRateIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, moreOf(admit.PutRate, 100_000, 10_000))
		do(t, n, 0, puts(10, "t/q")...)
		began := time.Now()
		if err := tryPut(t, n, put("t/q", "", 0)); err != nil || time.Since(began) != 100*time.Millisecond {
			t.Errorf("after %v: %v, want a tenth of a second", time.Since(began), err)
		}
		do(t, n, 0, puts(100, "t/q")...)
		began = time.Now()
		if err := tryPut(t, n, put("t/q", "", 0)); !errors.Is(err, outcome.ErrRateLimited) ||
			time.Since(began) != admit.QuotaWait {
			t.Errorf("after %v: %v, want a refusal after a second", time.Since(began), err)
		}
	})
}

// TestRoomIsNoticed: a waiting put goes on when something ended in its namespace.
func TestRoomIsNoticed(t *testing.T) {
	for name, end := range map[string]fsm.Command{"cancelled": &fsm.Cancel{Queue: "t/q", ID: "x"},
		"queue deleted": &fsm.DeleteQueue{Queue: "t/q"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := openLimited(t, moreOf(admit.JobsLimit, 10, 1))
				do(t, n, 0, &fsm.Put{Queue: "t/q", Partitions: 1, ID: "x"})
				began, ended := time.Now(), waitingPut(t, n, put("t/other", "", 0))
				time.Sleep(admit.QuotaWait / 2)
				if r := do(t, n, 0, end).Results[0]; r.Code != fsm.OK {
					t.Fatalf("%+v", r)
				}
				if err := <-ended; err != nil || time.Since(began) != admit.QuotaWait/2 {
					t.Errorf("after %v: %v, want %v", time.Since(began), err, admit.QuotaWait/2)
				}
			})
		})
	}
}

// TestShortIsWhatAllLack: what all waiting requests lack is reported together, for as long as they
// wait. Of the requests that do not wait, only the largest lack is reported, for a moment.
func TestShortIsWhatAllLack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, moreOf(admit.JobsLimit, 100, 0))
		var waiting []<-chan error
		for i := range 5 {
			waiting = append(waiting, waitingPut(t, n, puts(1+i, "t/q")...))
		}
		for range 2 {
			if used, short := shortOf(n, admit.JobsLimit); used != 0 || short != 15 {
				t.Errorf("%d are used and %d lacking, want 0 and 15", used, short)
			}
		}
		giveQuota(t, n, moreOf(admit.JobsLimit, 100, 20))
		for _, w := range waiting {
			if err := <-w; err != nil {
				t.Error(err)
			}
		}
		if used, short := shortOf(n, admit.JobsLimit); used != 15 || short != 0 {
			t.Errorf("%d are used and %d lacking, want 15 and 0", used, short)
		}
		giveQuota(t, n, limitOf(admit.JobsLimit, 100, 15))
		for i := range 3 {
			expectRefusal(t, n, tryPut(t, n, puts(5-i, "t/q")...), admit.JobsLimit, lastIndex(n))
		}
		if _, short := shortOf(n, admit.JobsLimit); short != 5 {
			t.Errorf("%d are lacking, want what the first did", short)
		}
		time.Sleep(1500*time.Millisecond + 1)
		if _, short := shortOf(n, admit.JobsLimit); short != 0 {
			t.Errorf("%d are lacking after a while", short)
		}
	})
}

// TestShortOfPolls: polls of a namespace without free leases lack as many as there are jobs for
// them.
func TestShortOfPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, moreOf(admit.LeasesLimit, 100, 0))
		do(t, n, 0, puts(7, "t/q")...)
		var waiting sync.WaitGroup
		for range 10 {
			waiting.Go(func() { reserve(t, n, 0, "t/q", time.Second) })
		}
		time.Sleep(time.Second / 2)
		if _, short := shortOf(n, admit.LeasesLimit); short != 7 {
			t.Errorf("%d are lacking, want as many as there are jobs", short)
		}
		waiting.Wait()
	})
}

// TestFullNamespaceHoldsUpItsOwnOnly: a poll that names a full namespace and another queue does not
// hold up later polls of that queue. If it is the only poll of the full namespace, it has its job
// as soon as there is room.
func TestFullNamespaceHoldsUpItsOwnOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, limitOf(admit.LeasesLimit, 10, 0))
		poll := func(queues ...string) <-chan []fsm.Grant {
			got := make(chan []fsm.Grant, 1)
			go func() {
				req := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: queues, Max: 1, TTR: time.Minute}}}
				reply, err := n.Reserve(t.Context(), 0, req, Wait{For: time.Minute})
				if err != nil {
					t.Error(err)
				}
				got <- reply.Results[0].Grants
			}()
			synctest.Wait()
			return got
		}
		both, other := poll("t/a", "plain", "u/a"), poll("plain")
		third := poll("u/a")
		began := time.Now()
		do(t, n, 0, put("plain", "", 0), put("u/a", "", 0))
		for what, got := range map[string]<-chan []fsm.Grant{"plain": other, "u/a": third} {
			if grants := <-got; len(grants) != 1 || grants[0].Queue != what || time.Since(began) > 0 {
				t.Errorf("%s, after %v: %+v", what, time.Since(began), grants)
			}
		}
		do(t, n, 0, put("plain", "", 0))
		giveQuota(t, n, limitOf(admit.LeasesLimit, 10, 1))
		if grants := <-both; len(grants) != 1 || time.Since(began) > admit.QuotaPause {
			t.Errorf("after %v: %+v", time.Since(began), grants)
		}
	})
}

// taker has shares of a namespace and takes some of them.
func taker(t *testing.T, n *Node, puts ...fsm.Command) *admit.Reservation {
	t.Helper()
	req := &fsm.Request{Commands: puts}
	admitted, err := n.shards[0].Load().admission.Admit(t.Context(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	return admitted.Reservation
}

// TestPendingSurvivesRemovalOfQuota: what is on its way counts also if the quota was removed and
// set again meanwhile, and is forgotten when it was applied.
func TestPendingSurvivesRemovalOfQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, limitOf(admit.JobsLimit, 10, 10))
		term, _ := n.QuotaUse(0)
		first, second := taker(t, n, puts(3, "t/q")...), taker(t, n, puts(2, "t/q")...)
		n.SetShardQuotas(0, term, nil)
		if free := taker(t, n, puts(1, "t/q")...); free != nil {
			t.Errorf("%+v was taken of no quota", free)
		}
		first.Release()
		for _, want := range []uint64{2, 0} {
			giveQuota(t, n, limitOf(admit.JobsLimit, 10, 10))
			if used, _ := shortOf(n, admit.JobsLimit); used != want {
				t.Errorf("%d are used, want %d", used, want)
			}
			n.SetShardQuotas(0, term, nil)
			second.Release()
			second.Release()
		}
		if used := n.shards[0].Load().admission.Quotas.Usage(); len(used) > 0 {
			t.Errorf("%+v is remembered", used)
		}
	})
}

// TestNothingIsTakenOfNoQuota: a request that names only namespaces without a quota takes nothing.
func TestNothingIsTakenOfNoQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, limitOf(admit.JobsLimit, 10, 10))
		if taken := taker(t, n, put("u/q", "", 0)); taken != nil {
			t.Errorf("%+v was taken", taken)
		}
		poll := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"u/q"}, Max: 1}}}
		if a, refused := n.shards[0].Load().admission.AdmitParked(poll, "u/q"); a.Reservation != nil || refused.Pause > 0 {
			t.Errorf("%+v was offered", a.Reservation)
		}
	})
}

// TestNothingStaysTaken: at whatever moment callers leave, in the end nothing is on its way.
func TestNothingStaysTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, moreOf(admit.JobsLimit, 1000, 1000))
		var calls sync.WaitGroup
		for i := range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%20)*time.Microsecond)
			calls.Go(func() {
				defer cancel()
				_, _ = n.Do(ctx, 0, &fsm.Request{Commands: puts(2, "t/q")})
			})
			calls.Go(func() {
				req := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"t/q"}, Max: 2, TTR: time.Minute}}}
				_, _ = n.Reserve(ctx, 0, req, Wait{For: time.Minute})
			})
		}
		calls.Wait()
		synctest.Wait()
		var held uint64
		n.shards[0].Load().view(func(m *machine.Machine, _ fsm.Time) { held = m.UsageOf("t").Jobs })
		if used, short := shortOf(n, admit.JobsLimit); used != held || short != 0 {
			t.Errorf("%d are used, of which the machine holds %d, and %d are lacking", used, held, short)
		}
	})
}

// TestFewWaitForAShare: so many requests wait for a share; those beyond are refused at once, with
// the same error.
func TestFewWaitForAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, moreOf(admit.JobsLimit, 10, 0))
		began := time.Now()
		var waiting []<-chan error
		const waitersOfANamespace = 256
		for range waitersOfANamespace {
			waiting = append(waiting, waitingPut(t, n, put("t/q", "", 0)))
		}
		expectRefusal(t, n, tryPut(t, n, put("t/q", "", 0)), admit.JobsLimit, lastIndex(n))
		if past := time.Since(began); past > 0 {
			t.Errorf("refused after %v", past)
		}
		if _, short := shortOf(n, admit.JobsLimit); short != waitersOfANamespace+1 {
			t.Errorf("%d are lacking, want those that wait and the one that does not", short)
		}
		for _, w := range waiting {
			quota, ok := errors.AsType[*admit.QuotaError](<-w)
			if !ok || !quota.Growing {
				t.Errorf("%+v; want that a repeat may succeed", quota)
			}
		}
		if err := <-waitingPut(t, n, put("t/q", "", 0)); !errors.Is(err, outcome.ErrQuota) ||
			time.Since(began) != 2*admit.QuotaWait {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// TestShareIsAskedForSeldom: a waiting request asks for more at once, and then less and less often
// as long as that changes nothing.
func TestShareIsAskedForSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, moreOf(admit.LeasesLimit, 10, 0))
		var asked atomic.Int64
		n.OnQuotaShort(func() { asked.Add(1) })
		do(t, n, 0, put("t/q", "", 0))
		var waiting sync.WaitGroup
		waiting.Go(func() { reserve(t, n, 0, "t/q", 10*time.Second) })
		synctest.Wait()
		if got := asked.Load(); got != 1 {
			t.Errorf("it was asked for %d times at once", got)
		}
		for range 500 { // each has the poll looked at
			time.Sleep(10 * time.Millisecond)
			do(t, n, 0, put("t/q", "", 0))
		}
		if got, most := asked.Load(), int64(5*time.Second/(200*time.Millisecond))+5; got > most || got < most/2 {
			t.Errorf("it was asked for %d times within five seconds, want about %d", got, most)
		}
		asked.Store(0)
		giveQuota(t, n, moreOf(admit.LeasesLimit, 20, 0)) // something has changed
		do(t, n, 0, put("t/q", "", 0))
		synctest.Wait()
		if got := asked.Load(); got != 1 {
			t.Errorf("it was asked for %d times when something had changed, want once", got)
		}
		waiting.Wait()
	})
}
