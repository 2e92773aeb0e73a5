package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/placement"
	"github.com/belfrydb/belfry/cluster/routing"
	"github.com/belfrydb/belfry/node"
)

// pathAudit asks a node for its audited calls.
const pathAudit = "/audit"

// NodeAudit is the answer of one node to AskAudit.
type NodeAudit struct {
	catalog.Node
	// Answer is what the function of AnswerAudit returned on that node. Err says why there is no
	// answer; nil if there is one.
	Answer []byte
	Err    error
}

// The reasons, for people, why a node gives no answer to AskAudit.
var (
	errNoAudit     = errors.New("it does not serve clients yet, or runs a version without this call")
	errUnreachable = errors.New("it cannot be reached; `belfry cluster status` may say why")
	errNoAnswer    = errors.New("it did not answer in time")
)

// AnswerAudit lets this node answer AskAudit of all nodes with what answer returns. The query and
// the answer are the caller's bytes. answer may be called from several goroutines at once; it must
// return without waiting. A later call of AnswerAudit replaces an earlier one.
func (c *Cluster) AnswerAudit(answer func(query []byte) ([]byte, error)) {
	c.members.audit.Store(&answer)
}

// answerAudit answers a query with the function of AnswerAudit.
func (m *members) answerAudit(_ context.Context, _ string, query []byte) ([]byte, error) {
	answer := m.audit.Load()
	if answer == nil {
		return nil, fmt.Errorf("%w: %w", node.ErrCanceled, errNoAudit) // the caller knows the first
	}
	return (*answer)(query)
}

// AskAudit sends a query to all nodes of the cluster, this one included, and returns their answers
// in the order of their server ids. It changes nothing and may be repeated. ctx bounds the wait,
// which never exceeds two seconds.
func (c *Cluster) AskAudit(ctx context.Context, query []byte) []NodeAudit {
	ctx, cancel := context.WithTimeout(ctx, placement.AskWait)
	defer cancel()
	nodes := c.Nodes()
	all := make([]NodeAudit, len(nodes))
	var asking sync.WaitGroup
	for i, n := range nodes {
		all[i].Node = n
		asking.Go(func() { all[i].Answer, all[i].Err = c.members.askAudit(ctx, n.ServerID, query) })
	}
	asking.Wait()
	return all
}

// askAudit sends a query to one node.
func (m *members) askAudit(ctx context.Context, serverID string, query []byte) ([]byte, error) {
	if serverID == m.record.ServerID {
		return m.answerAudit(ctx, serverID, query)
	}
	answer, err := routing.Call[[]byte](ctx, m.peers, serverID, pathAudit, query)
	switch {
	case err == nil:
		return answer, nil
	case errors.Is(err, node.ErrUnknownOutcome), ctx.Err() != nil:
		return nil, errNoAnswer
	case errors.Is(err, node.ErrNoLeader):
		return nil, errUnreachable
	default:
		return nil, errNoAudit
	}
}
