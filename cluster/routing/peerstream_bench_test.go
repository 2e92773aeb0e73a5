package routing

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// tcpLink makes connections over loopback to one other node.
type tcpLink struct {
	net.Listener
	to string
}

// PeerListener implements Link.
func (l *tcpLink) PeerListener() net.Listener { return l.Listener }

// DialPeer implements Link.
func (l *tcpLink) DialPeer(ctx context.Context, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", l.to)
}

// BenchmarkForwardedCalls has 64 callers forward puts of 100 bytes over TCP to a node that does
// nothing.
func BenchmarkForwardedCalls(b *testing.B) {
	listener, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	link := &tcpLink{Listener: listener, to: listener.Addr().String()}
	host := &streamTestHost{do: func(_ context.Context, shard uint32) (node.Reply, error) { return answered(shard), nil }}
	host.format.Store(uint32(fsm.LatestFormat))
	logger := slog.New(slog.DiscardHandler)
	from, to := newPeers(link, logger), newPeers(link, logger)
	answerShards(to, host, "b.2")
	go func() { _ = to.Serve(listener) }()
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			req := aPut()
			req.Commands[0].(*fsm.Put).Body = make([]byte, 100)
			for left.Add(-1) >= 0 {
				if _, err := from.do(b.Context(), forwardedTo{server: "b.2", shard: 1}, req); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	_, _ = from.Close(b.Context()), to.Close(b.Context())
}
