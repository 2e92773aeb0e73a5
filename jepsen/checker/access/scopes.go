package access

import (
	"slices"
	"strings"

	"github.com/belfrydb/belfry/jepsen/checker/wire"

	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// This file says once more what tokens allow; what the server takes from their scopes is on trial
// as well.

// action is what a scope allows.
type action string

const (
	putting    action = "put"
	consuming  action = "consume"
	viewing    action = "view"
	administer action = "admin"
)

// scope allows actions on queues.
type scope struct {
	actions []string
	// queues is the name of one queue, or with open the beginning of names.
	queues string
	open   bool
}

// scopesOf reads scopes as they are sent.
func scopesOf(texts []string) (all []scope) {
	for _, text := range texts {
		actions, queues, _ := strings.Cut(text, ":")
		start, open := strings.CutSuffix(queues, "*")
		all = append(all, scope{strings.Split(actions, ","), start, open})
	}
	return all
}

// allows reports whether a token, nil for one that never was, allows something on a queue. What is
// done to a queue may be seen of it.
func (t *credential) allows(act action, queue string) bool {
	return t != nil && slices.ContainsFunc(t.scopes, func(s scope) bool {
		return (s.queues == queue || s.open && strings.HasPrefix(queue, s.queues)) &&
			(act == viewing || slices.Contains(s.actions, string(act)) || slices.Contains(s.actions, string(administer)))
	})
}

// allowsAll is allows for what concerns the whole cluster.
func (t *credential) allowsAll(act action) bool {
	return t != nil && slices.ContainsFunc(t.scopes, func(s scope) bool {
		return s.open && s.queues == "" && (slices.Contains(s.actions, string(act)) ||
			slices.Contains(s.actions, string(administer)))
	})
}

// allowed reports whether the token of a call allows the call as a whole. Batches have their answer
// entry by entry.
func (g *Gatekeeper) allowed(o *history.Op) bool {
	t := g.tokens[o.Token]
	of := func(act action, queue string) bool { return t.allows(act, queue) }
	held := func(token string) bool {
		ref, _ := wire.ParseLease(token)
		return of(consuming, ref.Queue)
	}
	switch r := o.Request.(type) {
	case *belfryv1.PutBatchRequest, *belfryv1.AckBatchRequest:
		return t != nil
	case *belfryv1.PutRequest:
		return of(putting, r.GetQueue())
	case *belfryv1.CancelRequest:
		return of(putting, r.GetQueue())
	case *belfryv1.RescheduleRequest:
		return of(putting, r.GetQueue())
	case *belfryv1.ReserveRequest:
		return !slices.ContainsFunc(r.GetQueues(), func(q string) bool { return !of(consuming, q) })
	case *belfryv1.AckRequest:
		return held(r.GetLease())
	case *belfryv1.NackRequest:
		return held(r.GetLease())
	case *belfryv1.ReleaseRequest:
		return held(r.GetLease())
	case *belfryv1.ExtendRequest:
		return held(r.GetLease())
	case *belfryv1.GetRequest:
		return of(consuming, r.GetQueue())
	case *belfryv1.ListRequest:
		return of(consuming, r.GetQueue())
	case *belfryv1.GetQueueRequest:
		return of(viewing, r.GetQueue())
	case interface{ GetQueue() string }: // the rest that names a queue changes it
		return of(administer, r.GetQueue())
	default:
		return t.allowsAll(administer)
	}
}
