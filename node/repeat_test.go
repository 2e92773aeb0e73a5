package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/hashicorp/raft"
)

// The first attempt is applied when the repetition waits already, and leaves no job to be had.
func TestReserveIsRepeatedBeforeItsFirstAttemptIsApplied(t *testing.T) {
	for _, tt := range []struct {
		name  string
		stuck time.Duration // how long the first attempt is on its way
		first Outcome
	}{{"soon", time.Second, Applied}, {"after its deadline", 2 * defaultProposeTimeout, Unknown}} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				n := openNode(t, testConfig(t, dir))
				s := n.shards[0]
				held := make(chan struct{})
				holdEntry(s, held)
				for range cap(s.proposer.slots) { // put and attempt go into one entry
					s.proposer.slots <- struct{}{}
				}
				req := &fsm.Request{Caller: "c", ID: "r1", Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"orders"}, Max: 1, TTR: time.Hour}}}
				outcomes := make(chan Outcome, 2)
				for _, r := range []*fsm.Request{{Commands: []fsm.Command{put("orders", "x", 0)}}, req} {
					go func() {
						_, err := n.Do(t.Context(), 0, r)
						outcomes <- OutcomeOf(err)
					}()
					synctest.Wait()
				}
				second := &poll{ended: make(chan struct{})}
				go func() {
					defer close(second.ended)
					second.reply, second.err = n.Reserve(t.Context(), 0, req, time.Minute)
					second.at = time.Now()
				}()
				synctest.Wait()
				for range cap(s.proposer.slots) {
					<-s.proposer.slots
				}
				time.Sleep(tt.stuck)
				close(held)
				start := time.Now()
				if g := second.grants(t); len(g) != 1 || second.at != start || !second.reply.Results[0].Replayed {
					t.Errorf("after %v the repetition was answered %+v", second.at.Sub(start), second.reply)
				}
				if put, first := <-outcomes, <-outcomes; put != tt.first || first != tt.first {
					t.Errorf("the first attempt ended %v, %v, want %v", put, first, tt.first)
				}
				if ws := s.waiters; len(ws.named) > 0 {
					t.Errorf("requests are kept: %v", ws.named)
				}
			})
		})
	}
}

// holdEntry has the entries of a shard reach Raft only once held is closed. None may be under way.
func holdEntry(s *shard, held chan struct{}) {
	submit := s.proposer.submit
	s.proposer.submit = func(l *leadership, entry []byte) (raft.ApplyFuture, error) {
		return &heldFuture{held: held, submit: func() (raft.ApplyFuture, error) { return submit(l, append([]byte(nil), entry...)) }}, nil
	}
}

// heldFuture is an entry that reaches Raft only once held is closed.
type heldFuture struct {
	raft.ApplyFuture
	held   chan struct{}
	submit func() (raft.ApplyFuture, error)
}

// Error implements raft.Future.
func (f *heldFuture) Error() error {
	<-f.held
	future, err := f.submit()
	if err != nil {
		return err
	}
	f.ApplyFuture = future
	return future.Error()
}
