package availability

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/history"
	"github.com/belfrydb/belfry/jepsen/report"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// trial is a made-up run in which n3 is lost from 10 s to 30 s. n1 and n2 serve again after a
// second, and their status names n3 after three.
type trial struct {
	run   *Run
	ops   []*history.Op
	seen  []history.Status
	fault *Strike
	// stalls are the times in which the harness does not get the processor.
	stalls []span
}

// span is a span of time.
type span struct{ from, to time.Duration }

const (
	trialStruck, trialHealing, trialEnd = 10 * time.Second, 30 * time.Second, 45 * time.Second
	trialOutage, trialUnnamed           = time.Second, 3 * time.Second
)

func newTrial() *trial {
	tr := &trial{run: &Run{Strikes: []Strike{{
		Name: "lost", From: trialStruck - time.Second, Began: trialStruck, Struck: trialStruck, Healing: trialHealing,
		To:      trialHealing + time.Second,
		Healthy: []string{"n1", "n2"}, Victims: []string{"n3"},
	}}}}
	tr.fault = &tr.run.Strikes[0]
	for _, node := range []string{"n1", "n2", "n3"} {
		for at := time.Duration(0); at < trialEnd; at += 300 * time.Millisecond {
			lost := at >= trialStruck && (at < trialStruck+trialOutage || node == "n3" && at < trialHealing)
			for shard := range 2 {
				queue, client := fmt.Sprintf("%s-%d", node, shard), fmt.Sprintf("prober-%s-%d", node, shard)
				put := &history.Op{Client: client, Node: node, Workload: Workload, Invoked: at,
					Returned: at + 5*time.Millisecond, Request: &belfryv1.PutRequest{Queue: queue}}
				reserve := &history.Op{
					Client: client, Node: node, Workload: Workload, Invoked: at + 10*time.Millisecond,
					Returned: at + 15*time.Millisecond,
					Request:  &belfryv1.ReserveRequest{Queues: []string{queue}},
				}
				serve(put)
				serve(reserve)
				if lost {
					fail(put)
					fail(reserve)
				}
				tr.ops = append(tr.ops, put, reserve)
			}
			s := history.Status{Node: node, Asked: at, Answered: at + 20*time.Millisecond}
			if at >= trialStruck+trialUnnamed && at < trialHealing {
				s.Problems = []string{"node n3 does not answer"}
			}
			tr.seen = append(tr.seen, s)
		}
	}
	return tr
}

func serve(o *history.Op) {
	o.Outcome, o.Message = belfryv1.Outcome_OUTCOME_APPLIED, ""
	o.Response = &belfryv1.PutResponse{}
	if _, reserves := o.Request.(*belfryv1.ReserveRequest); reserves {
		o.Response = &belfryv1.ReserveResponse{Jobs: []*belfryv1.Job{{}}}
	}
}

func fail(o *history.Op) {
	o.Outcome, o.Message, o.Response = belfryv1.Outcome_OUTCOME_NOT_APPLIED, "no leader", nil
}

// each changes the calls of a node, or of all, that were sent in a span of time.
func (tr *trial) each(node string, from, to time.Duration, change func(*history.Op)) {
	for _, o := range tr.ops {
		if (node == "" || o.Node == node) && o.Invoked >= from && o.Invoked < to {
			change(o)
		}
	}
}

// says changes what nodes said of the cluster.
func (tr *trial) says(node string, from, to time.Duration, problems ...string) {
	for i := range tr.seen {
		if s := &tr.seen[i]; s.Node == node && s.Asked >= from && s.Asked < to {
			s.Problems = problems
		}
	}
}

// judge returns what the checker finds.
func (tr *trial) judge() (*finding.Set, Result) {
	tr.run.Ops, tr.run.Statuses = tr.ops, tr.seen
	tr.run.Stalled = func(from, to time.Duration) (sum time.Duration) {
		for _, s := range tr.stalls {
			sum += max(0, min(s.to, to)-max(s.from, from))
		}
		return sum
	}
	found := finding.New()
	return found, Check(tr.run, found)[0]
}

func broken(found *finding.Set) int64 {
	n, _ := found.Broken(39)
	return n
}

