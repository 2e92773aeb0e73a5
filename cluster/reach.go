package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// reachWait bounds the question whether the other leaders serve, reachFor is how long its answer counts.
	reachWait = 700 * time.Millisecond
	reachFor  = 200 * time.Millisecond
)

// reach remembers what was last found of whether calls get through.
type reach struct {
	mu       sync.Mutex
	at       time.Time
	problems map[string]string
	// caught: the catalog here has been seen to have all that its leader had.
	caught bool
}

// Unreached says what keeps calls through this node from being served, by the names of the groups concerned; it is empty if nothing does. The leader of
// each shard must be known and say, over the connection that calls use, that it serves; and the catalog must have caught up once since the start.
func (r *Router) Unreached(ctx context.Context) map[string]string {
	r.reach.mu.Lock()
	defer r.reach.mu.Unlock()
	if r.reach.problems != nil && time.Since(r.reach.at) < reachFor {
		return r.reach.problems
	}
	ctx, cancel := context.WithTimeout(ctx, reachWait)
	defer cancel()
	leaders, reports := r.lookAround(ctx)
	problems := map[string]string{}
	for shard, server := range leaders {
		if problem := r.unled(uint32(shard), server, reports[server]); problem != "" {
			problems[shardGroup(uint32(shard))] = problem
		}
	}
	if !r.reach.caught {
		problem := r.behind(reports[r.catalog.group.Leader()])
		if r.reach.caught = problem == ""; !r.reach.caught {
			problems[groupName] = problem
		}
	}
	if why := r.catalog.outside.Load(); why != nil {
		problems[groupName] = *why
	}
	r.reach.at, r.reach.problems = time.Now(), problems
	return problems
}

// lookAround finds the leader of each shard and asks those elsewhere, and that of the catalog, for their reports.
func (r *Router) lookAround(ctx context.Context) (leaders []string, reports map[string]*Report) {
	leaders = make([]string, r.ShardCount())
	var finding sync.WaitGroup
	for shard := range leaders {
		finding.Go(func() { leaders[shard] = r.findLeader(ctx, uint32(shard)) })
	}
	finding.Wait()
	servers := map[string]bool{r.catalog.group.Leader(): true}
	for _, server := range leaders {
		servers[server] = true
	}
	var mu sync.Mutex // guards reports
	reports = map[string]*Report{}
	var asking sync.WaitGroup
	for server := range servers {
		if server == "" || server == r.catalog.self.ServerID {
			continue
		}
		asking.Go(func() {
			if report, err := callPeer[Report](ctx, r.peers, server, pathReport, struct{}{}); err == nil {
				mu.Lock()
				defer mu.Unlock()
				reports[server] = &report
			}
		})
	}
	asking.Wait()
	return leaders, reports
}

// unled says what is wrong with a shard's leader, of which report came; nothing if it serves.
func (r *Router) unled(shard uint32, server string, report *Report) string {
	switch {
	case server == r.catalog.self.ServerID:
		return "" // find asked
	case server == "":
		if leader, err := r.Node.Leader(shard); err == nil && leader == r.catalog.self.ServerID {
			return "its new leader does not serve yet"
		}
		return "no leader is known"
	case report == nil:
		return fmt.Sprintf("its leader %s does not answer", server)
	}
	if g := report.group(shardGroup(shard)); g == nil || !g.Serving {
		return fmt.Sprintf("%s, which should lead it, does not serve", server)
	}
	return ""
}

// behind says what this node's catalog lacks of what its leader has, of which report came; nothing if it has all.
func (r *Router) behind(report *Report) string {
	if r.catalog.group.Serving() {
		return ""
	}
	g := report.group(groupName)
	if g == nil || !g.Serving {
		return "its leader does not answer"
	}
	for _, here := range r.Node.Status().Groups {
		if here.Group == groupName && here.AppliedIndex < g.Commit {
			return fmt.Sprintf("it is catching up: it has %d of %d entries", here.AppliedIndex, g.Commit)
		}
	}
	return ""
}
