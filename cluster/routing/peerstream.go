package routing

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/stream"
)

// pathStream is the path at which another node is asked for a stream, which carries calls of its
// shards. peerProtocol is the protocol of the stream.
const (
	pathStream   = "/shard/stream"
	peerProtocol = "belfry-peer/1"
)

// The methods of a stream between nodes. A request begins with uvarints: the shard, the retry
// budget and, for a Reserve, the wait; both times are in nanoseconds. The rest is a log entry of
// one request.
const (
	streamDo stream.Method = iota + 1
	streamReserve
)

const (
	// streamRequestMax bounds the bytes of a request in a stream. A larger one would delay others,
	// and goes in an HTTP request of its own.
	streamRequestMax = 64 << 10
	// noStreamFor is how long no stream is asked for after another node refused one: a program before
	// streams of this kind may be replaced meanwhile.
	noStreamFor = 10 * time.Second
)

// errNoStream: the call needs an HTTP request of its own. No part of it was executed.
var errNoStream = errors.New("the other node has no stream for the call")

// streamLimit is the minimum rate of streams, in both directions.
func streamLimit() stream.Limit { return stream.Limit{Bytes: stallBytes, Wait: stallTimeout} }

// peerStreams holds this node's streams to other nodes. The zero value is ready for use.
type peerStreams struct {
	stream.Callers
	mu       sync.Mutex
	byServer map[string]*stream.Dialer
}

// to returns what keeps the stream to a server.
func (ss *peerStreams) to(p *Peers, server string) *stream.Dialer {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	d := ss.byServer[server]
	if d == nil {
		d = stream.NewDialer(&ss.Callers, stream.DialerConfig{
			Dial:   func(ctx context.Context, _ string) (*stream.Caller, error) { return p.dialStream(ctx, server) },
			Key:    func() string { return "" },
			BarMin: noStreamFor, BarMax: noStreamFor,
		})
		if ss.byServer == nil {
			ss.byServer = map[string]*stream.Dialer{}
		}
		ss.byServer[server] = d
	}
	return d
}

// dialStream connects to another node and asks it for a stream. Its error is a *stream.RefusedError
// if the node has no streams.
func (p *Peers) dialStream(ctx context.Context, server string) (*stream.Caller, error) {
	ctx, cancel := context.WithTimeout(ctx, peerPingWait)
	defer cancel()
	conn, err := p.dial(ctx, server)
	if err != nil {
		return nil, unreached(context.Background(), false, err) //nolint:contextcheck // the dial's limit is not the call's
	}
	var refused error // for a reason that concerns the call
	config := &stream.CallerConfig{
		PingAfter: peerPingAfter, PingTimeout: peerPingWait, Write: streamLimit(), Read: streamLimit(),
		CallsMax: peerCallsMax, AnswerBytesMax: peerBytesMax,
	}
	s, err := p.streams.Open(ctx, conn, config, func(conn net.Conn, in *bufio.Reader) error {
		request := stream.NewUpgrade(&url.URL{Scheme: "http", Host: server, Path: pathStream}, peerProtocol)
		if err := request.Write(conn); err != nil {
			return err
		}
		response, err := http.ReadResponse(in, request)
		if err != nil {
			return err
		}
		if response.StatusCode == http.StatusConflict {
			body, err := io.ReadAll(io.LimitReader(response.Body, bufferInitialMax))
			if err != nil {
				return err
			}
			refused = readPeerError(response.StatusCode, body)
			return refused
		}
		return stream.Upgraded(response, peerProtocol)
	})
	switch {
	case err == nil, refused != nil:
		return s, err
	case ctx.Err() != nil, errors.Is(err, net.ErrClosed):
		return nil, unreached(context.Background(), false, err) //nolint:contextcheck // the dial's limit is not the call's
	default:
		return nil, &stream.RefusedError{Cause: err}
	}
}

// callInStream makes a call in the stream to a server. It returns errNoStream if the call needs an
// HTTP request of its own.
func (p *Peers) callInStream(
	ctx context.Context, to forwardedTo, method stream.Method, wait node.Wait, entry []byte,
) ([]byte, error) {
	if len(entry) > streamRequestMax || !p.direct(to.server) {
		return nil, errNoStream
	}
	s, err := p.streams.to(p, to.server).Get(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, unreached(ctx, false, err)
	case err != nil:
		return nil, err
	case s == nil:
		return nil, errNoStream
	}
	payload := make([]byte, 0, 3*binary.MaxVarintLen64+len(entry))
	payload = binary.AppendUvarint(payload, uint64(to.shard))
	payload = binary.AppendUvarint(payload, uint64(max(0, to.budget)))
	if method == streamReserve {
		payload = binary.AppendUvarint(payload, uint64(max(0, wait.For)))
	}
	payload = append(payload, entry...)
	reply, err := s.Call(ctx, stream.Request{Method: method, Payload: payload, Stop: wait.Stop})
	if errors.Is(err, stream.ErrFull) {
		return nil, errNoStream
	}
	if err != nil {
		_, unsent := errors.AsType[*stream.UnsentError](err)
		return nil, unreached(ctx, !unsent, err)
	}
	if reply.Failed {
		return nil, readPeerError(http.StatusConflict, reply.Payload)
	}
	return reply.Payload, nil
}

// dial connects to another node.
func (p *Peers) dial(ctx context.Context, server string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, peerDialWait)
	defer cancel()
	conn, err := p.link.DialPeer(ctx, server)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", server, err)
	}
	return conn, nil
}