func violations(found *finding.Set) []report.Violation {
	_, kept := found.Broken(39)
	return kept
}

func isPut(o *history.Op) bool { _, puts := o.Request.(*belfryv1.PutRequest); return puts }

func onlyReserves(change func(*history.Op)) func(*history.Op) {
	return func(o *history.Op) {
		if !isPut(o) {
			change(o)
		}
	}
}

func onlyPuts(change func(*history.Op)) func(*history.Op) {
	return func(o *history.Op) {
		if isPut(o) {
			change(o)
		}
	}
}

func onlyQueue(queue string, change func(*history.Op)) func(*history.Op) {
	return func(o *history.Op) {
		put, _ := o.Request.(*belfryv1.PutRequest)
		reserve, _ := o.Request.(*belfryv1.ReserveRequest)
		if put.GetQueue() == queue || slices.Contains(reserve.GetQueues(), queue) {
			change(o)
		}
	}
}

// TestTrial: a run as it should be is judged, and nothing is found in it.
func TestTrial(t *testing.T) {
	found, a := newTrial().judge()
	if broken(found) != 0 || a.Unjudged != "" {
		t.Fatalf("%+v, unjudged: %q", violations(found), a.Unjudged)
	}
	if found.Looked(39) != 2*2*2+2 {
		t.Errorf("it looked at %d things, want puts and reserves of two shards through two nodes, and two statuses",
			found.Looked(39))
	}
	for _, node := range []string{"n1", "n2"} {
		if served, named := a.Served[node], a.Named[node]; served < trialOutage || served > trialOutage+time.Second ||
			named < trialUnnamed || named > trialUnnamed+time.Second {
			t.Errorf("%s: served after %v, named after %v", node, served, named)
		}
	}
	if len(a.Served) != 2 || len(a.Named) != 2 {
		t.Errorf("the lost node is judged: %+v", a)
	}
}

// TestResultFinds: altered runs, in each of which it must find what was altered.
func TestResultFinds(t *testing.T) {
	for _, lie := range []struct {
		name  string
		alter func(*trial)
		want  string // part of the violation
	}{
		{"one node does not serve while the fault lasts", func(tr *trial) { tr.each("n2", trialStruck, trialHealing, fail) },
			"through n2"},
		{"six seconds are too long", func(tr *trial) { tr.each("n2", trialStruck, trialStruck+6*time.Second, fail) },
			"after it struck"},
		{"one shard is not served", func(tr *trial) { tr.each("n1", trialStruck, trialHealing, onlyQueue("n1-1", fail)) },
			"n1-1"},
		{"puts are refused, reserves are not", func(tr *trial) { tr.each("n1", trialStruck, trialHealing, onlyPuts(fail)) },
			"a put of"},
		{"reserves are refused, puts are not", func(tr *trial) {
			tr.each("n1", trialStruck, trialHealing, onlyReserves(fail))
		}, "a reserve of"},
		{"reserves are answered, and hand nothing out", func(tr *trial) {
			tr.each("n1", trialStruck, trialHealing, onlyReserves(func(o *history.Op) {
				o.Response = &belfryv1.ReserveResponse{}
			}))
		}, "handed no job"},
		{"the service goes away once more", func(tr *trial) { tr.each("n2", 20*time.Second, 27*time.Second, fail) },
			"the last call that was"},
		{"an interruption begins in the fault and outlasts it", func(tr *trial) {
			tr.each("n2", 28*time.Second, 40*time.Second, fail)
		}, "through n2"},
		{"the fault ends early, and the service is not back in time", func(tr *trial) {
			tr.fault.Healing, tr.fault.To = 12*time.Second, 13*time.Second
			tr.each("n2", trialStruck, 18*time.Second, fail)
		}, "through n2"},
		{"one node's status never names the fault", func(tr *trial) { tr.says("n1", 0, trialEnd) }, "status of n1"},
		{"status names it too late", func(tr *trial) { tr.says("n1", trialStruck, trialStruck+12*time.Second) },
			"status of n1"},
		{"status names another node", func(tr *trial) {
			tr.says("n1", trialStruck, trialHealing, "node n2 does not answer", "node n30 does not answer")
		}, "names none of n3"},
		{"status hangs", func(tr *trial) {
			for i := range tr.seen {
				if s := &tr.seen[i]; s.Asked >= trialStruck && s.Node == "n2" {
					s.Problems, s.Failure = nil, "deadline exceeded"
				}
			}
		}, "deadline exceeded"},
		{"what another promise allows is over", func(tr *trial) {
			tr.fault.Allowed = 4 * time.Second
			tr.each("n2", trialStruck, trialStruck+10*time.Second, fail)
		}, "through n2"},
		{"a stall does not excuse what lasts", func(tr *trial) {
			tr.stalls = []span{{trialStruck, trialHealing}}
			tr.each("n2", trialStruck, trialHealing, fail)
		}, "through n2"},
		{"a stall of a second does not excuse seven", func(tr *trial) {
			tr.stalls = []span{{trialStruck, trialStruck + time.Second}}
			tr.each("n2", trialStruck, trialStruck+7*time.Second, fail)
		}, "through n2"},
		{"a stall at another time excuses nothing", func(tr *trial) {
			tr.stalls = []span{{0, trialStruck}, {trialHealing, trialEnd}}
			tr.each("n2", trialStruck, trialStruck+6*time.Second, fail)
		}, "through n2"},
	} {
		t.Run(lie.name, func(t *testing.T) {
			tr := newTrial()
			lie.alter(tr)
			wantFound(t, tr, lie.want)
		})
	}
}

