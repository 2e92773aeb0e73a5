package queue

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// slowSearches is a node whose searches wait to be let go.
type slowSearches struct {
	*backendtest.Node
	begun chan struct{}
	goOn  chan struct{}
}

func (n *slowSearches) Query(ctx context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
	if _, search := q.(*fsm.SearchQuery); search {
		n.begun <- struct{}{}
		<-n.goOn
	}
	return n.Node.Query(ctx, shard, q)
}

// TestSearchesAtOneTime: two searches run, and a third waits, until it is its turn or its caller is gone.
func TestSearchesAtOneTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &slowSearches{
			Node: backendtest.NewNode(1), begun: make(chan struct{}, 10), goOn: make(chan struct{}),
		}
		s := newService(t, n)
		search := func(ctx context.Context, done chan<- error) {
			_, err := s.List(ctx, &belfryv1.ListRequest{Queue: "q", Text: "x"})
			done <- err
		}
		done, gone := make(chan error, 3), make(chan error, 1)
		for range 3 {
			go search(t.Context(), done)
		}
		synctest.Wait()
		if len(n.begun) != searchesMax {
			t.Errorf("%d searches run at one time", len(n.begun))
		}
		ctx, cancel := context.WithCancel(t.Context())
		go search(ctx, gone)
		synctest.Wait()
		cancel()
		if err := <-gone; err == nil {
			t.Error("a search whose caller was gone before its turn has an answer")
		}
		close(n.goOn)
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
