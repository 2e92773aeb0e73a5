package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/routing"
	"github.com/belfrydb/belfry/node"
)

const (
	// enrolPause is the time between two attempts to be recorded. enrolNotice is the time until
	// their failure is logged, and between two such messages.
	enrolPause  = 500 * time.Millisecond
	enrolNotice = 10 * time.Second
	// leaderlessMax is how long a recorded node may know of no leader before it asks whether it
	// still is a node of the cluster. An election takes one to three seconds.
	leaderlessMax = 3 * time.Second
)

// enrol makes the catalog record this node, unless it is recorded as it is. A node that knows of
// no leader may have been removed, or have an old address in the catalog, without knowing it: it
// asks as well. A *DepartedError is final.
func (m *members) enrol(ctx context.Context) error {
	c := m.catalog
	if left := c.Departed(m.record.ServerID); left != nil {
		return left
	}
	if c.Group().Leader() != "" {
		m.led = time.Now()
		if c.Holds(m.record) {
			return nil
		}
	} else if c.Holds(m.record) && time.Since(m.led) < leaderlessMax {
		return nil
	}
	err := c.Admit(ctx, m.record)
	if err == nil || c.Group().Leader() != "" {
		return err
	}
	// A node that starts again does not know what its own log says before it knows a leader.
	for _, other := range m.knownServers() {
		answer, refused := routing.Call[admission](ctx, m.peers, other, routing.JoinPath, joinCall{
			Node: m.record, Process: m.process,
		})
		if refused == nil && answer.Departed == nil {
			return nil
		}
		// An answer of the cluster counts more than a node that cannot be reached.
		if refused == nil {
			return &catalog.DepartedError{
				ServerID: m.record.ServerID, ClusterID: m.host.Status().ClusterID, Replacement: answer.Departed.Replacement,
			}
		}
		if errors.Is(refused, catalog.ErrNameTaken) || errors.Is(refused, catalog.ErrFormat) {
			return refused
		}
		err = refused
	}
	return err
}

// confirm closes confirmed once this node is known to be a node of its cluster. It reports whether
// it has just done so.
func (m *members) confirm() bool {
	select {
	case <-m.confirmed:
		return false
	default:
		known := m.catalog.Group().Leader() != "" && m.catalog.Holds(m.record)
		if known {
			close(m.confirmed)
		}
		return known
	}
}

// knownServers returns the servers that this node knows of, except itself: first those that it was
// configured to join.
func (m *members) knownServers() (servers []string) {
	servers = append(slices.Clone(m.config.Seeds), m.config.Directory.servers()...)
	return slices.DeleteFunc(servers, func(server string) bool { return server == m.record.ServerID })
}

// handleDeparture reports whether err says that this node left for good. If it does,
// handleDeparture reports it.
func (m *members) handleDeparture(err error) bool {
	left, ok := errors.AsType[*catalog.DepartedError](err)
	if !ok {
		return false
	}
	m.setUnrecorded(err)
	m.config.Logger.Error("this node is no longer one of the cluster", "error", err)
	if m.config.Departed != nil {
		m.config.Departed(left)
	}
	return true
}

// refusal records since when this node's record has been missing or out of date, and when that was
// last logged. The catalog may have no known leader for a moment, after a start and at other times.
// That is not worth a message.
type refusal struct{ since, said time.Time }

// update records the result of an attempt. It reports whether the failure is final, or has lasted
// for some time.
func (r *refusal) update(err error) bool {
	if err == nil {
		*r = refusal{}
		return false
	}
	if r.since.IsZero() {
		r.since = time.Now()
	}
	return errors.Is(err, catalog.ErrNameTaken) || errors.Is(err, catalog.ErrFormat) || time.Since(r.since) >= enrolNotice
}

// isDue reports whether the refusal should be logged again, and records that it was.
func (r *refusal) isDue() bool {
	if time.Since(r.said) < enrolNotice {
		return false
	}
	r.said = time.Now()
	return true
}

// reportRefusal reports that this node is not recorded as it is, in the log and for readiness, if
// the failure lasts.
func (m *members) reportRefusal(ctx context.Context, r *refusal, err error) {
	if !r.update(err) || ctx.Err() != nil {
		m.setUnrecorded(nil)
		return
	}
	if !m.catalog.Holds(m.record) { // otherwise only the leader is missing
		m.setUnrecorded(err)
	}
	if r.isDue() {
		m.config.Logger.Warn("asking to be a node of the cluster", "error", err)
	}
}

// setUnrecorded stores why this node is not recorded, for readiness.
func (m *members) setUnrecorded(err error) {
	if err == nil {
		m.unrecorded.Store(nil)
		return
	}
	why := fmt.Sprintf("%s is not recorded as it is in the cluster: %s", m.record.ServerID, err)
	m.unrecorded.Store(&why)
}

// joinCall asks that a node be recorded as it is.
type joinCall struct {
	catalog.Node
	// Process is Report.Process of the node that asks.
	Process string `json:"process,omitempty"`
}

// admission is the answer to a node that asks to join.
type admission struct {
	// Departed is set if the node left for good.
	Departed *catalog.Departure `json:"departed,omitempty"`
}

// answerJoin answers a node that asks to be recorded.
func (m *members) answerJoin(ctx context.Context, from string, call joinCall) (admission, error) {
	n := call.Node
	if n.ServerID != from {
		return admission{}, fmt.Errorf("%w: %s asks for the admission of %s", node.ErrCanceled, from, n.ServerID)
	}
	if left := m.catalog.Departed(n.ServerID); left != nil {
		return admission{Departed: &catalog.Departure{ServerID: n.ServerID, Replacement: left.Replacement}}, nil
	}
	if m.catalog.Holds(n) {
		return admission{}, nil
	}
	silent, err := m.nameFree(ctx, call)
	if err == nil {
		err = m.catalog.Admit(ctx, n, silent...)
	}
	if left, ok := errors.AsType[*catalog.DepartedError](err); ok {
		return admission{Departed: &catalog.Departure{ServerID: n.ServerID, Replacement: left.Replacement}}, nil
	}
	return admission{}, err
}

// nameFree refuses a joining node whose name a live node has. It returns the silent nodes of that
// name, which do not keep it. A recorded node has its name, unless another process answers as that
// node: one of the two runs on a copy of the other's directory.
func (m *members) nameFree(ctx context.Context, joining joinCall) (silent []string, err error) {
	all := m.catalog.Nodes()
	if i := slices.IndexFunc(all, func(n catalog.Node) bool { return n.ServerID == joining.ServerID }); i >= 0 {
		if answer, err := m.Report(ctx, joining.ServerID); err == nil && answer.Process != joining.Process {
			return nil, fmt.Errorf("%w: %s runs at %s: what is started at %s has a copy of its directory",
				catalog.ErrNameTaken, joining.ServerID, all[i].PeerAddr, joining.PeerAddr)
		}
		return nil, nil
	}
	for _, n := range all {
		if n.Name != joining.Name {
			continue
		}
		if _, err := m.Report(ctx, n.ServerID); err == nil {
			return nil, fmt.Errorf(
				"%w: %s is %s at %s, which answers: start this one under a name of its own, or stop that one first",
				catalog.ErrNameTaken, n.Name, n.ServerID, n.PeerAddr)
		}
		silent = append(silent, n.ServerID)
	}
	return silent, nil
}