// wantFound judges an altered run, in which a violation must be found whose text has want in it.
func wantFound(t *testing.T, tr *trial, want string) {
	t.Helper()
	found, a := tr.judge()
	if broken(found) == 0 || a.Unjudged != "" {
		t.Fatalf("it is not found (unjudged: %q)", a.Unjudged)
	}
	if strings.HasPrefix(want, "through") && a.Served["n2"] < servedMax {
		t.Errorf("it is said that all was served after %v", a.Served)
	}
	if !strings.Contains(violations(found)[0].Text, want) {
		t.Errorf("found as %q, want %q in it", violations(found)[0].Text, want)
	}
}

// TestResultLegal: runs that look odd, in which it must find nothing, and still have judged the
// fault.
func TestResultLegal(t *testing.T) {
	for _, odd := range []struct {
		name  string
		alter func(*trial)
	}{
		{"the victim serves nothing to the end", func(tr *trial) { tr.each("n3", trialStruck, trialEnd, fail) }},
		{"the victim serves all the time", func(tr *trial) { tr.each("n3", 0, trialEnd, serve) }},
		{"nothing is interrupted", func(tr *trial) { tr.each("", 0, trialEnd, serve) }},
		{"the victim's status says that all is well", func(tr *trial) { tr.says("n3", 0, trialEnd) }},
		{"single calls fail now and then", func(tr *trial) {
			for at := trialStruck; at < trialHealing; at += 3 * time.Second {
				tr.each("n1", at, at+400*time.Millisecond, fail)
			}
		}},
		{"four seconds twice", func(tr *trial) {
			tr.each("n1", trialStruck, trialStruck+4*time.Second, fail)
			tr.each("n1", 20*time.Second, 24*time.Second, fail)
		}},
		{"a reserve is empty after a put that failed", func(tr *trial) {
			tr.each("n1", trialStruck, trialStruck+4*time.Second, func(o *history.Op) {
				if fail(o); !isPut(o) {
					o.Response = &belfryv1.ReserveResponse{}
				}
			})
		}},
		{"the service goes away with the end of the fault", func(tr *trial) { tr.each("", trialHealing, trialEnd, fail) }},
		{"another fault begins", func(tr *trial) {
			tr.fault.Healing, tr.fault.To = 12*time.Second, 13*time.Second
			tr.run.Strikes = append(tr.run.Strikes, Strike{Name: "power-all", From: 14 * time.Second, To: 20 * time.Second})
			tr.fault = &tr.run.Strikes[0]
			tr.each("", 13500*time.Millisecond, trialEnd, fail)
			tr.says("n1", trialStruck, trialEnd)
			tr.says("n2", trialStruck, trialEnd)
		}},
		{"what another promise allows", func(tr *trial) {
			tr.fault.Allowed = 4 * time.Second
			tr.each("", trialStruck, trialStruck+8*time.Second, fail)
		}},
		{"the machine stalled", func(tr *trial) {
			tr.stalls = []span{{trialStruck, trialStruck + 2*time.Second}, {15 * time.Second, 16 * time.Second}}
			tr.each("", trialStruck, trialStruck+7*time.Second, fail)
		}},
		{"the fault is named by one of two victims, among other words", func(tr *trial) {
			tr.fault.Victims = []string{"n2", "n3"}
			tr.says("n1", trialStruck+time.Second, trialHealing, "shard 4: its replica on n2 lags")
		}},
		{"a fault that status need not name", func(tr *trial) {
			tr.fault.Victims = nil
			tr.says("n1", 0, trialEnd)
		}},
		{"status does not name what ended soon", func(tr *trial) {
			tr.fault.Healing, tr.fault.To = 18*time.Second, 19*time.Second
			tr.says("n1", 0, trialEnd)
		}},
		{"status fails at first", func(tr *trial) {
			for i := range tr.seen {
				if s := &tr.seen[i]; s.Asked >= trialStruck && s.Asked < trialStruck+4*time.Second {
					s.Problems, s.Failure = nil, "deadline exceeded"
				}
			}
		}},
	} {
		tr := newTrial()
		odd.alter(tr)
		found, a := tr.judge()
		if broken(found) != 0 || a.Unjudged != "" || found.Looked(39) < 8 {
			t.Errorf("%s: %d violations %+v, looked at %d, unjudged: %q", odd.name, broken(found), violations(found),
				found.Looked(39), a.Unjudged)
		}
	}
}

