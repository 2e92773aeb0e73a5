package routing

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/cluster/routing/routingtest"
)

// TestConnectionsThatBreak are replaced, however often that happens.
func TestConnectionsThatBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		link := network.Link("b.2")
		a, b := startPeers(t, network.Link("a.1")), startPeers(t, link)
		Handle(b, "/echo", func(_ context.Context, _ string, q string) (string, error) { return q, nil })
		for i := range 3 * peerConnsMax {
			if got, err := Call[string](t.Context(), a, "b.2", "/echo", "x"); err != nil || got != "x" {
				t.Fatalf("call %d: %q, %v", i, got, err)
			}
			link.Cut()
			// What is sent before the break is noticed has an unknown outcome; then there is a new
			// connection.
			for range 100 {
				if _, err := Call[string](t.Context(), a, "b.2", "/echo", "x"); err == nil {
					break
				}
			}
			synctest.Wait() // all that broke is noticed
		}
	})
}

// TestManyPollsAtOneNode: each is a call that stays open, and they need few connections.
func TestManyPollsAtOneNode(t *testing.T) {
	const polls = 3000
	synctest.Test(t, func(t *testing.T) { // where pings and their answers are never late
		network := routingtest.NewNetwork()
		link := network.Link("b.2")
		a, b := startPeers(t, network.Link("a.1")), startPeers(t, link)
		arrived, answer := make(chan struct{}, polls), make(chan struct{})
		Handle(b, "/wait", func(ctx context.Context, _ string, _ struct{}) (struct{}, error) {
			arrived <- struct{}{}
			select {
			case <-answer:
			case <-ctx.Done():
			}
			return struct{}{}, ctx.Err()
		})
		failed := make(chan error, polls)
		for range polls {
			go func() {
				_, err := Call[struct{}](t.Context(), a, "b.2", "/wait", struct{}{})
				failed <- err
			}()
		}
		for range polls {
			<-arrived
		}
		synctest.Wait() // what was made at once and not needed is closed
		open, made := link.Open()
		t.Logf("%d connections of %d that were made are open", open, made)
		if open > 2*peerConnsMax {
			t.Errorf("%d connections are open, of which a node takes eight", open)
		}
		close(answer)
		for range polls {
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
		}
	})
}
