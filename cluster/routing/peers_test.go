package routing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/node"
)

func TestPeerCall(t *testing.T) {
	network := routingtest.NewNetwork()
	a, b := startPeers(t, network.Link("a.1")), startPeers(t, network.Link("b.2"))
	type question struct{ Text string }
	type reply struct{ From, Text string }
	Handle(b, "/echo", func(_ context.Context, from string, q question) (reply, error) { return reply{from, q.Text}, nil })
	got, err := Call[reply](t.Context(), a, "b.2", "/echo", question{"hello"})
	if err != nil || got != (reply{"a.1", "hello"}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := Call[reply](t.Context(), a, "b.2", "/nothing", question{}); !errors.Is(err, node.ErrCanceled) {
		t.Errorf("a path that is not there: %v", err)
	}
	if _, err := Call[reply](t.Context(), a, "c.3", "/echo", question{}); !errors.Is(err, node.ErrNoLeader) ||
		node.OutcomeOf(err) != node.NotApplied {
		t.Errorf("a node that is not there: %v", err)
	}
}

// TestPeerErrors keeps each error's identity, but for those that are about the node that was asked,
// and takes the worst outcome of an error that is two.
func TestPeerErrors(t *testing.T) {
	network := routingtest.NewNetwork()
	a, b := startPeers(t, network.Link("a.1")), startPeers(t, network.Link("b.2"))
	var fail error
	Handle(b, "/fail", func(context.Context, string, struct{}) (struct{}, error) { return struct{}{}, fail })
	for name, want := range peerErrors() {
		fail = fmt.Errorf("because: %w", want)
		_, err := Call[struct{}](t.Context(), a, "b.2", "/fail", struct{}{})
		again := name == nameStopping || name == nameBehind || name == nameNotRelayed
		if again {
			if errors.Is(err, want) {
				t.Errorf("%s is said to be of the node that asked: %v", name, err)
			}
			want = node.ErrNoLeader
		}
		if !errors.Is(err, want) || errors.Is(err, node.ErrUnknownOutcome) != (name == "unknown_outcome") ||
			errors.Is(err, errAgain) != again {
			t.Errorf("%s came as %v", name, err)
		}
	}
	for _, fail = range []error{errors.New("no idea"),
		fmt.Errorf("%w: %w", node.ErrUnknownOutcome, node.ErrShuttingDown)} {
		if _, err := Call[struct{}](t.Context(), a, "b.2", "/fail", struct{}{}); !errors.Is(err, node.ErrUnknownOutcome) ||
			node.OutcomeOf(err) != node.Unknown {
			t.Errorf("%v came as %v", fail, err)
		}
	}
}

// TestPeerBreaks: a connection that breaks under a call leaves its outcome unknown, and the handler
// learns of it.
func TestPeerBreaks(t *testing.T) {
	network := routingtest.NewNetwork()
	link := network.Link("b.2")
	a, b := startPeers(t, network.Link("a.1")), startPeers(t, link)
	ended := make(chan struct{})
	Handle(b, "/wait", func(ctx context.Context, _ string, _ struct{}) (struct{}, error) {
		link.Cut()
		<-ctx.Done()
		close(ended)
		return struct{}{}, ctx.Err()
	})
	if _, err := Call[struct{}](t.Context(), a, "b.2", "/wait", struct{}{}); !errors.Is(err, node.ErrUnknownOutcome) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
	<-ended
}

// TestPeerErrorsForAnOlderNode: an error that came later has a name that the program before it
// knows, with the same outcome, since a name that it does not know is an unknown outcome to it.
func TestPeerErrorsForAnOlderNode(t *testing.T) {
	for _, c := range []struct {
		err   error
		older string
	}{
		{node.ErrMemoryFull, "disk_full"}, {&node.MemoryError{Used: 90, Limit: 100}, "disk_full"},
		{node.ErrTooFewVoters, "overloaded"}, {&node.VotersError{Have: 1, Want: 2}, "overloaded"},
		{node.ErrDiskFull, "disk_full"}, {node.ErrUnknownOutcome, "unknown_outcome"},
		{fmt.Errorf("%w: %w", node.ErrUnknownOutcome, node.ErrMemoryFull), "unknown_outcome"},
	} {
		sent := namePeerError(fmt.Errorf("shard-1: %w", c.err))
		var told struct{ Name string }
		if err := json.Unmarshal(sent, &told); err != nil || told.Name != c.older {
			t.Errorf("an older node reads %q of %v, want %q", told.Name, c.err, c.older)
		}
		if got := readPeerError(http.StatusConflict, sent); node.OutcomeOf(got) != node.OutcomeOf(c.err) {
			t.Errorf("%v came as %v", c.err, got)
		}
	}
}

// TestUnknownQuotaCrossesNodes: a leader that does not know its quota yet says so, and the caller
// learns it through any node.
func TestUnknownQuotaCrossesNodes(t *testing.T) {
	err := readPeerError(http.StatusConflict,
		namePeerError(fmt.Errorf("shard-1: %w: namespace %q", node.ErrQuotaUnknown, "t")))
	if !errors.Is(err, node.ErrQuotaUnknown) || node.OutcomeOf(err) != node.NotApplied {
		t.Errorf("it arrives as %v", err)
	}
}

// TestTooManyQueuesCrossNodes: the error of a namespace with too many queues reaches the caller
// through any node. A version that does not know the error reads it as one of a quota.
func TestTooManyQueuesCrossNodes(t *testing.T) {
	want := &node.QueuesError{Namespace: "t", Queue: "t/q", Used: 5, Free: 3, Max: 8}
	sent := namePeerError(fmt.Errorf("shard-1: %w", want))
	got, ok := errors.AsType[*node.QueuesError](readPeerError(http.StatusConflict, sent))
	if !ok || *got != *want || node.OutcomeOf(got) != node.NotApplied {
		t.Errorf("it arrives as %+v", got)
	}
	if older := readPeerError(http.StatusConflict,
		bytes.Replace(sent, []byte(`"queues"`), []byte(`"future"`), 1)); !errors.Is(older, node.ErrQuota) {
		t.Errorf("at an older node it arrives as %v", older)
	}
}

// TestCallsThatAreNotUnderstood are not carried out, and the caller knows.
func TestCallsThatAreNotUnderstood(t *testing.T) {
	for status, want := range map[int]node.Outcome{
		http.StatusBadRequest: node.NotApplied, http.StatusNotFound: node.NotApplied,
		http.StatusMethodNotAllowed:    node.NotApplied,
		http.StatusInternalServerError: node.Unknown, http.StatusBadGateway: node.Unknown,
	} {
		if got := node.OutcomeOf(readPeerError(status, []byte("no"))); got != want {
			t.Errorf("status %d: %v, want %v", status, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		startPeers(t, network.Link("b"))
		a := startPeers(t, network.Link("a"))
		if _, err := Call[struct{}](t.Context(), a, "b", "/later", struct{}{}); node.OutcomeOf(err) != node.NotApplied {
			t.Errorf("a call that the other node does not know: %v", err)
		}
	})
}

// startPeers serves peers on a link until the test ends.
func startPeers(t *testing.T, link *routingtest.Link) *Peers {
	t.Helper()
	p := newPeers(link, slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- p.Serve(link) }()
	t.Cleanup(func() {
		if err := errors.Join(p.Close(t.Context()), <-served); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return p
}