// TestResultUnjudged: what struck a cluster that was not whole, or left no majority, is not
// judged, and does not count as a check that held.
func TestResultUnjudged(t *testing.T) {
	for _, one := range []struct {
		name  string
		alter func(*trial)
		want  string
	}{
		{"a call had failed", func(tr *trial) { tr.each("n1", trialStruck-500*time.Millisecond, trialStruck, fail) },
			"failed before it: no leader"},
		{"status had a problem", func(tr *trial) { tr.says("n2", 0, trialStruck, "shard 1 moves") },
			"the status of n2 was not healthy"},
		{"a node was not tried", func(tr *trial) {
			tr.ops = slices.DeleteFunc(tr.ops, func(o *history.Op) bool { return o.Node == "n1" })
		}, "nothing is tried through n1"},
		{"a node was not tried for a while", func(tr *trial) {
			tr.ops = slices.DeleteFunc(tr.ops, func(o *history.Op) bool { return o.Node == "n1" && o.Invoked > 5*time.Second })
		}, "nothing tried a put of n1-0 through n1"},
		{"a node was not asked", func(tr *trial) {
			tr.seen = slices.DeleteFunc(tr.seen, func(s history.Status) bool { return s.Node == "n1" })
		}, "it was not asked"},
		{"it was over at once", func(tr *trial) {
			tr.fault.Healing, tr.fault.To = trialStruck, trialStruck
			tr.run.Strikes = append(tr.run.Strikes, Strike{Name: "next", From: trialStruck, To: trialEnd})
		}, "it was over before anything was tried"},
	} {
		tr := newTrial()
		one.alter(tr)
		tr.each("n2", trialStruck, trialHealing, fail)
		found, a := tr.judge()
		if broken(found) != 0 || found.Looked(39) != 0 || !strings.Contains(a.Unjudged, one.want) {
			t.Errorf("%s: %d violations, looked at %d, unjudged: %q, want %q", one.name, broken(found), found.Looked(39),
				a.Unjudged, one.want)
		}
	}
	tr := newTrial()
	tr.fault.Healthy = nil
	tr.each("n2", trialStruck, trialHealing, fail)
	if found, _ := tr.judge(); broken(found) != 0 || found.Looked(39) != 0 {
		t.Errorf("a fault that spares no majority: %d violations, looked at %d", broken(found), found.Looked(39))
	}
}
