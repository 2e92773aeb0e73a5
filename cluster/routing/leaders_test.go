package routing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node"
)

// followCase is a call for a shard whose leader is elsewhere, changes or is missing.
type followCase struct {
	name string
	// found are the leaders that looks find, in order, the last one for ever; here and there what the
	// calls answer.
	found, here, there []error
	want               error
	calls              string // h for one here, t for one there
	bounded            bool   // it takes as long as the budget
	follows            bool
}

// followCases are such calls, with the requests that each makes.
func followCases() []followCase {
	notLeader, noLeader := fmt.Errorf("x: %w", node.ErrNotLeader), fmt.Errorf("x: %w", node.ErrNoLeader)
	unsent := fmt.Errorf("%w: %w", node.ErrNoLeader, errAgain)
	unknown := fmt.Errorf("%w: %w", node.ErrUnknownOutcome, node.ErrNoLeader)
	return []followCase{
		{name: "it leads", here: []error{nil}, calls: "h"},
		{name: "it failed", here: []error{node.ErrDiskFull}, want: node.ErrDiskFull, calls: "h"},
		{name: "unknown here", here: []error{unknown}, want: node.ErrUnknownOutcome, calls: "h"},
		{name: "elsewhere", here: []error{notLeader}, found: []error{errThere}, there: []error{nil}, calls: "ht"},
		{
			name: "refused there", here: []error{notLeader}, found: []error{errThere}, there: []error{notLeader, nil},
			want: node.ErrNotLeader, calls: "ht",
		},
		{
			name: "no leader there", here: []error{notLeader}, found: []error{errThere}, there: []error{noLeader, nil},
			want: node.ErrNoLeader, calls: "ht",
		},
		{
			name: "unknown there", here: []error{notLeader}, found: []error{errThere}, there: []error{unknown, nil},
			want: node.ErrUnknownOutcome, calls: "ht",
		},
		{
			name: "its clock does not agree", here: []error{fmt.Errorf("x: %w", node.ErrClockAhead)}, found: []error{errThere},
			there: []error{nil}, calls: "ht",
		},
		{name: "its node stops", here: []error{node.ErrShuttingDown}, want: node.ErrShuttingDown, calls: "h"},
		{
			name: "found late", here: []error{noLeader}, found: []error{nil, nil, nil, errThere}, there: []error{nil},
			calls: "ht",
		},
		{name: "it is elected meanwhile", here: []error{noLeader, nil}, found: []error{nil, nil, errHere}, calls: "hh"},
		{
			name: "elected and lost", here: []error{noLeader, noLeader}, found: []error{errHere, errThere}, there: []error{nil},
			calls: "hht",
		},
		{
			name: "not reached, then another", here: []error{notLeader}, found: []error{errThere},
			there: []error{unsent, unsent, nil}, calls: "httt",
		},
		{name: "nobody", here: []error{notLeader}, found: []error{nil}, want: node.ErrNoLeader, calls: "h", bounded: true},
		{name: "another leads", follows: true, found: []error{errThere}, there: []error{nil}, calls: "t"},
		{name: "another led, now it", follows: true, here: []error{nil}, found: []error{nil, errHere}, calls: "h"},
		{name: "another led, now nobody", follows: true, found: []error{nil}, want: node.ErrNoLeader, bounded: true},
	}
}

// TestFollow has calls meet leaders that come and go. A call that was sent is never sent again,
// whatever it is answered.
func TestFollow(t *testing.T) {
	for _, tt := range followCases() {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls strings.Builder
				take := func(from *[]error) (err error) {
					if err = (*from)[0]; len(*from) > 1 {
						*from = (*from)[1:]
					}
					return err
				}
				s := &leaderRouter{self: "a.1", follows: func(uint32) bool {
					return tt.follows
				}, markFailed: func(uint32, string) {}, findLeader: func(context.Context, uint32) string {
					return map[error]string{errHere: "a.1", errThere: "b.2"}[take(&tt.found)]
				}}
				answer := func(mark byte, from *[]error) error {
					calls.WriteByte(mark)
					return take(from)
				}
				began := time.Now()
				err := s.route(t.Context(), 0, newRetryBudget(t.Context(), time.Hour, nil), func() error {
					return answer('h', &tt.here)
				}, func(server string) error {
					if server != "b.2" {
						t.Errorf("sent to %q", server)
					}
					return answer('t', &tt.there)
				})
				took := time.Since(began)
				if !errors.Is(err, tt.want) || calls.String() != tt.calls || (took == LeaderWait) != tt.bounded ||
					took > LeaderWait || s.waiting.Load() != 0 {
					t.Errorf("after %v, calls %s: %v", took, calls.String(), err)
				}
			})
		})
	}
}

