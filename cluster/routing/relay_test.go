package routing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/node"
)

// relayedAfter is within what time calls to a node that answers nothing go by way of another: two
// questions must fail, after one that was answered at the last moment.
const relayedAfter = 2*probeWait + 3*ProbeInterval

// relaying starts nodes that ask each other whom they reach.
func relaying(t *testing.T, network *routingtest.Network, names ...string) map[string]*Peers {
	t.Helper()
	all := map[string]*Peers{}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, name := range names {
		p := startPeers(t, network.Link(name))
		p.reachability = newReachability(name, p.askReach)
		Handle(p, pathReach, func(_ context.Context, from string, _ struct{}) (reachAnswer, error) {
			return p.reachability.answerProbe(from), nil
		})
		Handle(p, "/echo", func(_ context.Context, from, text string) (string, error) {
			if text == "fail" {
				return "", node.ErrQuota
			}
			return from + " said " + text, nil
		})
		p.answerRelay()
		all[name] = p
	}
	for _, p := range all {
		running.Go(func() {
			for ctx.Err() == nil {
				p.reachability.Probe(ctx, without(names, p.reachability.self), &running)
				select {
				case <-time.After(ProbeInterval):
				case <-ctx.Done():
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return all
}

func without(names []string, name string) (others []string) {
	for _, other := range names {
		if other != name {
			others = append(others, other)
		}
	}
	return others
}

// TestRelay: calls to a node that is not reached go through a node that reaches it. Errors keep
// their identity. Without a relay the calls are refused.
func TestRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		all := relaying(t, network, "a.1", "b.1", "c.1")
		a := all["a.1"]
		expect := func(want string) {
			t.Helper()
			if got, err := Call[string](t.Context(), a, "c.1", "/echo", "x"); err != nil || got != want {
				t.Errorf("answered %q, %v, want %q", got, err, want)
			}
		}
		time.Sleep(time.Second)
		expect("a.1 said x")
		network.Drop("c.1", "a.1")
		time.Sleep(relayedAfter)
		expect("b.1 said x")
		if _, err := Call[string](t.Context(), a, "c.1", "/echo", "fail"); !errors.Is(err, node.ErrQuota) {
			t.Errorf("an error came as %v", err)
		}
		// The one between does not pass it on a second time, nor to a node that it does not reach itself.
		if _, err := a.post(t.Context(), "b.1", pathRelay+"c.1"+pathRelay+"a.1/echo", []byte(`"x"`)); !errors.Is(err,
			node.ErrCanceled) {
			t.Errorf("two relays: %v", err)
		}
		network.Drop("c.1", "b.1")
		time.Sleep(relayedAfter)
		if _, err := a.post(t.Context(), "b.1", pathRelay+"c.1/echo", []byte(`"x"`)); !errors.Is(err, errAgain) ||
			!errors.Is(err, node.ErrNoLeader) {
			t.Errorf("by way of a node that does not reach it: %v", err)
		}
		time.Sleep(refusedAfter)
		began := time.Now()
		if _, err := Call[string](t.Context(), a, "c.1", "/echo", "x"); !errors.Is(err, node.ErrNoLeader) ||
			!errors.Is(err, errCutOff) || errors.Is(err, errAgain) || !strings.Contains(err.Error(), "has not reached c.1") ||
			time.Since(began) > 0 {
			t.Errorf("refused after %v: %v", time.Since(began), err)
		}
		if got := a.reachability.Unreached(); len(got) != 1 || got[0].Server != "c.1" || !got[0].Calls {
			t.Errorf("not reached are %+v", got)
		}
		network.Pass("c.1", "a.1", "b.1")
		time.Sleep(30 * time.Second)
		expect("a.1 said x")
	})
}

// TestReachAnswerThatBreaksOff: a node whose answer is cut off was not reached.
func TestReachAnswerThatBreaksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		a, b := startPeers(t, network.Link("a.1")), startPeers(t, network.Link("b.1"))
		b.mux.HandleFunc("POST "+pathReach, func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("{"))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		ctx, cancel := context.WithTimeout(t.Context(), probeWait)
		defer cancel()
		if _, err := a.askReach(ctx, "b.1"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errNotUnderstood) {
			t.Errorf("asked, got %v, want that the time was up", err)
		}
	})
}

// TestRelayedCallThatBreaks: a call that broke on its way has an unknown outcome, on whichever of
// its two connections.
func TestRelayedCallThatBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		all := relaying(t, network, "a.1", "b.1", "c.1")
		network.Drop("c.1", "a.1")
		time.Sleep(relayedAfter + time.Second)
		taken := make(chan struct{})
		Handle(all["c.1"], "/hang", func(ctx context.Context, _ string, _ struct{}) (struct{}, error) {
			close(taken)
			<-ctx.Done()
			return struct{}{}, ctx.Err()
		})
		ended := make(chan error, 1)
		go func() {
			_, err := Call[struct{}](t.Context(), all["a.1"], "c.1", "/hang", struct{}{})
			ended <- err
		}()
		select {
		case <-taken:
		case err := <-ended:
			t.Fatalf("it was not relayed: %v", err)
		}
		network.Isolate("c.1")
		if err := <-ended; !errors.Is(err, node.ErrUnknownOutcome) || errors.Is(err, errAgain) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestNotRelayedIsSaid: a call that was not relayed fails with that error, whatever else it wraps.
func TestNotRelayedIsSaid(t *testing.T) {
	for range 50 { // an order that changes would show
		for want, err := range map[string]error{
			nameNotRelayed:    fmt.Errorf("%w: %w: %w", errNotRelayed, node.ErrNoLeader, errAgain),
			nameBehind:        fmt.Errorf("%w: %w", node.ErrNoLeader, errBehind),
			"restoring":       fmt.Errorf("%w: %w: %w", node.ErrCanceled, node.ErrRestoring, node.ErrNotLeader),
			"no_leader":       fmt.Errorf("%w: %w", node.ErrCanceled, node.ErrNoLeader),
			"unknown_outcome": fmt.Errorf("%w: %w", errNotRelayed, node.ErrUnknownOutcome),
		} {
			var got peerError
			if failed := json.Unmarshal(namePeerError(err), &got); failed != nil || got.Name != want {
				t.Fatalf("%v is called %q, %v, want %q", err, got.Name, failed, want)
			}
		}
	}
}
