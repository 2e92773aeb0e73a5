package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/belfrydb/belfry/fsm"
)

// ErrFormat is the answer to a node that asks to join and does not read the cluster's format.
var ErrFormat = errors.New("the cluster speaks a later format")

// raise makes the cluster speak a format from the next entry on, if every recorded node reads it.
type raise struct {
	Format fsm.Format `json:"format"`
}

// Reads returns the latest format that a node reads.
func (n *Node) Reads() fsm.Format { return max(fsm.FirstFormat, n.Format) }

// admits returns nil if a node reads what the cluster writes.
func (m *machine) admits(n *Node) error {
	if n.Reads() < m.state.Format {
		return fmt.Errorf("%w: it speaks format %d, node %s (%s) reads up to %d: run a later version of belfry there",
			ErrFormat, m.state.Format, n.Name, n.ServerID, n.Reads())
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
		if m.state.Nodes[i].Reads() < r.Format {
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

// RaiseFormat makes the cluster speak a later format, if every recorded node reads it. It reports
// whether the nodes do; then the cluster speaks that format or a later one.
func (c *Catalog) RaiseFormat(ctx context.Context, format fsm.Format) (raised bool, err error) {
	out, err := c.propose(ctx, command{Raise: &raise{format}})
	return err == nil && out.verdict == done, err
}
