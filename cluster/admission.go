package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
	if left := c.Departed(c.self.ServerID); left != nil {
		return left
	}
	if c.group.Leader() != "" {
		m.led = time.Now()
		if c.holds(c.self) {
			return nil
		}
	} else if c.holds(c.self) && time.Since(m.led) < leaderlessMax {
		return nil
	}
	err := c.admit(ctx, c.self)
	if err == nil || c.group.Leader() != "" {
		return err
	}
	// A node that starts again does not know what its own log says before it knows a leader.
	for _, other := range m.knownServers() {
		answer, refused := callPeer[admission](ctx, m.peers, other, pathJoin, joinCall{Node: c.self, Process: m.process})
		if refused == nil && answer.Departed == nil {
			return nil
		}
		// An answer of the cluster counts more than a node that cannot be reached.
		if refused == nil {
			return &DepartedError{ServerID: c.self.ServerID, ClusterID: c.found.ClusterID, Replacement: answer.Departed.Replacement}
		}
		if errors.Is(refused, ErrNameTaken) || errors.Is(refused, ErrFormat) {
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
		known := m.catalog.group.Leader() != "" && m.catalog.holds(m.catalog.self)
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
	return slices.DeleteFunc(servers, func(server string) bool { return server == m.catalog.self.ServerID })
}

// handleDeparture reports whether err says that this node left for good. If it does,
// handleDeparture reports it.
func (m *members) handleDeparture(err error) bool {
	left, ok := errors.AsType[*DepartedError](err)
	if !ok {
		return false
	}
	m.catalog.setUnrecorded(err)
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
	return errors.Is(err, ErrNameTaken) || errors.Is(err, ErrFormat) || time.Since(r.since) >= enrolNotice
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
		m.catalog.setUnrecorded(nil)
		return
	}
	if !m.catalog.holds(m.catalog.self) { // otherwise only the leader is missing
		m.catalog.setUnrecorded(err)
	}
	if r.isDue() {
		m.config.Logger.Warn("asking to be a node of the cluster", "error", err)
	}
}

// setUnrecorded stores why this node is not recorded, for readiness.
func (c *Catalog) setUnrecorded(err error) {
	if err == nil {
		c.outside.Store(nil)
		return
	}
	why := fmt.Sprintf("%s is not recorded as it is in the cluster: %s", c.self.ServerID, err)
	c.outside.Store(&why)
}

// joinCall asks that a node be recorded as it is.
type joinCall struct {
	Node
	// Process is Report.Process of the node that asks.
	Process string `json:"process,omitempty"`
}

// admission is the answer to a node that asks to join.
type admission struct {
	// Departed is set if the node left for good.
	Departed *departure `json:"departed,omitempty"`
}

// answerJoin answers a node that asks to be recorded.
func (m *members) answerJoin(ctx context.Context, from string, call joinCall) (admission, error) {
	n := call.Node
	if n.ServerID != from {
		return admission{}, fmt.Errorf("%w: %s asks for the admission of %s", node.ErrCanceled, from, n.ServerID)
	}
	if left := m.catalog.Departed(n.ServerID); left != nil {
		return admission{Departed: &departure{ServerID: n.ServerID, Replacement: left.Replacement}}, nil
	}
	if m.catalog.holds(n) {
		return admission{}, nil
	}
	silent, err := m.nameFree(ctx, call)
	if err == nil {
		err = m.catalog.admit(ctx, n, silent...)
	}
	if left, ok := errors.AsType[*DepartedError](err); ok {
		return admission{Departed: &departure{ServerID: n.ServerID, Replacement: left.Replacement}}, nil
	}
	return admission{}, err
}

// ErrNameTaken is the answer to a node that asks to join under the name of a live node.
var ErrNameTaken = errors.New("the name is taken by another node")

// nameFree refuses a joining node whose name a live node has. It returns the silent nodes of that
// name, which do not keep it. A recorded node has its name, unless another process answers as that
// node: one of the two runs on a copy of the other's directory.
func (m *members) nameFree(ctx context.Context, joining joinCall) (silent []string, err error) {
	all := m.catalog.Nodes()
	if i := slices.IndexFunc(all, func(n Node) bool { return n.ServerID == joining.ServerID }); i >= 0 {
		if answer, err := m.report(ctx, joining.ServerID); err == nil && answer.Process != joining.Process {
			return nil, fmt.Errorf("%w: %s runs at %s: what is started at %s has a copy of its directory",
				ErrNameTaken, joining.ServerID, all[i].PeerAddr, joining.PeerAddr)
		}
		return nil, nil
	}
	for _, n := range all {
		if n.Name != joining.Name {
			continue
		}
		if _, err := m.report(ctx, n.ServerID); err == nil {
			return nil, fmt.Errorf("%w: %s is %s at %s, which answers: start this one under a name of its own, or stop that one first",
				ErrNameTaken, n.Name, n.ServerID, n.PeerAddr)
		}
		silent = append(silent, n.ServerID)
	}
	return silent, nil
}

// admit records a node that asks to join, or that asks again because its description has changed.
// silent are the nodes of its name that are known not to answer. Two joining nodes of one name may
// ask two nodes at the same time; the catalog accepts the first.
func (c *Catalog) admit(ctx context.Context, n Node, silent ...string) error {
	if n.Name == "" || n.ServerID == "" {
		return fmt.Errorf("%w: a node without name or server id cannot join: %+v", node.ErrCanceled, n)
	}
	out, err := c.propose(ctx, command{Join: &n, Silent: silent})
	if err != nil {
		return err
	}
	switch out.verdict {
	case taken:
		return fmt.Errorf("%w: another node of the name %s was admitted meanwhile", ErrNameTaken, n.Name)
	case gone:
		return &DepartedError{ServerID: n.ServerID, ClusterID: c.found.ClusterID, Replacement: c.replacementOf(n.ServerID)}
	case unread:
		c.view(func(m *machine) { err = m.admits(&n) })
	case done, exists, overtaken, misused, impossible, needed:
	}
	return err
}

// replacementOf returns the server that replaces one that left; empty if there is none.
func (c *Catalog) replacementOf(serverID string) string {
	if left := c.Departed(serverID); left != nil {
		return left.Replacement
	}
	return ""
}

// removeNode implements record.
func (c *Catalog) removeNode(ctx context.Context, d departure) error {
	_, err := c.propose(ctx, command{Leave: &d})
	return err
}