// TestFollowLooksOnceMoreWhereTheLeaderIsCutOff: a name that was kept of a leader long dead does
// not fail the call while the others know the new leader, also of a call that has no time to wait.
// A node that is named again, or after another that is cut off, ends it at once.
func TestFollowLooksOnceMoreWhereTheLeaderIsCutOff(t *testing.T) {
	cutOff := fmt.Errorf("%w: %w", node.ErrNoLeader, errCutOff)
	for _, tt := range []struct {
		name  string
		found []string // by the looks, in order
		calls string
		want  error
	}{
		{"another leads", []string{"b.2", "c.3"}, "c.3", nil},
		{"this one leads", []string{"b.2", "a.1"}, "a.1", nil},
		{"it is named again", []string{"b.2", "b.2"}, "", errCutOff},
		{"nobody is named", []string{"b.2", ""}, "", errCutOff},
		{"the other is cut off too", []string{"b.2", "d.2"}, "", errCutOff},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls, forgotten string
				s := &leaderRouter{
					self: "a.1", follows: func(uint32) bool {
						return true
					}, markFailed: func(_ uint32, server string) { forgotten += server },
					findLeader: func(context.Context, uint32) string {
						server := tt.found[0]
						tt.found = tt.found[1:]
						return server
					},
				}
				began := time.Now()
				err := s.route(t.Context(), 0, newRetryBudget(t.Context(), 0, nil), func() error {
					calls += "a.1"
					return nil
				}, func(server string) error {
					if strings.HasSuffix(server, ".2") {
						return cutOff
					}
					calls += server
					return nil
				})
				if !errors.Is(err, tt.want) || calls != tt.calls || time.Since(began) != 0 || !strings.HasPrefix(forgotten, "b.2") {
					t.Errorf("calls %q, forgotten %q, after %v: %v", calls, forgotten, time.Since(began), err)
				}
			})
		})
	}
}

// TestElsewhere: a call that a node refused because of itself may go to another node. A call that
// may have been logged may not, whatever else its error is.
func TestElsewhere(t *testing.T) {
	for err, want := range map[error]bool{
		node.ErrNotLeader: true, node.ErrNotHere: true, node.ErrNoLeader: true, node.ErrClockAhead: true, nil: false,
		node.ErrShuttingDown: false, node.ErrOverloaded: false, node.ErrDiskFull: false, node.ErrCanceled: false,
		node.ErrUnknownOutcome: false,
	} {
		if got := servedElsewhere(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
		if unknown := fmt.Errorf("%w: %w", node.ErrUnknownOutcome, err); err != nil && servedElsewhere(unknown) {
			t.Errorf("%v is asked of another", unknown)
		}
	}
}

var (
	errHere  = errors.New("here")
	errThere = errors.New("there")
)

// TestFollowEndsWithItsCaller: a deadline or the end of the caller's interest ends the wait;
// nothing was applied.
func TestFollowEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaderRouter{self: "a.1", follows: func(uint32) bool {
			return false
		}, findLeader: func(context.Context, uint32) string { return "" }}
		here := func() error { return node.ErrNoLeader }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := s.route(ctx, 0, newRetryBudget(t.Context(), time.Hour, nil), here, nil)
		if took := time.Since(began); took != time.Second || !errors.Is(err, context.DeadlineExceeded) ||
			node.OutcomeOf(err) != node.NotApplied {
			t.Errorf("after %v: %v", took, err)
		}
		began = time.Now()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = s.route(ctx, 0, newRetryBudget(ctx, time.Hour, nil), here, nil)
		if took := time.Since(began); took != time.Second-time.Second/answerTimeDivisor ||
			!errors.Is(err, node.ErrNoLeader) || ctx.Err() != nil {
			t.Errorf("the caller would not hear that there is no leader: after %v: %v", took, err)
		}
		stop := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(stop) })
		began = time.Now()
		err = s.route(t.Context(), 0, newRetryBudget(t.Context(), time.Hour, stop), here, nil)
		if took := time.Since(began); took != time.Second || !errors.Is(err, node.ErrNoLeader) {
			t.Errorf("after %v: %v", took, err)
		}
		s.waiting.Store(leaderWaitersMax)
		began = time.Now()
		if err = s.route(t.Context(), 0, newRetryBudget(t.Context(), time.Hour, nil), here, nil); time.Since(began) != 0 ||
			!errors.Is(err, node.ErrNoLeader) {
			t.Errorf("one too many: after %v: %v", time.Since(began), err)
		}
	})
}

// TestLeaderCache: concurrent callers share one question. A leader is kept until it failed, the
// answer that there is none for hintTTL.
func TestLeaderCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked, says := 0, ""
		set := func(name string) {
			mu.Lock()
			defer mu.Unlock()
			says = name
		}
		c := newLeaderCache(func(context.Context, uint32) string {
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			asked++
			return says
		})
		all := func() []string {
			var group sync.WaitGroup
			hints := make([]string, 5)
			for i := range hints {
				group.Go(func() { hints[i] = c.leader(t.Context(), 1) })
			}
			group.Wait()
			return slices.Compact(hints)
		}
		expect := func(what, name string, times int) {
			t.Helper()
			if hint := all(); !slices.Equal(hint, []string{name}) || asked != times {
				t.Errorf("%s: got %q, asked %d times", what, hint, asked)
			}
		}
		expect("nobody is known", "", 1)
		set("b.2")
		expect("asked again too early", "", 1)
		time.Sleep(hintTTL)
		expect("later", "b.2", 2)
		time.Sleep(time.Hour)
		expect("much later", "b.2", 2)
		c.markFailed(1, "c.3")
		expect("another was forgotten", "b.2", 2)
		set("c.3")
		c.markFailed(1, "b.2")
		expect("forgotten", "c.3", 3)
	})
}

