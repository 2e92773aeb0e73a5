// Package availability judges whether a cluster served, and whether its status named the fault,
// while a fault struck.
package availability

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// Workload is the workload of the calls by which availability is judged.
	Workload = "availability"
	// servedMax is how long after the beginning of a fault each shard is to take puts and reserves
	// through each node that the fault spares, and how long any later interruption may last while the
	// fault does.
	servedMax = 5 * time.Second
	// namedMax is how long after the beginning of a fault the status of each of these nodes is to name
	// it.
	namedMax = 10 * time.Second
	// steadyFor: the last call of each kind before a fault must have been served, no longer before it
	// than this. Otherwise the fault struck a cluster that was not whole.
	steadyFor = 3 * time.Second
)

// Strike is one fault, and what it leaves whole.
type Strike struct {
	Name string
	// From is when the fault began to look for its victims, Began when it began to act, Struck when it
	// was in force; Healing is when its end began, To when it was over.
	From, Began, Struck, Healing, To time.Duration
	// Healthy are the nodes that stay whole and connected, and are a majority; nil if availability is
	// not judged.
	Healthy []string
	// Victims are the nodes of which status must name one; nil if it need not.
	Victims []string
	// Allowed is how much longer than servedMax serving may be interrupted, because another promise
	// gives that time.
	Allowed time.Duration
}

// Result is what was found of one strike.
type Result struct {
	// Unjudged says why a strike was not judged; empty if it was.
	Unjudged string
	// Served is, for each healthy node, the longest time after the strike, or after a later
	// interruption, for which a shard was not served; Named is how long it took until the node's
	// status named a victim. A node that did not is not there.
	Served, Named map[string]time.Duration
	// Slack is by how much longer than promised it might take because the machine stalled.
	Slack time.Duration
}

// attempt is one call that tries a shard through a node.
type attempt struct {
	sent, ended time.Duration
	served      bool
	message     string
}

// attemptKind is what such calls are grouped by. Verb is put or reserve.
type attemptKind struct{ node, queue, verb string }

// Run is what is judged.
type Run struct {
	Ops      []*history.Op // in the order in which they were sent
	Statuses []history.Status
	Strikes  []Strike
	// Stalled returns for how long the harness did not get the processor in a span of time.
	Stalled func(from, to time.Duration) time.Duration
}

// Check holds what was tried all through the run against the strikes: while a majority is
// whole and connected, each shard takes puts and reserves through each of its nodes, and their
// status names the fault.
func Check(run *Run, found *finding.Set) []Result {
	calls := probes(run.Ops)
	statuses := map[string][]history.Status{}
	for _, s := range run.Statuses {
		statuses[s.Node] = append(statuses[s.Node], s)
	}
	strikes := slices.Clone(run.Strikes)
	results := make([]Result, len(strikes))
	for i := range strikes {
		if strikes[i].Healthy == nil {
			continue
		}
		j := &strikeJudge{strike: &strikes[i], stalled: run.Stalled, calls: calls, statuses: statuses, until: 1 << 62,
			found: found}
		for k := range strikes {
			if k != i && strikes[k].From >= strikes[i].From {
				j.until = min(j.until, max(strikes[k].From, strikes[i].Struck))
			}
		}
		results[i] = j.judge()
		if results[i].Unjudged == "" {
			found.Count("faults of which availability was judged", 1)
		} else {
			found.Count("faults of which availability could not be judged", 1)
		}
		for what, worst := range map[string]map[string]time.Duration{"served after a fault (ms)": results[i].Served,
			"fault named by status after (ms)": results[i].Named} {
			for _, took := range worst {
				found.Raise(what, took.Milliseconds())
			}
		}
	}
	return results
}

// probes are the calls that try shards through nodes, by what they try, in the order in which they
// were sent.
func probes(ops []*history.Op) map[attemptKind][]attempt {
	calls := map[attemptKind][]attempt{}
	putTaken := map[string]bool{} // whether the last put of a client was answered with ok
	for _, o := range ops {
		if o.Workload != Workload {
			continue
		}
		by, one := attemptKind{node: o.Node}, attempt{sent: o.Invoked, ended: o.Returned, served: o.OK(), message: o.Message}
		switch request := o.Request.(type) {
		case *belfryv1.PutRequest:
			by.queue, by.verb = request.GetQueue(), "put"
			putTaken[o.Client] = o.OK()
		case *belfryv1.ReserveRequest:
			by.queue, by.verb = strings.Join(request.GetQueues(), " "), "reserve"
			answer, _ := o.Response.(*belfryv1.ReserveResponse)
			if one.served && putTaken[o.Client] && len(answer.GetJobs()) == 0 {
				one.served, one.message = false, "it was handed no job after its put had been taken"
			}
		default:
			continue
		}
		calls[by] = append(calls[by], one)
	}
	return calls
}

// strikeJudge judges one strike.
type strikeJudge struct {
	strike   *Strike
	stalled  func(from, to time.Duration) time.Duration
	calls    map[attemptKind][]attempt
	statuses map[string][]history.Status
	// until is when the next strike begins.
	until time.Duration
	found *finding.Set
	a     Result
}

