// Package access judges what calls were allowed to do by the tokens that they carried.
package access

import (
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/wire"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model/ledger"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// heardWithin is how soon every node has heard of a token that was made or ended, with nothing
	// wrong. While something is, only the node that made or ended it is known to know.
	heardWithin = 3 * time.Second
	// endSlack is what a token's end may be off beside what clocks are wrong by.
	endSlack = 50 * time.Millisecond
)

// trust is what is known of what a call carried.
type trust uint8

const (
	unsure trust = iota
	// good was a token that the asked node knew, from before the call was sent until after it was
	// answered.
	good
	// bad never was one, or had ended.
	bad
)

// credential is a token, by what the history tells of it.
type credential struct {
	scopes []scope
	made   *history.Op // nil for one of the nodes' files
	root   *Root
	ends   []*history.Op
	// until is its own end, since the start of the run; 0 for none.
	until time.Duration
}

// Root is a token that nodes found in their files. Every node knew it from Known to Ending; from
// then on some may have forgotten it, and all had at Ended. What is 0 did not come.
type Root struct {
	ID                   string
	Known, Ending, Ended time.Duration
}

// Run is what a Gatekeeper must know of a run. Times are since its start.
type Run struct {
	Ops   []*history.Op // in the order in which they were sent
	Roots []Root
	// Since returns a true time as one since the start of the run.
	Since func(fsm.Time) time.Duration
	// QuietAfter returns the first moment after at by which nothing had been wrong for so long.
	QuietAfter func(at, quiet time.Duration) time.Duration
	// WrongBy returns by how much the clock of a node may have been wrong up to a moment.
	WrongBy func(node string, at time.Duration) time.Duration
}

// Gatekeeper knows which token allowed what, and when. Once it is made, any goroutine may use it.
type Gatekeeper struct {
	run    *Run
	tokens map[string]*credential
}

// New takes from the calls of a run which tokens there were.
func New(run *Run) *Gatekeeper {
	g := &Gatekeeper{run: run, tokens: map[string]*credential{}}
	for i := range run.Roots {
		r := &run.Roots[i]
		g.tokens[r.ID] = &credential{scopes: scopesOf([]string{"admin:*"}), root: r}
	}
	for _, o := range run.Ops {
		switch req := o.Request.(type) {
		case *belfryv1.CreateTokenRequest:
			resp, ok := o.Response.(*belfryv1.CreateTokenResponse)
			if !ok {
				continue // no caller has the token that may have been made
			}
			made := &credential{scopes: scopesOf(req.GetScopes()), made: o}
			if end := resp.GetRecord().GetNotAfter(); end != nil {
				made.until = run.Since(wire.TimeOf(end))
			}
			g.tokens[resp.GetRecord().GetId()] = made
		case *belfryv1.DeleteTokenRequest:
			if t := g.tokens[req.GetId()]; t != nil && wire.OutcomeOf(o) != belfryv1.Outcome_OUTCOME_NOT_APPLIED {
				t.ends = append(t.ends, o)
			}
		}
	}
	return g
}

// knows reports whether what a call did to a token was known to the node that another was sent to,
// when that was.
func (g *Gatekeeper) knows(did, later *history.Op) bool {
	return did.OK() && (later.Node == did.Node && later.Invoked > did.Returned ||
		later.Invoked > g.run.QuietAfter(did.Returned, heardWithin))
}

// wrongBy is by how much the clock of a node may have been wrong by then, and some more.
func (g *Gatekeeper) wrongBy(node string, at time.Duration) time.Duration {
	return g.run.WrongBy(node, at) + endSlack
}

// MayHave reports whether a call may have been allowed as a whole.
func (g *Gatekeeper) MayHave(o *history.Op) bool { return g.trust(o) != bad && g.allowed(o) }

// trust returns what is known of what a call carried.
func (g *Gatekeeper) trust(o *history.Op) trust {
	t := g.tokens[o.Token]
	if t == nil || o.Forged {
		return bad
	}
	if r := t.root; r != nil {
		switch {
		case r.Ended != 0 && o.Invoked > r.Ended:
			return bad
		case o.Invoked >= r.Known && (r.Ending == 0 || o.Returned < r.Ending):
			return good
		}
		return unsure
	}
	wrong := g.wrongBy(o.Node, o.Returned)
	if t.until != 0 && o.Invoked > t.until+wrong {
		return bad
	}
	is := unsure
	if g.knows(t.made, o) && (t.until == 0 || o.Returned < t.until-wrong) {
		is = good
	}
	for _, end := range t.ends {
		//nolint:forcetypeassert // that is what ends are
		after := end.Request.(*belfryv1.DeleteTokenRequest).GetAfter().AsDuration()
		if after > 0 {
			after += wrong + g.wrongBy(end.Node, end.Returned)
		}
		if g.knows(end, o) && o.Invoked > end.Returned+after {
			return bad
		}
		if o.Returned > end.Invoked {
			is = unsure
		}
	}
	return is
}

