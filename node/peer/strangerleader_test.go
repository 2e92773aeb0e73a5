package peer

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node/clock/clocktest"
	"github.com/belfrydb/belfry/node/nodetest/pipetest"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// rude greets as it is told to and does not care for the answer.
type rude struct {
	hello    greeting
	listener *pipetest.Listener
	closed   chan struct{}
}

// Dial implements raft.StreamLayer.
func (r rude) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	conn, err := r.listener.Dial(context.Background(), "")
	if err != nil {
		return nil, err
	}
	if err := writeGreeting(conn, r.hello); err != nil {
		return nil, err
	}
	if _, err := readGreeting(conn); err != nil {
		return nil, err
	}
	return inFrames(conn), nil
}

// Accept implements raft.StreamLayer.
func (r rude) Accept() (net.Conn, error) {
	<-r.closed
	return nil, net.ErrClosed
}

// Close implements raft.StreamLayer.
func (r rude) Close() error {
	close(r.closed)
	return nil
}

// Addr implements raft.StreamLayer.
func (r rude) Addr() net.Addr { return serverAddr(r.hello.sender) }

// Raft by itself takes entries from any sender and throws its own away: row 2 of
// docs/decisions/0033-traps-of-the-libraries.md.
func TestStrangerAsLeaderChangesNothing(t *testing.T) {
	const term = 99
	tests := []struct {
		name  string
		greet func(hello *greeting) // what is otherwise than in a member's greeting
		taken bool
	}{
		{"of another cluster", func(hello *greeting) { hello.cluster = "other" }, false},
		{"for an earlier life of this address", func(hello *greeting) { hello.receiver = "n1.0" }, false},
		{"of a group that is not here", func(hello *greeting) { hello.group = "h" }, false},
		{"under this node's own name", func(hello *greeting) { hello.sender = hello.receiver }, false},
		{"of the cluster", func(*greeting) {}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, listener := startMux(t)
				member := raftOn(t, m, m.Transport("g"), "n1.1")
				for member.State() != raft.Leader {
					clocktest.Elapse(100 * time.Millisecond)
				}
				hello := greeting{version: protocolVersion, cluster: "c", group: "g", sender: "n2.1", receiver: "n1.1"}
				tt.greet(&hello)
				trans := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
					Stream: rude{hello, listener, make(chan struct{})}, MaxPool: 1, Timeout: rpcTimeout, Logger: hclog.NewNullLogger(),
				})
				defer func() { _ = trans.Close() }()
				req := &raft.AppendEntriesRequest{Term: term, RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
				var resp raft.AppendEntriesResponse
				err := trans.AppendEntries("", "", req, &resp)
				synctest.Wait()
				if taken := err == nil && member.CurrentTerm() == term; taken != tt.taken {
					t.Errorf("it was answered %v; the member is %v in term %d", err, member.State(), member.CurrentTerm())
				}
			})
		})
	}
}
