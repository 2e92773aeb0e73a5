package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/node/peer"
	"github.com/belfrydb/belfry/rpc/portcheck"
)

// listening returns the address of a listener that ends with the test.
func listening(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestWhatIsAtAJoinAddress tells the ports of a node that are not for gossip, web servers, and what
// says nothing.
func TestWhatIsAtAJoinAddress(t *testing.T) {
	belfry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(portcheck.ServedBy, "n7")
	}))
	defer belfry.Close()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	peers := listening(t)
	answering, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- peer.AnswerStrangers(answering, peers.(peer.StrangerListener), func(string) peer.Introduction {
			return peer.Introduction{ServerID: "n8.1", Shards: 6}
		})
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	silent := listening(t)
	for addr, want := range map[string]string{
		belfry.Listener.Addr().String(): "is where node n7 is reached by clients: join the address that it gossips at",
		web.Listener.Addr().String():    "there is a web server, and no node of Belfry",
		peers.Addr().String():           "is where n8.1 is reached by its peers: join the address that it gossips at",
		silent.Addr().String():          "does not gossip as Belfry does",
	} {
		r := newJoinReporter(Config{Logger: slog.New(slog.DiscardHandler)})
		foreign := addr == web.Listener.Addr().String() // only there no node can be
		all := r.reports(t.Context(), []gossip.JoinAttempt{{
			Addr: addr, Outcome: gossip.JoinNotGossip, Err: errors.New("odd"),
		}})
		if len(all) != 1 || !all[0].mistake || !strings.Contains(all[0].text, addr) || !strings.Contains(all[0].text, want) {
			t.Errorf("%+v, want %q", all, want)
		}
		if again := r.reports(t.Context(), []gossip.JoinAttempt{{
			Addr: addr, Outcome: gossip.JoinNotGossip,
		}}); again[0] != all[0] {
			t.Errorf("it is asked again at once: %+v", again)
		}
		if why := r.unheard(t.Context(), []gossip.JoinAttempt{{
			Addr: addr, Outcome: gossip.JoinNotGossip,
		}}); (why == "") != foreign {
			t.Errorf("where %s: it holds up a founding with %q; another program there: %v", want, why, foreign)
		}
	}
}

// TestJoinReports says of each outcome what it is and what to do, and whether waiting helps.
func TestJoinReports(t *testing.T) {
	failed := errors.New("the cause")
	for _, test := range []struct {
		name    string
		attempt gossip.JoinAttempt
		keys    string
		want    string
		mistake bool
	}{
		{"reached", gossip.JoinAttempt{Outcome: gossip.JoinReached}, "", "", false},
		{"being called", gossip.JoinAttempt{Outcome: gossip.JoinPending}, "", "", false},
		{"no such host", gossip.JoinAttempt{
			Outcome: gossip.JoinUnresolved, Err: failed,
		}, "", "join address a:1: the cause", false},
		{"nobody", gossip.JoinAttempt{
			Outcome: gossip.JoinNoConnection, Err: failed,
		}, "", "nobody answers at join address a:1: the cause: start a node there, or", false},
		{"no key here", gossip.JoinAttempt{
			Outcome: gossip.JoinWrongKey, Err: failed,
		}, "", "give this node the cluster's gossip keys", true},
		{"another key", gossip.JoinAttempt{Outcome: gossip.JoinWrongKey, Err: failed}, "file", "compare the files", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.attempt.Addr = "a:1"
			all := newJoinReporter(Config{GossipKeys: test.keys}).reports(t.Context(), []gossip.JoinAttempt{test.attempt})
			if test.want == "" {
				if len(all) != 0 {
					t.Errorf("%+v", all)
				}
				return
			}
			if len(all) != 1 || all[0].mistake != test.mistake || !strings.Contains(all[0].text, test.want) ||
				!strings.Contains(all[0].text, "a:1") {
				t.Errorf("%+v, want %q", all, test.want)
			}
		})
	}
}

// TestFoundingHearsEachJoinAddress: as long as there may be a cluster where this node was told to
// look, it founds none.
func TestFoundingHearsEachJoinAddress(t *testing.T) {
	for outcome, founds := range map[gossip.JoinOutcome]bool{
		gossip.JoinPending: false, gossip.JoinWrongKey: false, gossip.JoinNotGossip: false,
		gossip.JoinUnresolved: true, gossip.JoinNoConnection: true, gossip.JoinReached: true,
	} {
		r := newJoinReporter(Config{})
		r.probes["b:1"] = probe{at: time.Now()} // what is there cannot be told
		why := r.unheard(t.Context(), []gossip.JoinAttempt{
			{Addr: "a:1", Outcome: gossip.JoinReached},
			{Addr: "b:1", Outcome: outcome},
		})
		if (why == "") != founds || !founds && !strings.Contains(why, "b:1") {
			t.Errorf("outcome %d: %q", outcome, why)
		}
	}
}

// TestFoundingIsAdvisedWhereNobodyIs, and not where a cluster may be that this node cannot hear.
func TestFoundingIsAdvisedWhereNobodyIs(t *testing.T) {
	const advice = "start it with --bootstrap-expect N"
	for outcome, advised := range map[gossip.JoinOutcome]bool{
		gossip.JoinNoConnection: true, gossip.JoinReached: true, gossip.JoinWrongKey: false, gossip.JoinPending: false,
	} {
		for _, members := range [][]gossip.Member{nil, {seen("n2.1", true)}} {
			unheard := newJoinReporter(Config{}).unheard(t.Context(), []gossip.JoinAttempt{{Addr: "a:1", Outcome: outcome}})
			if why := unexpected(members, unheard); strings.Contains(why, advice) != advised {
				t.Errorf("outcome %d, %d members: %q", outcome, len(members), why)
			}
		}
	}
}
