package routing

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/stream"
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
		call := append(wait, st.a.forwarded(aPut())...)
		took := st.send(t, frameOf(stream.Header{Kind: stream.Call, Method: streamReserve, ID: 1}, call...),
			frameOf(stream.Header{Kind: stream.Call, Method: streamDo, ID: 2, Size: 100}, 1, 2, 3))
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
		var executed atomic.Int32
		st := newStreamTest(t, func(context.Context, uint32) (node.Reply, error) {
			executed.Add(1)
			return node.Reply{Results: []fsm.Result{{Grants: []fsm.Grant{{Queue: strings.Repeat("x", size)}}}}}, nil
		})
		conn, _ := st.raw(t)
		call := append([]byte{0, 0}, st.a.forwarded(aPut())...)
		// A refusal that is not read may keep the other side from reading further calls.
		calls := make(chan []byte, 3*peerBytesMax/size)
		go func() {
			for data := range calls {
				_, _ = conn.Write(data)
			}
		}()
		for id := range uint32(cap(calls)) {
			calls <- append(frameOf(stream.Header{Kind: stream.Call, Method: streamDo, ID: id}, call...),
				frameOf(stream.Header{Kind: stream.Cancel, ID: id})...)
			synctest.Wait()
		}
		close(calls)
		if n, most := int(executed.Load()), peerBytesMax/size+3; n > most || n < peerBytesMax/size {
			t.Errorf("%d calls were executed, want about %d", n, most)
		}
	})
}
