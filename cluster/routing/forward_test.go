package routing

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// loneHost is a node that leads every shard and carries out nothing.
type loneHost struct {
	shardHost
	format atomic.Uint32
	// reserve answers Reserve; nil for nothing.
	reserve func(ctx context.Context, wait node.Wait) (node.Reply, error)
	// electing: the node was elected and does not serve yet.
	electing bool
}

func (h *loneHost) Format() fsm.Format { return fsm.Format(h.format.Load()) } //nolint:gosec // stored from one

func (h *loneHost) Serves(uint32) bool { return !h.electing }

func (h *loneHost) Leader(uint32) (string, error) { return "b.2", nil }

func (h *loneHost) Do(context.Context, uint32, *fsm.Request) (node.Reply, error) {
	return node.Reply{}, nil
}

func (h *loneHost) Reserve(ctx context.Context, _ uint32, _ *fsm.Request, wait node.Wait) (node.Reply, error) {
	return h.reserve(ctx, wait)
}

// newLoneHost serves such a node at b.2, and returns it and another node's way to it.
func newLoneHost(t *testing.T) (*loneHost, *Peers) {
	t.Helper()
	network := routingtest.NewNetwork()
	host := &loneHost{}
	host.format.Store(uint32(fsm.LatestFormat))
	a, b := startPeers(t, network.Link("a.1")), startPeers(t, network.Link("b.2"))
	answerShards(b, host, "b.2")
	return host, a
}

// aPut is a request that is like any other.
func aPut() *fsm.Request {
	return &fsm.Request{Commands: []fsm.Command{&fsm.Put{Queue: "orders", Partitions: 1, Body: []byte("x")}}}
}

