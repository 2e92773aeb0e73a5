package node

import (
	"fmt"

	"github.com/belfrydb/belfry/fsm"
)

// Format returns the format in which this node writes log entries: the one that it was told last, fsm.FirstFormat before.
func (n *Node) Format() fsm.Format { return max(fsm.FirstFormat, fsm.Format(n.format.Load())) } //nolint:gosec // stored from one

// Speak has the node write log entries in a format, which every node of the cluster must read. The data directory knows it first, so that an
// older program refuses the directory before it takes part in anything. A lower format than before changes nothing. Of an error the node
// goes on in the format that it had; the call may be repeated.
func (n *Node) Speak(format fsm.Format) error {
	if format <= n.Format() {
		return nil
	}
	if err := format.Readable(); err != nil {
		return fmt.Errorf("writing the log: %w", err)
	}
	if err := n.record(func() error { return n.id.speak(n.cfg.Dir, format) }); err != nil {
		return err
	}
	n.speaks(format)
	n.cfg.Logger.Info("writing the log in another format from now on", "format", format)
	return nil
}

// speaks takes over a format that the data directory knows of.
func (n *Node) speaks(format fsm.Format) {
	n.format.Store(uint32(format))
	n.mux.SetFormat(format)
}
