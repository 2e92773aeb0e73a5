package cluster

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/placement"
	"github.com/belfrydb/belfry/cluster/routing"
)

const (
	// readinessWait bounds the check whether the other leaders serve, readinessFor is how long its
	// result counts.
	readinessWait = 700 * time.Millisecond
	readinessFor  = 200 * time.Millisecond
)

// readiness is the last result of the check whether calls get through.
type readiness struct {
	mu       sync.Mutex
	at       time.Time
	problems map[string]string
	// caughtUp: the catalog here has once had all that its leader had.
	caughtUp bool
}

// Router makes the calls of shards for the public edge, and says whether calls through this node
// are served. Its methods may be called from any goroutine.
type Router struct {
	*routing.Router
	peers     *routing.Peers
	catalog   *catalog.Catalog
	self      string
	readiness readiness
	// unrecorded is the reason, for people, why this node is not recorded as it is; nil if it is.
	unrecorded *atomic.Pointer[string]
}

// Unreached returns what prevents calls through this node from being served, by the names of the
// groups concerned; it is empty if all is well. The leader of each shard must be known and must
// say, over the connection that calls use, that it serves. The catalog must have caught up once
// since the start.
func (r *Router) Unreached(ctx context.Context) map[string]string {
	r.readiness.mu.Lock()
	defer r.readiness.mu.Unlock()
	if r.readiness.problems != nil && time.Since(r.readiness.at) < readinessFor {
		return r.readiness.problems
	}
	ctx, cancel := context.WithTimeout(ctx, readinessWait)
	defer cancel()
	leaders, reports := r.collectReports(ctx)
	problems := map[string]string{}
	for shard, server := range leaders {
		if problem := r.leaderProblem(uint32(shard), server, reports[server]); problem != "" {
			problems[catalog.ShardGroup(uint32(shard))] = problem
		}
	}
	if !r.readiness.caughtUp {
		problem := r.catalogProblem(reports[r.catalog.Group().Leader()])
		if r.readiness.caughtUp = problem == ""; !r.readiness.caughtUp {
			problems[catalog.GroupName] = problem
		}
	}
	if why := r.unrecorded.Load(); why != nil {
		problems[catalog.GroupName] = *why
	}
	r.readiness.at, r.readiness.problems = time.Now(), problems
	return problems
}

// collectReports finds the leader of each shard, and gets the reports of the leaders elsewhere and
// of the catalog's leader.
func (r *Router) collectReports(ctx context.Context) (leaders []string, reports map[string]*placement.Report) {
	leaders = make([]string, r.ShardCount())
	var finding sync.WaitGroup
	for shard := range leaders {
		finding.Go(func() { leaders[shard] = r.FindLeader(ctx, uint32(shard)) })
	}
	finding.Wait()
	servers := map[string]bool{r.catalog.Group().Leader(): true}
	for _, server := range leaders {
		servers[server] = true
	}
	var mu sync.Mutex // guards reports
	reports = map[string]*placement.Report{}
	var asking sync.WaitGroup
	for server := range servers {
		if server == "" || server == r.self {
			continue
		}
		asking.Go(func() {
			if report, err := routing.Call[placement.Report](ctx, r.peers, server, pathReport, struct{}{}); err == nil {
				mu.Lock()
				defer mu.Unlock()
				reports[server] = &report
			}
		})
	}
	asking.Wait()
	return leaders, reports
}

// leaderProblem says what is wrong with a shard's leader, which sent report; empty if it serves.
func (r *Router) leaderProblem(shard uint32, server string, report *placement.Report) string {
	switch {
	case server == r.self:
		return "" // findLeader has checked that
	case server == "":
		if leader, err := r.Node.Leader(shard); err == nil && leader == r.self {
			return "its new leader does not serve yet"
		}
		return "no leader is known"
	case report == nil:
		return fmt.Sprintf("its leader %s does not answer", server)
	}
	if g := report.Group(catalog.ShardGroup(shard)); g == nil || !g.Serving {
		return fmt.Sprintf("%s, which should lead it, does not serve", server)
	}
	return ""
}

// catalogProblem says what this node's catalog lacks compared to its leader's, which sent report;
// empty if it is complete.
func (r *Router) catalogProblem(report *placement.Report) string {
	if r.catalog.Group().Serving() {
		return ""
	}
	g := report.Group(catalog.GroupName)
	if g == nil || !g.Serving {
		return "its leader does not answer"
	}
	for _, here := range r.Node.Status().Groups {
		if here.Group == catalog.GroupName && here.AppliedIndex < g.Commit {
			return fmt.Sprintf("it is catching up: it has %d of %d entries", here.AppliedIndex, g.Commit)
		}
	}
	return ""
}
