package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/belfrydb/belfry/fsm"
)

// ErrFormat is the answer to a node that asks to join and does not read the cluster's format.
var ErrFormat = errors.New("the cluster speaks a later format")

// errBehind is the answer to a node that forwards a request in a format which this node does not
// write yet: it learns of a raise of the format a moment later than others. Logged in the earlier
// format, the request might contain what that format cannot express.
var errBehind = errors.New("the node does not write the request's format yet")

// raise makes the cluster speak a format from the next entry on, if every recorded node reads it.
type raise struct {
	Format fsm.Format `json:"format"`
}

// reads returns the latest format that a node reads.
func (n *Node) reads() fsm.Format { return max(fsm.FirstFormat, n.Format) }

// admits returns nil if a node reads what the cluster writes.
func (m *machine) admits(n *Node) error {
	if n.reads() < m.state.Format {
		return fmt.Errorf("%w: it speaks format %d, node %s (%s) reads up to %d: run a later version of belfry there",
			ErrFormat, m.state.Format, n.Name, n.ServerID, n.reads())
	}
	return nil
}

// raiseFormat applies a raise. It fails if every recorded node reads the format and this program
// does not, against its record: the program must not go on.
func (m *machine) raiseFormat(r *raise) (outcome, error) {
	if r.Format <= m.state.Format {
		return outcome{}, nil
	}
	for i := range m.state.Nodes {
		if m.state.Nodes[i].reads() < r.Format {
			return outcome{verdict: unread}, nil
		}
	}
	if err := r.Format.Readable(); err != nil {
		return outcome{}, fmt.Errorf("from here on the cluster's log is %w", err)
	}
	m.state.Format = r.Format
	return outcome{}, nil
}

// formatOf returns an error if the beginning of an entry or a snapshot has a format that this
// program does not read. It runs before strict decoding, which would name an unknown field instead
// of the cause.
func formatOf(data []byte) error {
	var head struct {
		Format uint64 `json:"format"`
	}
	if json.Unmarshal(data, &head) != nil {
		return nil // strict decoding reports the fault
	}
	return fsm.Format(min(head.Format, 255)).Readable()
}

// Format returns the format that the cluster speaks, from memory. The cluster may speak a later one
// already.
func (c *Catalog) Format() (format fsm.Format) {
	c.view(func(m *machine) { format = m.state.Format })
	return format
}

// agreed returns the latest format that all nodes read. Each node must report it now: a silent one
// may come back with another program than its record says. While one node is silent, agreed returns
// the first format.
func agreed(all []Node, reports map[string]*Report) fsm.Format {
	format := fsm.LatestFormat
	for i := range all {
		r := reports[all[i].ServerID]
		if r == nil {
			return fsm.FirstFormat
		}
		format = min(format, all[i].reads(), max(fsm.FirstFormat, r.Format))
	}
	return format
}

// applyFormat makes this node write the format that the cluster speaks.
func (m *members) applyFormat() {
	if err := m.host.Speak(m.catalog.Format()); err != nil {
		m.config.Logger.Error("taking over the format that the cluster speaks", "error", err)
	}
}

// raiseFormatAlone is raiseFormat and applyFormat at the start of a cluster of one node. The first
// queues have the defaults of the latest format only if the cluster speaks it before the first
// put.
func (m *members) raiseFormatAlone(ctx context.Context) {
	own := m.self()
	m.raiseFormat(ctx, map[string]*Report{own.ServerID: &own})
	m.applyFormat()
}

// raiseFormat makes the cluster speak the latest format that all nodes read. The format is never
// lowered.
func (m *members) raiseFormat(ctx context.Context, reports map[string]*Report) {
	spoken, format := m.catalog.Format(), agreed(m.catalog.Nodes(), reports)
	if format <= spoken {
		return
	}
	out, err := m.catalog.propose(ctx, command{Raise: &raise{format}})
	switch {
	case err != nil:
		m.config.Logger.Warn("raising the format that the cluster speaks", "format", format, "error", err)
	case out.verdict == done:
		m.config.Logger.Info("every node reads a later format: the cluster speaks it from now on", "format", format, "before", spoken)
	}
}
