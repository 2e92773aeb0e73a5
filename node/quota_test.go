package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/schedules"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/outcome"
)

// limited opens a node whose shard 0 has a quota of namespace t.
func openLimited(t *testing.T, quota admit.ShardQuota) *Node {
	t.Helper()
	cfg := testConfig(t, t.TempDir())
	cfg.Calendar = func(*fsm.Schedule) (schedules.Calendar, error) { return everySecond{}, nil }
	n := openNode(t, cfg)
	n.SetNamespacesLimited(1)
	giveQuota(t, n, quota)
	return n
}

func giveQuota(t *testing.T, n *Node, quota admit.ShardQuota) {
	t.Helper()
	term, _ := n.QuotaUse(0)
	if term == 0 {
		t.Fatal("nobody leads")
	}
	n.SetShardQuotas(0, term, map[string]admit.ShardQuota{"t": quota})
}

func limitOf(l admit.Limit, quota, granted uint64) (s admit.ShardQuota) {
	s.Quota[l], s.Granted[l] = quota, granted
	return s
}

func tryPut(t *testing.T, n *Node, puts ...fsm.Command) error {
	t.Helper()
	_, err := n.Do(t.Context(), 0, &fsm.Request{Commands: puts})
	return err
}

// expectRefusal fails the test unless err says that a limit of namespace t is used up, and nothing
// was logged since before.
func expectRefusal(t *testing.T, n *Node, err error, limit admit.Limit, before uint64) {
	t.Helper()
	quota, ok := errors.AsType[*admit.QuotaError](err)
	if !ok || quota.Namespace != "t" || quota.Limit != limit || outcome.Of(err) != outcome.NotApplied {
		t.Errorf("got %v, want a refusal for the %s of t", err, limit)
	}
	expectEntries(t, n, before, 0)
}

// TestShareOfJobs: puts are let in while there is room, a batch as a whole; what is over is refused
// before the log, but not a repeat.
func TestShareOfJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, limitOf(admit.JobsLimit, 10, 3))
		named := func() *fsm.Put { return &fsm.Put{Queue: "t/q", Partitions: 1, ID: "x"} }
		do(t, n, 0, named(), put("t/q", "2", 0))
		do(t, n, 0, put("t/q", "3", 0), put("t/q", "4", 0)) // there is room for one of the two
		before := lastIndex(n)
		expectRefusal(t, n, tryPut(t, n, put("t/other", "5", 0)), admit.JobsLimit, before)
		do(t, n, 0, named())
		do(t, n, 0, put("u/q", "6", 0), put("plain", "7", 0))
		do(t, n, 0, &fsm.Cancel{Queue: "t/q", ID: "x"})
		before = lastIndex(n)
		expectRefusal(t, n, tryPut(t, n, put("t/other", "5", 0)), admit.JobsLimit, before)
		giveQuota(t, n, limitOf(admit.JobsLimit, 10, 4))
		do(t, n, 0, put("t/other", "5", 0))
		n.SetShardQuotas(0, 1<<40, map[string]admit.ShardQuota{}) // of another leadership
		before = lastIndex(n)
		expectRefusal(t, n, tryPut(t, n, put("t/other", "6", 0)), admit.JobsLimit, before)
	})
}

// TestShareOfPuts: a second's worth is let in at once, then as many as the rate says.
func TestShareOfPuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, limitOf(admit.PutRate, 100_000, 10_000))
		for range 10 {
			do(t, n, 0, put("t/q", "", 0))
		}
		before := lastIndex(n)
		err := tryPut(t, n, put("t/q", "", 0))
		expectRefusal(t, n, err, admit.PutRate, before)
		if quota, ok := errors.AsType[*admit.QuotaError](err); !ok || quota.Wait <= 0 || quota.Wait > 100*time.Millisecond {
			t.Errorf("%+v, want to wait up to a tenth of a second", err)
		}
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			do(t, n, 0, put("t/q", "", 0))
		}
	})
}

