package rpc

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	"github.com/belfrydb/belfry/rpc/drain"
	"github.com/belfrydb/belfry/rpc/fault"
)

// health tells load balancers and supervisors whether this node can serve callers. A problem that
// other nodes share does not count: a shard without a leader is no reason to take any node out.
type health struct {
	node     backend.Node
	drain    *drain.Signal
	services []string
	begun    time.Time // when this process began to answer

	mu      sync.Mutex
	heard   map[uint32]bool // the replicas here that have known a leader since the start
	reached bool            // a leader of some shard was reached since the start
	lostAt  time.Time       // when the last one was lost; zero while one is reached
}

const (
	// isolatedAfter is how long the node must reach no leader before it counts as isolated. An
	// election takes one to three seconds, and calls wait for it.
	isolatedAfter = 5 * time.Second
	// startWait is how long after a start a replica that knows no leader keeps the node from being
	// ready. A rolling restart waits for such a replica. A shard that has lost its majority must
	// not keep a node out for longer.
	startWait = time.Minute
)

// healthCheck is one line of /readyz. problem is empty if all is well. A warning does not make the
// node unready.
type healthCheck struct {
	name, problem string
	warning       bool
}

// failed reports whether the check makes the node unready.
func (c *healthCheck) failed() bool { return c.problem != "" && !c.warning }

// checks returns all checks in order.
func (h *health) checks(ctx context.Context) []healthCheck {
	status := h.node.Status()
	out := []healthCheck{{name: "serving"}, {name: "disk", warning: true}}
	if h.drain.HasStarted() || status.Draining {
		out[0].problem = "the server is stopping"
	}
	if status.DiskFull {
		out[1].problem = "nearly full: " + status.DiskShortage
	}
	here := map[uint32]*node.GroupStatus{}
	for i := range status.Shards {
		here[status.Shards[i].Shard] = &status.Shards[i]
	}
	unreached := h.node.Unreached(ctx)
	out = append(out, healthCheck{name: backend.CatalogGroup, problem: unreached[backend.CatalogGroup]})
	out = append(out, healthCheck{name: "leaders"})
	leaders, reached := &out[len(out)-1], false
	shards := make([]healthCheck, 0, h.node.ShardCount())
	for shard := range h.node.ShardCount() {
		name := backend.ShardGroup(shard)
		replica := here[uint32(shard)] //nolint:gosec // at most 1,024
		problem := cmp.Or(leaderProblem(replica), unreached[name])
		reached = reached || problem == ""
		if problem == "" && replica != nil && replica.ClockAhead {
			problem = "CLOCK_AHEAD: shard time is ahead of the wall clock"
		}
		if problem == "" && replica != nil && replica.MembersIndex > 0 && len(replica.Voters) < status.MinVoters {
			problem = fmt.Sprintf("TOO_FEW_VOTERS: it has %d of %d voters, and takes only what makes room", len(replica.Voters),
				status.MinVoters)
		}
		shards = append(shards, h.checkShard(name, problem, replica))
	}
	leaders.problem = h.isolation(reached)
	return append(out, shards...)
}

// checkShard returns the check of a shard. unled is the problem with its leader. here is the
// replica on this node; nil if there is none.
func (h *health) checkShard(name, unled string, here *node.GroupStatus) healthCheck {
	if own := replicaProblem(here); own != "" {
		return healthCheck{name: name, problem: own}
	}
	if here == nil {
		return healthCheck{name: name, problem: unled, warning: true}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.heard == nil {
		h.heard = map[uint32]bool{}
	}
	h.heard[here.Shard] = h.heard[here.Shard] || here.Leader != ""
	return healthCheck{name: name, problem: unled, warning: h.heard[here.Shard] || time.Since(h.begun) >= startWait}
}

// isolation returns a problem if this node has reached no leader for isolatedAfter, or none since
// its start; else "". Such a node can serve no caller. It cannot tell whether it is cut off or the
// cluster has no majority.
func (h *health) isolation(reached bool) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case reached:
		h.reached, h.lostAt = true, time.Time{}
		return ""
	case !h.reached:
		return "no shard has a leader that this node reaches"
	case h.lostAt.IsZero():
		h.lostAt = time.Now()
	}
	if lost := time.Since(h.lostAt); lost >= isolatedAfter {
		return fmt.Sprintf("no shard has had a leader that this node reaches for %v", lost.Round(time.Second))
	}
	return ""
}

