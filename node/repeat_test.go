package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/propose"
	"github.com/belfrydb/belfry/node/raftgroup"
)

// The first attempt is applied when the repetition waits already, and leaves no job to be had.
func TestReserveIsRepeatedBeforeItsFirstAttemptIsApplied(t *testing.T) {
	for _, tt := range []struct {
		name  string
		stuck time.Duration // how long the first attempt is on its way
		first outcome.Outcome
	}{{"soon", time.Second, outcome.Applied}, {"after its deadline", 2 * defaultProposeTimeout, outcome.Unknown}} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				n := openNode(t, testConfig(t, dir))
				s := n.shards[0].Load()
				held := make(chan struct{})
				holdEntry(s, held)
				release := s.proposer.Hold() // put and attempt go into one entry
				req := &fsm.Request{Caller: "c", ID: "r1",
					Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"orders"}, Max: 1, TTR: time.Hour}}}
				outcomes := make(chan outcome.Outcome, 2)
				for _, r := range []*fsm.Request{{Commands: []fsm.Command{put("orders", "x", 0)}}, req} {
					go func() {
						_, err := n.Do(t.Context(), 0, r)
						outcomes <- outcome.Of(err)
					}()
					synctest.Wait()
				}
				second := &poll{ended: make(chan struct{})}
				go func() {
					defer close(second.ended)
					second.reply, second.err = n.Reserve(t.Context(), 0, req, Wait{For: time.Minute})
					second.at = time.Now()
				}()
				synctest.Wait()
				release()
				time.Sleep(tt.stuck)
				close(held)
				start := time.Now()
				if g := second.grants(t); len(g) != 1 || second.at != start || !second.reply.Results[0].Replayed {
					t.Errorf("after %v the repetition was answered %+v", second.at.Sub(start), second.reply)
				}
				if put, first := <-outcomes, <-outcomes; put != tt.first || first != tt.first {
					t.Errorf("the first attempt ended %v, %v, want %v", put, first, tt.first)
				}
				if parked := s.calls.Parked(); parked > 0 {
					t.Errorf("%d requests are kept", parked)
				}
			})
		})
	}
}

// A repetition with other content is refused at once, whether or not a lease is held and a job is
// there: it will never be granted anything.
func TestReserveWithOtherContentDoesNotWait(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		if _, err := n.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{put("orders", "x", 0)}}); err != nil {
			t.Fatal(err)
		}
		reserve := func(most uint32) (propose.Reply, error) {
			req := &fsm.Request{Caller: "c", ID: "r1",
				Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"orders"}, Max: most, TTR: time.Second}}}
			return n.Reserve(t.Context(), 0, req, Wait{For: time.Minute})
		}
		first, err := reserve(1)
		if err != nil || len(first.Results[0].Grants) != 1 {
			t.Fatalf("the first attempt: %+v, %v", first, err)
		}
		for _, after := range []string{"the grant", "the ack"} {
			start := time.Now()
			if reply, err := reserve(2); err != nil || reply.Results[0].Code != fsm.Invalid || time.Since(start) != 0 {
				t.Errorf("after %s, after %v the other one was answered %+v, %v", after, time.Since(start), reply, err)
			}
			g := first.Results[0].Grants[0]
			ack := &fsm.Ack{Ref: fsm.Ref{Queue: g.Queue, Serial: g.Serial, Fence: g.Fence}}
			if _, err := n.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{ack}}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// holdEntry has the entries of a shard reach Raft only once held is closed. None may be under way.
func holdEntry(s *shard, held chan struct{}) {
	submit := s.submit
	s.submit = func(l *raftgroup.Leadership, entry []byte) (propose.Future, error) {
		return &heldFuture{held: held, submit: func() (propose.Future, error) {
			return submit(l, append([]byte(nil), entry...))
		}}, nil
	}
}

// heldFuture is an entry that reaches Raft only once held is closed.
type heldFuture struct {
	held   chan struct{}
	submit func() (propose.Future, error)
}

// Wait implements propose.Future.
func (f *heldFuture) Wait() (*propose.Applied, error) {
	<-f.held
	future, err := f.submit()
	if err != nil {
		return nil, raftgroup.ProposalError(err)
	}
	return future.Wait()
}

// What a request with an id is granted after its caller left is the repeat's: if it were given
// back, a repeat that has it already would work on a job that is handed out to another as well.
func TestGrantWhoseCallerLeftIsThereForItsRepeat(t *testing.T) {
	req := &fsm.Request{Caller: "c", ID: "r1", Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"orders"}, Max: 1,
		TTR: time.Hour}}}
	for _, wait := range []time.Duration{0, time.Minute} {
		t.Run("a wait of "+wait.String(), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				n := openNode(t, testConfig(t, dir))
				do(t, n, 0, put("orders", "x", 0))
				held := make(chan struct{})
				holdEntry(n.shards[0].Load(), held)
				first := startRequest(t, n, Wait{For: wait}, req)
				first.cancel()
				if <-first.ended; outcome.Of(first.err) != outcome.Unknown {
					t.Fatalf("the first attempt ended with %v", first.err)
				}
				second := startRequest(t, n, Wait{For: time.Minute}, req)
				close(held)
				g := second.grants(t)
				if len(g) != 1 || g[0].Attempt != 1 {
					t.Fatalf("the repeat was answered %+v", second.reply)
				}
				expectReleased(t, n, "orders", 0)
				if other := startPoll(t, n, time.Second, 1, "orders").grants(t); len(other) != 0 {
					t.Errorf("another was granted %+v", other)
				}
				do(t, n, 0, &fsm.Ack{Ref: refOf(g[0])})
			})
		})
	}
}

// A call that does not wait either has its jobs released when its caller leaves, if there can be no
// repeat.
func TestReserveWithoutWaitWhoseCallerLeaves(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		do(t, n, 0, put("orders", "x", 0))
		held := make(chan struct{})
		holdEntry(n.shards[0].Load(), held)
		p := startWaiting(t, n, Wait{}, 1, "orders")
		p.cancel()
		if <-p.ended; outcome.Of(p.err) != outcome.Unknown {
			t.Fatalf("it ended with %v", p.err)
		}
		close(held)
		expectReleased(t, n, "orders", 1)
		if g := startPoll(t, n, time.Second, 1, "orders").grants(t); len(g) != 1 || g[0].Attempt != 1 {
			t.Errorf("the next was granted %+v, want the job with attempt 1", g)
		}
	})
}