// TestLeaderLookupWithLittleTime: a caller with little time asks no longer than it has, and its
// missing answer does not count for the next caller.
func TestLeaderLookupWithLittleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := time.Second / 2
		r := newLeaderCache(func(ctx context.Context, _ uint32) string {
			answered := time.NewTimer(answers)
			defer answered.Stop()
			select {
			case <-answered.C:
				return "b.2"
			case <-ctx.Done():
				return ""
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/10)
		defer cancel()
		began := time.Now()
		if hint := r.leader(ctx, 1); hint != "" || time.Since(began) != time.Second/10 {
			t.Errorf("with little time: got %q after %v", hint, time.Since(began))
		}
		if hint := r.leader(t.Context(), 1); hint != "b.2" {
			t.Errorf("with enough: got %q", hint)
		}
	})
}

// TestForwardedCalls: calls that wait at a node that has lost the leadership, or is not reached,
// are cancelled. Calls stay while no leader is known, and those that go through a relay stay.
func TestForwardedCalls(t *testing.T) {
	var s forwardedCalls
	var left []string
	add := func(name string, shard uint32, server string) func() {
		return s.add(&forwardedCall{shard: shard, server: server, cancel: func() { left = append(left, name) }})
	}
	add("old", 1, "a.1")
	add("new", 1, "b.2")
	add("leaderless", 2, "a.1")
	add("gone", 1, "a.1")()
	defer s.add(&forwardedCall{shard: 1, server: "a.1", grace: time.Hour, cancel: func() {
		left = append(left, "patient")
	}})()
	defer s.add(&forwardedCall{shard: 3, server: "c.3", direct: true, cancel: func() { left = append(left, "lost") }})()
	defer s.add(&forwardedCall{shard: 3, server: "c.3", cancel: func() { left = append(left, "relayed") }})()
	s.cancelMoved(func(shard uint32) string {
		return map[uint32]string{1: "b.2"}[shard]
	}, func(server string) bool { return server == "c.3" })
	if slices.Sort(left); !slices.Equal(left, []string{"lost", "old"}) {
		t.Errorf("left: %q", left)
	}
}

// TestRefusalsLeaveTheLeaderKnown: a refusal that only the leader makes, because of the request,
// does not make a node doubt the leader. A refusal that may mean that it does not lead any more
// does.
func TestRefusalsLeaveTheLeaderKnown(t *testing.T) {
	for err, want := range map[error]bool{
		&node.QuotaError{
			Namespace: "t", Limit: node.JobsLimit,
		}: false, &node.QuotaError{Namespace: "t", Limit: node.PutRate}: false, &node.QueuesError{Namespace: "t"}: false,
		node.ErrNotLeader: true, node.ErrUnknownOutcome: true, node.ErrOverloaded: true,
	} {
		forgot := false
		s := &leaderRouter{
			self: "a.1", follows: func(uint32) bool { return true },
			findLeader: func(context.Context, uint32) string {
				return "b.1"
			}, markFailed: func(uint32, string) { forgot = true },
		}
		got := s.route(t.Context(), 0, newRetryBudget(t.Context(), 0, nil), nil, func(string) error {
			return fmt.Errorf("b.1: %w", err)
		})
		if !errors.Is(got, err) || forgot != want {
			t.Errorf("%v: %v; the leader was forgotten: %v, want %v", err, got, forgot, want)
		}
	}
}

// staleReplica is a node whose replica goes on naming a leader.
type staleReplica string

func (s staleReplica) Leader(uint32) (string, error) { return string(s), nil }

func (staleReplica) Serves(uint32) bool { return false }

// TestLeaderThatRefused: a replica that was removed, and does not know it yet, goes on naming a
// leader that has handed over. Once that leader has refused a call, the others are asked.
// Otherwise calls through this node would go there until the replica misses its leader.
func TestLeaderThatRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shard, names = 0, "b.2"
		say := "x.9"
		c := newLeaderCache(func(context.Context, uint32) string { return say })
		expect := func(what, want string) {
			t.Helper()
			if got := c.find(t.Context(), shard, "a.1", staleReplica(names)); got != want {
				t.Errorf("%s: a call goes to %q, want %q", what, got, want)
			}
		}
		expect("the replica here knows its leader", names)
		c.markFailed(shard, names)
		expect("that one has refused", "x.9")
		c.markFailed(shard, names)
		c.markFailed(shard, "x.9")
		say = "c.3"
		time.Sleep(distrustFor)
		expect("that was a while ago", names)
	})
}
