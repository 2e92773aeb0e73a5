package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// TestLaneThatStallsAtItsHost: a message that does not go on ends the lane and what is carried out for it. Nobody would read what is sent after it.
func TestLaneThatStallsAtItsHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lt := newLaneTest(t, nil)
		lt.host.reserve = func(ctx context.Context, wait node.Wait) (node.Reply, error) {
			late := time.NewTimer(wait.For)
			defer late.Stop()
			select {
			case <-ctx.Done():
				return node.Reply{}, ctx.Err()
			case <-late.C:
				return answered(1), nil
			}
		}
		wait := binary.AppendUvarint([]byte{0, 0}, uint64(time.Hour))
		took := lt.send(t, appendLane(nil, laneReserve, 1, wait, lt.a.forwarded(aPut())), appendLane(nil, laneDo, 2, make([]byte, 100))[:10])
		if took != paceWait {
			t.Errorf("it ended after %v, want %v", took, paceWait)
		}
	})
}

// TestPanicInALane ends its call, and neither the lane nor the node.
func TestPanicInALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lt := newLaneTest(t, func(_ context.Context, shard uint32) (node.Reply, error) {
			if shard == 0 {
				panic("this is planted")
			}
			return answered(shard), nil
		})
		if _, err := lt.call(t.Context(), 0, 10); !errors.Is(err, node.ErrUnknownOutcome) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
		if _, err := lt.call(t.Context(), 1, 10); err != nil || lt.count(pathLane) != 1 {
			t.Errorf("the next call: %v, in lane %d", err, lt.count(pathLane))
		}
	})
}

// TestAnswersThatNobodyTakes are bounded: further calls are refused before they are carried out, also where the callers of the answers have left.
func TestAnswersThatNobodyTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 8 << 20
		host := &laneTestHost{do: func(_ context.Context, shard uint32) (node.Reply, error) {
			return node.Reply{Results: []fsm.Result{{Grants: []fsm.Grant{{Queue: strings.Repeat("x", size)}}}}}, nil
		}}
		host.format.Store(uint32(fsm.LatestFormat))
		p := newPeers(newPipes().link("b.2"), slog.New(slog.DiscardHandler))
		h := newLaneHost(t.Context(), p, waitingHost{shardHost: host}, "a.1")
		call := append([]byte{0, 0}, p.forwarded(aPut())...)
		for id := range uint64(3 * peerBytesMax / size) {
			h.take(laneMessage{kind: laneDo, id: id, content: call})
			h.take(laneMessage{kind: laneCancel, id: id})
			synctest.Wait()
		}
		if most := peerBytesMax + 2*size; len(h.out) > most {
			t.Errorf("%d bytes wait, want at most %d", len(h.out), most)
		}
		close(h.ended)
		h.carrying.Wait()
	})
}