// TestShareOfLeases: a call that does not wait is refused. One that waits has a job as soon as one
// of the others is given back.
func TestShareOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, limitOf(admit.LeasesLimit, 10, 1))
		do(t, n, 0, put("t/a", "", 0), put("t/b", "", 0))
		first := reserve(t, n, 0, "t/a", 0)
		if len(first) != 1 {
			t.Fatalf("granted %+v", first)
		}
		before := lastIndex(n)
		_, err := n.Reserve(t.Context(), 0, &fsm.Request{
			Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"t/b"}, Max: 5}}}, Wait{})
		expectRefusal(t, n, err, admit.LeasesLimit, before)
		second := make(chan []fsm.Grant)
		go func() { second <- reserve(t, n, 0, "t/b", time.Minute) }()
		time.Sleep(time.Second)
		expectEntries(t, n, before, 0)
		do(t, n, 0, &fsm.Ack{Ref: refOf(first[0])})
		if got := <-second; len(got) != 1 || got[0].Queue != "t/b" {
			t.Errorf("granted %+v", got)
		}
	})
}

// TestSharesAreWaitedFor: what may still come is waited for, for a second, and so is what is not
// known.
func TestSharesAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		more := limitOf(admit.JobsLimit, 10, 0)
		more.More[admit.JobsLimit] = true
		n := openLimited(t, more)
		var asked int
		n.OnQuotaShort(func() { asked++ })
		began := time.Now()
		if err := tryPut(t, n, put("t/q", "", 0)); !errors.Is(err, outcome.ErrQuota) ||
			time.Since(began) != admit.QuotaWait || asked == 0 {
			t.Errorf("after %v: %v, asked for more %d times", time.Since(began), err, asked)
		}
		for _, unknown := range []admit.ShardQuota{more, {Waiting: true}} {
			giveQuota(t, n, unknown)
			put1 := make(chan error)
			go func() { put1 <- tryPut(t, n, put("t/q", "", 0)) }()
			time.Sleep(admit.QuotaWait / 2)
			giveQuota(t, n, limitOf(admit.JobsLimit, 100, 10))
			if err := <-put1; err != nil {
				t.Error(err)
			}
		}
		giveQuota(t, n, admit.ShardQuota{Waiting: true})
		if err := tryPut(t, n, put("t/q", "", 0)); !errors.Is(err, outcome.ErrQuotaUnknown) ||
			errors.Is(err, outcome.ErrOverloaded) {
			t.Errorf("a quota that is not known: %v", err)
		}
		n.shards[0].Load().admission.Quotas.Reset(5) // as a leadership begins
		if err := tryPut(t, n, put("v/q", "", 0)); !errors.Is(err, outcome.ErrQuotaUnknown) ||
			errors.Is(err, outcome.ErrOverloaded) {
			t.Errorf("shares of which nothing is known: %v", err)
		}
		do(t, n, 0, put("plain", "", 0))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := n.Do(ctx, 0, &fsm.Request{Commands: []fsm.Command{put("v/q", "", 0)}}); !errors.Is(err,
			outcome.ErrCanceled) {
			t.Errorf("a caller that left: %v", err)
		}
	})
}

// TestShareOutsideOfALeadership: a request that asks for its quota before a leadership begins has
// none of it, and is not let through either: it may be proposed when the leadership has begun.
func TestShareOutsideOfALeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, limitOf(admit.JobsLimit, 10, 0))
		sh := n.shards[0].Load().admission.Quotas
		term, _ := n.QuotaUse(0)
		before := lastIndex(n)
		sh.Reset(0) // the proposer goes on: it is as if the next leadership had opened it by then
		if err := tryPut(t, n, put("t/q", "", 0)); !errors.Is(err, outcome.ErrNoLeader) ||
			outcome.Of(err) != outcome.NotApplied {
			t.Errorf("%v, want that nobody leads", err)
		}
		do(t, n, 0, put("plain", "", 0))
		expectEntries(t, n, before, 1)
		sh.Reset(term)
		giveQuota(t, n, limitOf(admit.JobsLimit, 10, 0))
		expectRefusal(t, n, tryPut(t, n, put("t/q", "", 0)), admit.JobsLimit, lastIndex(n))
	})
}