// TestForwardedInALaterFormat: a node that does not write a request's format yet, or does not read
// it, takes nothing, and says so in a way that lets the call go elsewhere or come again.
// .ci/formats runs this with more than one format.
func TestForwardedInALaterFormat(t *testing.T) {
	for _, tt := range []struct {
		name          string
		made, written fsm.Format
		refused       bool
	}{
		{"the same", fsm.LatestFormat, fsm.LatestFormat, false},
		{"an earlier one", fsm.FirstFormat, fsm.LatestFormat, false},
		{"one that the leader does not read", fsm.LatestFormat + 1, fsm.LatestFormat, true},
		{"one that the leader reads and does not write yet", fsm.LatestFormat, fsm.FirstFormat,
			fsm.LatestFormat > fsm.FirstFormat},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host, from := newLoneHost(t)
			host.reserve = func(context.Context, node.Wait) (node.Reply, error) { return node.Reply{}, nil }
			host.format.Store(uint32(tt.written))
			from.format = func() fsm.Format { return tt.made }
			_, did := from.do(t.Context(), forwardedTo{server: "b.2"}, aPut())
			_, reserved := from.reserve(t.Context(), forwardedTo{server: "b.2"}, aPut(), node.Wait{})
			for what, err := range map[string]error{"do": did, "reserve": reserved} {
				again := errors.Is(err, errAgain) && errors.Is(err, node.ErrNoLeader) && node.OutcomeOf(err) == node.NotApplied
				if (err != nil) != tt.refused || again != tt.refused {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

// TestReservationsAtANodeThatStops: a reservation under way is answered. One that waits is sent
// elsewhere, unless it was granted something.
func TestReservationsAtANodeThatStops(t *testing.T) {
	granted := node.Reply{Results: []fsm.Result{{Grants: []fsm.Grant{{Serial: 1}}}}}
	for _, tt := range []struct {
		name  string
		wait  time.Duration
		reply node.Reply
		want  error
	}{
		{"under way", 0, granted, nil},
		{"under way, for nothing", 0, node.Reply{Results: make([]fsm.Result, 1)}, nil},
		{"waiting", time.Hour, node.Reply{Results: make([]fsm.Result, 1)}, errAgain},
		{"waiting, and granted", time.Hour, granted, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := routingtest.NewNetwork()
				host, link := &loneHost{}, network.Link("b.2")
				host.format.Store(uint32(fsm.LatestFormat))
				host.reserve = func(ctx context.Context, wait node.Wait) (node.Reply, error) {
					if wait.For > 0 {
						select {
						case <-wait.Stop:
						case <-ctx.Done():
						}
					}
					select {
					case <-time.After(peerCloseWait / 2): // for the entry that is under way
						return tt.reply, nil
					case <-ctx.Done():
						return node.Reply{}, fmt.Errorf("%w: %w", node.ErrUnknownOutcome, context.Cause(ctx))
					}
				}
				a, b := startPeers(t, network.Link("a.1")), newPeers(link, slog.New(slog.DiscardHandler))
				answerShards(b, host, "b.2")
				served, got := make(chan error, 1), make(chan error, 1)
				go func() { served <- b.Serve(link) }()
				go func() {
					reply, err := a.reserve(t.Context(), forwardedTo{server: "b.2"}, aPut(), node.Wait{For: tt.wait})
					if err == nil && len(reply.Results[0].Grants) != len(tt.reply.Results[0].Grants) {
						t.Errorf("the answer is %+v, want %+v", reply, tt.reply)
					}
					got <- err
				}()
				synctest.Wait()
				if err := errors.Join(b.Close(t.Context()), <-served); err != nil {
					t.Error(err)
				}
				if err := <-got; !errors.Is(err, tt.want) || tt.want != nil && node.OutcomeOf(err) != node.NotApplied {
					t.Errorf("%v, want %v", err, tt.want)
				}
			})
		})
	}
}

// TestForwardedReserveShowsKeys: a job that another node granted has its key and its version if the
// cluster's format has them, in a stream and in a request of its own. Nodes of an earlier format read
// the answer without them.
func TestForwardedReserveShowsKeys(t *testing.T) {
	granted := node.Reply{
		Results: []fsm.Result{{Grants: []fsm.Grant{{Queue: "orders", Serial: 1, Fence: 2}}}},
		Jobs:    []fsm.Job{{Queue: "orders", Serial: 1, ID: "a", State: fsm.Reserved, Fence: 2, Key: "customer", Version: 3}},
	}
	for format, want := range map[fsm.Format]fsm.Job{
		fsm.KeysFormat: {Key: "customer", Version: 3}, fsm.KeysFormat - 1: {},
	} {
		synctest.Test(t, func(t *testing.T) {
			st := newStreamTest(t, func(context.Context, uint32) (node.Reply, error) { return granted, nil })
			st.host.reserve = func(context.Context, node.Wait) (node.Reply, error) { return granted, nil }
			st.a.format = func() fsm.Format { return format }
			inStream, err := st.a.reserve(t.Context(), forwardedTo{server: "b.2"}, aPut(), node.Wait{})
			if err != nil {
				t.Fatal(err)
			}
			// A large request has a connection of its own.
			alone, err := st.call(t.Context(), 0, 1<<20)
			if err != nil || st.count(pathDo) != 1 || st.count(pathStream) != 1 {
				t.Fatalf("%v, %d requests of their own and %d streams", err, st.count(pathDo), st.count(pathStream))
			}
			bare, err := st.a.post(t.Context(), "b.2", forwardedTo{}.at(pathReserve)+"&wait=0s",
				append(binary.BigEndian.AppendUint32(nil, uint32(len(st.a.forwarded(aPut())))), st.a.forwarded(aPut())...))
			if err != nil {
				t.Fatal(err)
			}
			reserved, _, err := readReply(bare)
			if err != nil {
				t.Fatal(err)
			}
			for way, reply := range map[string]node.Reply{"stream": inStream, "do": alone, "reserve": reserved} {
				if len(reply.Jobs) != 1 || reply.Jobs[0].Key != want.Key || reply.Jobs[0].Version != want.Version {
					t.Errorf("format %d, %s: %+v", format, way, reply.Jobs)
				}
			}
		})
	}
}