// applyLagMax bounds the committed entries that a ready replica has not applied yet. With more of
// them the node is still catching up, as after a start, and a rolling restart should wait for it.
const applyLagMax = 10_000

// leaderProblem returns a problem of the shard's leader that the replica here knows of, and that
// does not depend on the node asked. It is "" if there is no problem, or no replica here.
func leaderProblem(g *node.GroupStatus) string {
	switch {
	case g == nil:
		return ""
	case g.Leader == "":
		return "no leader is known"
	case g.Role == node.Leader && !g.Serving:
		return "its new leader does not serve yet"
	default:
		return ""
	}
}

// replicaProblem returns the problem of a replica of this node itself; "" if there is none, or no
// replica.
func replicaProblem(g *node.GroupStatus) string {
	switch {
	case g == nil:
		return ""
	case g.Role == node.Stopped:
		return "stopped: " + g.LastError
	case g.CommitIndex > g.AppliedIndex+applyLagMax:
		return fmt.Sprintf("%d entries of its log have yet to take effect here", g.CommitIndex-g.AppliedIndex)
	default:
		return ""
	}
}

// live answers /livez: the process runs and answers. It depends on no other state, least of all on
// peers.
func (h *health) live(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, "ok\n")
}

// ready answers /readyz. With ?verbose it lists the checks. ?exclude=NAME leaves one out and may be
// repeated. An unknown parameter or check is refused: with a misspelled name, a caller would
// believe that the check does not count.
func (h *health) ready(w http.ResponseWriter, r *http.Request) *fault.Error {
	query, f := readyQuery(r)
	if f != nil {
		return f
	}
	checks := h.checks(r.Context())
	for _, name := range query["exclude"] {
		if !slices.ContainsFunc(checks, func(c healthCheck) bool { return c.name == name }) {
			return h.unknownCheck(name, checks)
		}
	}
	var lines strings.Builder
	status := http.StatusOK
	for _, c := range checks {
		switch {
		case slices.Contains(query["exclude"], c.name):
			fmt.Fprintf(&lines, "[ ]%s excluded\n", c.name)
		case c.failed():
			status = http.StatusServiceUnavailable
			fmt.Fprintf(&lines, "[-]%s failed: %s\n", c.name, c.problem)
		case c.problem != "":
			fmt.Fprintf(&lines, "[!]%s warning: %s\n", c.name, c.problem)
		default:
			fmt.Fprintf(&lines, "[+]%s ok\n", c.name)
		}
	}
	verdict := "ready\n"
	if status != http.StatusOK {
		verdict = "not ready\n"
	}
	if query.Has("verbose") || status != http.StatusOK {
		verdict = lines.String() + verdict
	}
	writeText(w, status, verdict)
	return nil
}

// readyQuery reads the query of /readyz.
func readyQuery(r *http.Request) (url.Values, *fault.Error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, unreadableQuery(err)
	}
	known := []parameter{{name: "verbose"}, {name: "exclude"}}
	for name := range query {
		if !slices.ContainsFunc(known, func(p parameter) bool { return p.name == name }) {
			return nil, unknownParameter(query, known)
		}
	}
	return query, nil
}

// unknownCheck refuses an unknown name, and lists the checks. The shards are shown as a range.
func (h *health) unknownCheck(name string, checks []healthCheck) *fault.Error {
	var names []string
	for _, c := range checks {
		if !strings.HasPrefix(c.name, backend.ShardGroupPrefix) {
			names = append(names, c.name)
		}
	}
	shards := backend.ShardGroup(0)
	if last := h.node.ShardCount() - 1; last > 0 {
		shards += " to " + backend.ShardGroup(last)
	}
	name = fault.Clip(strings.ToValidUTF8(name, "\ufffd"), fault.QuotedBytesMax)
	return fault.Invalid("exclude", "there is no check %q; the checks here are %s and %s", name, strings.Join(names, ", "),
		shards)
}

// writeText answers with plain text.
func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// This fails only if the client is gone.
	_, _ = w.Write([]byte(text))
}

// Check implements grpchealth.Checker.
func (h *health) Check(ctx context.Context, req *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if !slices.Contains(h.services, req.Service) {
		return nil, connect.NewError(connect.CodeNotFound,
			fmt.Errorf("there is no service %q", fault.Clip(req.Service, fault.QuotedBytesMax)))
	}
	for _, c := range h.checks(ctx) {
		if c.failed() {
			return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
		}
	}
	return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
}
