package routing

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/node"
)

// answersAsOfOld serves queries as programs do that do not know them: with a status and a text.
func answersAsOfOld(t *testing.T, link *routingtest.Link) {
	t.Helper()
	old := startPeers(t, link)
	for _, path := range []string{pathQuery, pathPeek} {
		old.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "written by a later version: query kind 7", http.StatusBadRequest)
		})
	}
}

// TestQueriesThatAnEarlierVersionDoesNotKnow: that another node is too old for a query is said as
// such. It is neither a call that its client ended, nor one to repeat.
func TestQueriesThatAnEarlierVersionDoesNotKnow(t *testing.T) {
	search := &fsm.SearchQuery{ListQuery: fsm.ListQuery{Queue: "orders", State: fsm.Delayed, Max: 1}, Scan: 1}
	for _, tt := range []struct {
		name   string
		spoken fsm.Format
		q      fsm.Query
		tooOld bool
	}{
		{"a search while not all nodes know it", search.Kind().Format() - 1, search, true},
		{"minutes while not all nodes know them", search.Kind().Format() - 1, &fsm.MinuteQuery{Queue: "orders"}, true},
		{"keys while not all nodes know them", fsm.KeysFormat - 1, &fsm.KeysQuery{Queue: "orders", Scan: 1}, true},
		{"a search that all nodes know", search.Kind().Format(), search, false},
		{"a list", fsm.FirstFormat, &search.ListQuery, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			network := routingtest.NewNetwork()
			from := startPeers(t, network.Link("a.1"))
			answersAsOfOld(t, network.Link("b.2"))
			from.format = func() fsm.Format { return tt.spoken }
			_, _, asked := from.query(t.Context(), pathQuery, forwardedTo{server: "b.2"}, tt.q)
			_, _, peeked := from.peekAny(t.Context(), []string{"b.2", "nowhere.9"}, 0, tt.q)
			for what, err := range map[string]error{"query": asked, "peek": peeked} {
				if errors.Is(err, node.ErrUnsupported) != tt.tooOld || node.OutcomeOf(err) != node.NotApplied ||
					errors.Is(err, errAgain) && tt.tooOld {
					t.Errorf("%s: %v", what, err)
				}
				if tt.tooOld && (errors.Is(err, node.ErrCanceled) || errors.Is(err, node.ErrNoLeader)) {
					t.Errorf("%s also says something else: %v", what, err)
				}
			}
		})
	}
}

// TestQueriesOfALaterVersion: this program names the error when it does not know a query, so that a
// later one need not guess.
func TestQueriesOfALaterVersion(t *testing.T) {
	_, from := newLoneHost(t)
	later := codec.AppendQueryIn(nil, fsm.LatestFormat, &fsm.QueueQuery{Queue: "orders"})
	for what, change := range map[string]func(b []byte){
		"kind": func(b []byte) { b[1] = 200 }, "format": func(b []byte) { b[0] = byte(fsm.LatestFormat) + 1 },
	} {
		q := bytes.Clone(later)
		change(q)
		if _, err := from.post(t.Context(), "b.2", pathQuery+"?shard=0", q); !errors.Is(err, node.ErrUnsupported) ||
			!strings.Contains(err.Error(), what) {
			t.Errorf("a query of a later %s: %v", what, err)
		}
	}
	if _, err := from.post(t.Context(), "b.2", pathQuery+"?shard=0", later[:1]); err == nil ||
		errors.Is(err, node.ErrUnsupported) {
		t.Errorf("half a query: %v", err)
	}
}
