package rpc

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"

	"github.com/belfrydb/belfry/node"
)

// health answers the questions of load balancers and supervisors.
type health struct {
	node     Node
	drain    *drain
	services []string
}

// healthCheck is one line of /readyz. problem is empty if all is well.
type healthCheck struct{ name, problem string }

// checks returns all checks in order.
func (h *health) checks(ctx context.Context) []healthCheck {
	status := h.node.Status()
	out := []healthCheck{{name: "serving"}, {name: "disk"}}
	if h.drain.isBegun() || status.Draining {
		out[0].problem = "the server is stopping"
	}
	if status.DiskFull {
		out[1].problem = fmt.Sprintf("nearly full: %d bytes free", status.DiskFreeBytes)
	}
	here := map[string]string{}
	for i := range status.Shards {
		here[shardGroup(int(status.Shards[i].Shard))] = shardProblem(&status.Shards[i])
	}
	var unreached map[string]string
	if node, ok := h.node.(Reaching); ok {
		unreached = node.Unreached(ctx)
		out = append(out, healthCheck{name: catalogGroup, problem: unreached[catalogGroup]})
	}
	for shard := range h.node.ShardCount() {
		name := shardGroup(shard)
		out = append(out, healthCheck{name: name, problem: cmp.Or(here[name], unreached[name])})
	}
	return out
}

// applyLagMax is how many committed entries may have yet to take effect in a replica that is ready: with more the node is still catching up, as after a start, and
// who restarts nodes one after the other should wait.
const applyLagMax = 10_000

// shardGroupPrefix begins the names of the shards' groups.
const shardGroupPrefix = "shard-"

// shardGroup returns the name of a shard's group.
func shardGroup(shard int) string { return shardGroupPrefix + strconv.Itoa(shard) }

// shardProblem says why a shard cannot be used through this node, "" if it can.
func shardProblem(g *node.GroupStatus) string {
	switch {
	case g.ClockAhead:
		return "CLOCK_AHEAD: shard time is ahead of the wall clock"
	case g.Role == node.Stopped:
		return "stopped: " + g.LastError
	case g.Leader == "":
		return "no leader is known"
	case g.Role == node.Leader && !g.Serving:
		return "its new leader does not serve yet"
	case g.CommitIndex > g.AppliedIndex+applyLagMax:
		return fmt.Sprintf("%d entries of its log have yet to take effect here", g.CommitIndex-g.AppliedIndex)
	default:
		return ""
	}
}

// live answers /livez: the process runs and answers. It depends on nothing else, least of all on peers.
func (h *health) live(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, "ok\n")
}

// ready answers /readyz. With ?verbose it lists the checks; ?exclude=NAME leaves one out and may be repeated. A query that it does not understand is
// refused: whoever misspells the name of a check would believe that it does not count.
func (h *health) ready(w http.ResponseWriter, r *http.Request) *Fault {
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
		case c.problem != "":
			status = http.StatusServiceUnavailable
			fmt.Fprintf(&lines, "[-]%s failed: %s\n", c.name, c.problem)
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
func readyQuery(r *http.Request) (url.Values, *Fault) {
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

// unknownCheck lists the checks that there are, the shards as from the first to the last.
func (h *health) unknownCheck(name string, checks []healthCheck) *Fault {
	var names []string
	for _, c := range checks {
		if !strings.HasPrefix(c.name, shardGroupPrefix) {
			names = append(names, c.name)
		}
	}
	shards := shardGroup(0)
	if last := h.node.ShardCount() - 1; last > 0 {
		shards += " to " + shardGroup(last)
	}
	name = clip(strings.ToValidUTF8(name, "\ufffd"), quotedBytesMax)
	return invalid("exclude", "there is no check %q; the checks here are %s and %s", name, strings.Join(names, ", "), shards)
}

// writeText answers with plain text.
func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// That the client is gone is the only way this fails.
	_, _ = w.Write([]byte(text))
}

// Check implements grpchealth.Checker.
func (h *health) Check(ctx context.Context, req *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if !slices.Contains(h.services, req.Service) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no service %q", clip(req.Service, quotedBytesMax)))
	}
	for _, c := range h.checks(ctx) {
		if c.problem != "" {
			return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
		}
	}
	return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
}
