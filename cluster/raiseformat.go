package cluster

import (
	"context"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/placement"
	"github.com/belfrydb/belfry/fsm"
)

// agreed returns the latest format that all nodes read. Each node must report it now: a silent one
// may come back with another program than its record says. While one node is silent, agreed returns
// the first format.
func agreed(all []catalog.Node, reports map[string]*placement.Report) fsm.Format {
	format := fsm.LatestFormat
	for i := range all {
		r := reports[all[i].ServerID]
		if r == nil {
			return fsm.FirstFormat
		}
		format = min(format, all[i].Reads(), max(fsm.FirstFormat, r.Format))
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
	m.raiseFormat(ctx, map[string]*placement.Report{own.ServerID: &own})
	m.applyFormat()
}

// raiseFormat makes the cluster speak the latest format that all nodes read. The format is never
// lowered. It stays as it is until the cluster is recorded: until then it is not known what all
// founders read.
func (m *members) raiseFormat(ctx context.Context, reports map[string]*placement.Report) {
	spoken, format := m.catalog.Format(), agreed(m.catalog.Nodes(), reports)
	if format <= spoken || !m.catalog.Recorded() {
		return
	}
	raised, err := m.catalog.RaiseFormat(ctx, format)
	switch {
	case err != nil:
		m.config.Logger.Warn("raising the format that the cluster speaks", "format", format, "error", err)
	case raised:
		m.config.Logger.Info("every node reads a later format: the cluster speaks it from now on", "format", format, "before",
			spoken)
	}
}