func (j *strikeJudge) judge() Result {
	j.a = Result{Served: map[string]time.Duration{}, Named: map[string]time.Duration{}}
	if j.a.Unjudged = j.unsteady(); j.a.Unjudged != "" {
		return j.a
	}
	decided := false
	for _, by := range slices.SortedFunc(maps.Keys(j.calls), compareKinds) {
		if slices.Contains(j.strike.Healthy, by.node) {
			decided = j.served(by) || decided
		}
	}
	for _, node := range j.strike.Healthy {
		decided = j.named(node) || decided
	}
	if !decided {
		j.a.Unjudged = "it was over before anything was tried"
	}
	return j.a
}

func compareKinds(a, b attemptKind) int {
	return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.queue, b.queue), cmp.Compare(a.verb, b.verb))
}

// unsteady says what was not whole when the fault struck; empty if all was.
func (j *strikeJudge) unsteady() string {
	began := j.strike.Began
	for _, node := range j.strike.Healthy {
		tries := 0
		for _, by := range slices.SortedFunc(maps.Keys(j.calls), compareKinds) {
			if by.node != node {
				continue
			}
			calls := j.calls[by]
			tries++
			before, _ := slices.BinarySearchFunc(calls, began, func(t attempt, at time.Duration) int {
				return cmp.Compare(t.ended, at)
			})
			if before == 0 || calls[before-1].ended < began-steadyFor {
				return fmt.Sprintf("nothing tried a %s of %s through %s before it", by.verb, by.queue, node)
			}
			if last := calls[before-1]; !last.served {
				return fmt.Sprintf("a %s of %s through %s failed before it: %s", by.verb, by.queue, node, last.message)
			}
		}
		if tries == 0 {
			return "nothing is tried through " + node
		}
		last := history.Status{Failure: "it was not asked"}
		for _, s := range j.statuses[node] {
			if s.Answered <= began {
				last = s
			}
		}
		if last.Failure != "" || len(last.Problems) > 0 {
			return fmt.Sprintf("the status of %s was not healthy before it: %s", node,
				strings.Join(append(last.Problems, last.Failure), "; "))
		}
	}
	return ""
}

// slack is for how long the machine stalled in a span of time, but no longer than limit: a fault
// that lasts is found on the slowest machine.
func (j *strikeJudge) slack(from, to, limit time.Duration) time.Duration {
	sum := min(j.stalled(from, to), limit)
	j.a.Slack = max(j.a.Slack, sum)
	return sum
}

// served judges the interruptions that began while the fault lasted. It returns false if nothing
// that was sent after the strike says anything.
func (j *strikeJudge) served(by attemptKind) (decided bool) {
	since, open := j.strike.Struck, true // the interruption that goes on
	violated := false
calls:
	for _, call := range j.calls[by] {
		if call.sent < j.strike.Struck || call.sent >= j.until {
			continue
		}
		switch {
		case call.served && open:
			j.a.Served[by.node] = max(j.a.Served[by.node], call.ended-since)
			decided, open = true, false
		case call.served:
		case !open && call.sent >= j.strike.Healing: // what comes with the end of the fault is not the fault
			break calls
		case !open:
			since, open = call.sent, true
		}
		if call.served {
			continue
		}
		j.a.Served[by.node] = max(j.a.Served[by.node], call.ended-since) // so long at least
		if violated {
			continue
		}
		limit := servedMax + j.strike.Allowed
		if waited := call.sent - since; waited > limit+j.slack(since, call.ended, limit) {
			j.found.Violated(39, call.ended, "%s: %v after %s a %s of %s through %s, which the fault spares, was not served: %s",
				j.strike.Name, waited.Round(time.Millisecond), j.sinceWhat(since), by.verb, by.queue, by.node, call.message)
			decided, violated = true, true
		}
	}
	if decided {
		j.found.Look(39)
	}
	return decided
}

func (j *strikeJudge) sinceWhat(since time.Duration) string {
	if since == j.strike.Struck {
		return "it struck"
	}
	return "the last call that was"
}

// named judges how soon the status of a node named a victim. It returns false if the fault ended
// before it had to.
func (j *strikeJudge) named(node string) (decided bool) {
	if j.strike.Victims == nil {
		return false
	}
	pattern := regexp.MustCompile(`(^|[^\w-])(` + strings.Join(quoteAll(j.strike.Victims), "|") + `)($|[^\w-])`)
	for _, s := range j.statuses[node] {
		if s.Asked < j.strike.Began || s.Asked >= j.strike.Healing {
			continue
		}
		if slices.ContainsFunc(s.Problems, pattern.MatchString) {
			j.a.Named[node] = max(0, s.Answered-j.strike.Struck)
			decided = true
			break
		}
		waited := s.Asked - j.strike.Struck
		if limit := namedMax + j.strike.Allowed; waited > limit+j.slack(j.strike.Struck, s.Answered, limit) {
			j.found.Violated(39, s.Answered, "%s: %v after it struck the status of %s, which the fault spares, names none of "+
				"%s: problems %q%s",
				j.strike.Name, waited.Round(time.Millisecond), node, strings.Join(j.strike.Victims, ", "), s.Problems, failureOf(s))
			decided = true
			break
		}
	}
	if decided {
		j.found.Look(39)
	}
	return decided
}

func quoteAll(names []string) (quoted []string) {
	for _, name := range names {
		quoted = append(quoted, regexp.QuoteMeta(name))
	}
	return quoted
}

func failureOf(s history.Status) string {
	if s.Failure == "" {
		return ""
	}
	return ", " + s.Failure
}
