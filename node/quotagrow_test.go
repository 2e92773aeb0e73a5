package node

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/admit"
)

// TestPollsBeforeSharesAreKnown: a leadership that does not know yet what a namespace may use hands
// out nothing of it, also to polls that wait; then it does.
func TestPollsBeforeSharesAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, limitOf(admit.LeasesLimit, 10, 10))
		do(t, n, 0, put("t/a", "", 0))
		sh := n.shards[0].Load().admission.Quotas
		term, _ := n.QuotaUse(0)
		sh.Reset(term) // as a leadership begins
		if got := reserve(t, n, 0, "t/a", time.Second); len(got) > 0 {
			t.Errorf("%d jobs were handed out", len(got))
		}
		waiting := make(chan []fsm.Grant)
		go func() { waiting <- reserve(t, n, 0, "plain", time.Minute) }()
		synctest.Wait()
		before := time.Now()
		do(t, n, 0, put("plain", "", 0))
		if got := <-waiting; len(got) != 1 || time.Since(before) > 0 {
			t.Errorf("after %v %d jobs of a queue without a namespace were handed out, want 1 at once",
				time.Since(before), len(got))
		}
		giveQuota(t, n, limitOf(admit.LeasesLimit, 10, 10))
		if got := reserve(t, n, 0, "t/a", time.Second); len(got) != 1 {
			t.Errorf("%d jobs were handed out when it was known, want 1", len(got))
		}
	})
}

// TestNodeThatHeardOfNoQuotas: a request that came before the node knew that there are no quotas
// goes on as soon as it knows.
func TestNodeThatHeardOfNoQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, t.TempDir()))
		n.SetNamespacesLimited(1)
		began, ended := time.Now(), make(chan error)
		do(t, n, 0, put("plain", "", 0))
		go func() { ended <- tryPut(t, n, put("t/q", "", 0)) }()
		time.Sleep(admit.QuotaWait / 2)
		n.SetNamespacesLimited(0)
		if err := <-ended; err != nil || time.Since(began) != admit.QuotaWait/2 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// TestOffersCountWhatMayBeGranted: a waiter's reservation counts for all the leases that it may be
// granted, as far as there are any.
func TestOffersCountWhatMayBeGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, limitOf(admit.LeasesLimit, 10, 10))
		a := n.shards[0].Load().admission
		many := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"t/a"}, Max: 1000}}}
		first, refused := a.AdmitParked(many, "t/a")
		if _, again := a.AdmitParked(many, "t/a"); refused.Pause > 0 || again.Pause == 0 || !again.LeasesFull {
			t.Errorf("the first was offered %v; two may be granted more than there is", first)
		}
		first.Reservation.Release()
		if _, refused := a.AdmitParked(many, "t/a"); refused.Pause > 0 {
			t.Error("what was given back is not offered again")
		}
	})
}

// TestLoweredShareSaysWhatIsUsed: the call that lowers a share returns what is used at that moment,
// and nothing is admitted above the share after it.
func TestLoweredShareSaysWhatIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, limitOf(admit.JobsLimit, 100, 100))
		for range 7 {
			do(t, n, 0, put("t/a", "", 0))
		}
		term, _ := n.QuotaUse(0)
		used := n.SetShardQuotas(0, term, map[string]admit.ShardQuota{"t": limitOf(admit.JobsLimit, 100, 3)})
		if used["t"][admit.JobsLimit] != 7 {
			t.Errorf("%d jobs are used, want 7", used["t"][admit.JobsLimit])
		}
		expectRefusal(t, n, tryPut(t, n, put("t/a", "", 0)), admit.JobsLimit, lastIndex(n))
		if other := n.SetShardQuotas(0, term+1, nil); other != nil {
			t.Errorf("in another term: %v", other)
		}
	})
}

// TestFiringsBesideThoseWithoutQuota: the firings of a namespace that wait for quota do not make those of
// others late, and go on when there is quota.
func TestFiringsBesideThoseWithoutQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, moreOf(admit.JobsLimit, 100, 0))
		if err := n.Speak(fsm.KeysFormat); err != nil {
			t.Fatal(err)
		}
		pass(everySecond{}.Next(fsm.Time(time.Now().UnixNano())).Sub(fsm.Time(time.Now().UnixNano())))
		next := everySecond{}.Next(fsm.Time(time.Now().UnixNano()))
		do(t, n, 0, &fsm.PutSchedule{
			Queue: "t/q", Partitions: 1, Name: "s", Next: next, Policy: fsm.SchedulePolicy{CatchUp: fsm.CatchUpAll},
		})
		for i := range 5 { // while it waits
			do(t, n, 0, &fsm.PutSchedule{
				Queue: "q", Partitions: 1, Name: fmt.Sprint(i), Policy: fsm.SchedulePolicy{MaxFires: 1},
				Next: next.Add(time.Duration(i)*time.Second + 300*time.Millisecond),
			})
		}
		pass(5*time.Second + time.Second/2)
		if got := n.Stats().Shards[0]; got.Fired != 5 || got.FiredLateSeconds.Sum != 0 {
			t.Errorf("%d fired, late by %v s together; want 5 in time", got.Fired, got.FiredLateSeconds.Sum)
		}
		giveQuota(t, n, moreOf(admit.JobsLimit, 100, 100))
		pass(2 * time.Second)
		if got := n.Stats().Shards[0].Fired; got != 12 {
			t.Errorf("%d fired, want 12", got)
		}
	})
}
