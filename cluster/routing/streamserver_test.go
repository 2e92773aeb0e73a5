package routing

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// TestStreamThatStalls: a message that stalls ends the stream and the calls in it, since no later
// message can be read.
func TestStreamThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStreamTest(t, nil)
		st.host.reserve = func(ctx context.Context, wait node.Wait) (node.Reply, error) {
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
		took := st.send(t, appendStreamMessage(nil, streamReserve, 1, wait, st.a.forwarded(aPut())), appendStreamMessage(nil, streamDo, 2, make([]byte, 100))[:10])
		if took != stallTimeout {
			t.Errorf("it ended after %v, want %v", took, stallTimeout)
		}
	})
}

// TestPanicInAStream ends its call, and neither the stream nor the node.
func TestPanicInAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStreamTest(t, func(_ context.Context, shard uint32) (node.Reply, error) {
			if shard == 0 {
				panic("this is planted")
			}
			return answered(shard), nil
		})
		if _, err := st.call(t.Context(), 0, 10); !errors.Is(err, node.ErrUnknownOutcome) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
		if _, err := st.call(t.Context(), 1, 10); err != nil || st.count(pathStream) != 1 {
			t.Errorf("the next call: %v, in stream %d", err, st.count(pathStream))
		}
	})
}

// TestUnreadAnswers are bounded: further calls are refused before they are executed, also where
// the callers of the answers have left.
func TestUnreadAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 8 << 20
		host := &streamTestHost{do: func(_ context.Context, shard uint32) (node.Reply, error) {
			return node.Reply{Results: []fsm.Result{{Grants: []fsm.Grant{{Queue: strings.Repeat("x", size)}}}}}, nil
		}}
		host.format.Store(uint32(fsm.LatestFormat))
		p := newPeers(routingtest.NewNetwork().Link("b.2"), slog.New(slog.DiscardHandler))
		s := newStreamServer(t.Context(), p, waitingHost{shardHost: host}, "a.1")
		call := append([]byte{0, 0}, p.forwarded(aPut())...)
		for id := range uint64(3 * peerBytesMax / size) {
			s.handleMessage(streamMessage{kind: streamDo, id: id, content: call})
			s.handleMessage(streamMessage{kind: streamCancel, id: id})
			synctest.Wait()
		}
		if most := peerBytesMax + 2*size; len(s.out) > most {
			t.Errorf("%d bytes wait, want at most %d", len(s.out), most)
		}
		close(s.readDone)
		s.workers.Wait()
	})
}