// Judge holds one call against what it carried.
func (g *Gatekeeper) Judge(o *history.Op, found *finding.Set) {
	found.Look(37)
	is, allowed := g.trust(o), g.allowed(o)
	switch {
	case is == bad && (o.OK() || o.Witness != nil || letIn(o.Reason)):
		found.Violated(37, o.Returned, "%s was let in with a token (%q) that is not good: it was told %v", wire.Describe(o),
			o.Token, toldOf(o))
	case is == bad:
		found.Count("calls without a good token", 1)
	case o.OK() && !allowed:
		found.Violated(37, o.Returned, "%s was answered, and its token %s does not allow it", wire.Describe(o), o.Token)
	case !allowed:
		found.Count("calls that their token did not allow", 1)
	case is == good && (o.Reason == belfryv1.Reason_REASON_UNAUTHENTICATED ||
		o.Reason == belfryv1.Reason_REASON_FORBIDDEN):
		found.Violated(37, o.Returned, "%s was refused with %v, and its token %s allows it: %s", wire.Describe(o), o.Reason,
			o.Token, o.Message)
	}
	g.judgeEntries(o, is, found)
}

// judgeEntries holds what a call was answered for each job or queue against what it carried.
func (g *Gatekeeper) judgeEntries(o *history.Op, is trust, found *finding.Set) {
	t := g.tokens[o.Token]
	if t == nil || !o.OK() {
		return
	}
	each := func(act action, queue string, e *belfryv1.EntryError) {
		found.Look(37)
		allowed := t.allows(act, queue)
		switch {
		case !allowed && e.GetReason() != belfryv1.Reason_REASON_FORBIDDEN:
			found.Violated(37, o.Returned, "%s reached the queue %s, and its token %s does not allow it", wire.Describe(o),
				queue, o.Token)
		case allowed && is == good && (e.GetReason() == belfryv1.Reason_REASON_FORBIDDEN ||
			e.GetReason() == belfryv1.Reason_REASON_UNAUTHENTICATED):
			found.Violated(37, o.Returned, "%s was refused the queue %s with %v, and its token %s allows it", wire.Describe(o),
				queue, e.GetReason(), o.Token)
		}
	}
	switch resp := o.Response.(type) {
	case *belfryv1.PutBatchResponse:
		jobs := o.Request.(*belfryv1.PutBatchRequest).GetJobs() //nolint:forcetypeassert // what it answers
		for i, r := range resp.GetResults() {
			each(putting, jobs[min(i, len(jobs)-1)].GetQueue(), r.GetError())
		}
	case *belfryv1.AckBatchResponse:
		leases := o.Request.(*belfryv1.AckBatchRequest).GetLeases() //nolint:forcetypeassert // what it answers
		for i, r := range resp.GetResults() {
			ref, _ := wire.ParseLease(leases[min(i, len(leases)-1)])
			each(consuming, ref.Queue, r.GetError())
		}
	case *belfryv1.ReserveResponse:
		for _, job := range resp.GetJobs() {
			each(consuming, job.GetQueue(), nil)
		}
	}
}

// JudgeEffect holds a command that took effect against what the calls carried that sent it.
func (g *Gatekeeper) JudgeEffect(shard uint32, one *ledger.Command, sent []*history.Op, found *finding.Set) {
	if len(sent) == 0 {
		return // the effects judge it
	}
	act, queues := touched(one.Command)
	if len(queues) == 0 {
		return
	}
	found.Look(37)
	for _, o := range sent {
		t := g.tokens[o.Token]
		if g.trust(o) != bad && !slices.ContainsFunc(queues, func(q string) bool { return !t.allows(act, q) }) {
			return
		}
	}
	o := sent[0]
	found.Violated(37, g.run.Since(one.Entry.At), "shard %d, entry %d.%d: %s took effect on %s, and its token %q was not "+
		"good or does not allow it",
		shard, one.Entry.Index, one.Number, wire.Describe(o), strings.Join(queues, ", "), o.Token)
}

// touched returns the queues that a command of clients does something to, and what.
func touched(c fsm.Command) (action, []string) {
	switch k := c.(type) {
	case *fsm.Put:
		return putting, []string{k.Queue}
	case *fsm.Reserve:
		return consuming, k.Queues
	case *fsm.Cancel, *fsm.Reschedule:
		return putting, []string{fsm.QueueOf(c)}
	case *fsm.Ack, *fsm.Nack, *fsm.Release, *fsm.Extend:
		return consuming, []string{fsm.QueueOf(c)}
	case *fsm.Redrive, *fsm.Purge, *fsm.DeleteQueue:
		return administer, []string{fsm.QueueOf(c)}
	default:
		return "", nil
	}
}

// letIn reports whether a refusal shows that the caller was known: an unknown caller gets no answer
// about jobs and queues.
func letIn(r belfryv1.Reason) bool {
	switch r {
	case belfryv1.Reason_REASON_UNSPECIFIED, belfryv1.Reason_REASON_UNAUTHENTICATED, belfryv1.Reason_REASON_NO_LEADER,
		belfryv1.Reason_REASON_NOT_LEADER,
		belfryv1.Reason_REASON_SHUTTING_DOWN, belfryv1.Reason_REASON_OVERLOADED, belfryv1.Reason_REASON_UNKNOWN_OUTCOME,
		belfryv1.Reason_REASON_INTERNAL:
		return false
	default:
		return true
	}
}

// toldOf is what a call was told, for people.
func toldOf(o *history.Op) string {
	if o.OK() {
		return "that it was done"
	}
	return o.Reason.String()
}
