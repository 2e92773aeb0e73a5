package rpc

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"connectrpc.com/grpchealth"

	"github.com/belfrydb/belfry/access/tokens"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// Gate knows the tokens that calls must carry. A server without one lets everybody do everything.
type Gate interface {
	// Open reports whether calls need no token. It is asked at each call and answers without waiting, as Token does. An error says that it cannot be told
	// yet, since the server has just started.
	Open() (bool, error)
	// Token returns what is kept of a token, by its id; nil if there is none. It is asked at each call and answers without waiting. An error says that
	// it cannot be told yet, since the server has just started.
	Token(id string) (*tokens.Record, error)
}

// caller is who makes calls: what was sent as a token. What it allows is asked for at each call, so that a token that ends does so for connections
// that are open, too.
type caller struct {
	id   string
	hash tokens.Hash
	// address and requestID are of the request with which he came, a session's of its first.
	address, requestID string
}

type callerKey struct{}

// guard admits calls by their tokens. One without a gate, or none, admits all.
type guard struct {
	gate Gate
	now  func() time.Time
	seen *turnedAway
}

// open reports whether everybody may do everything. Where that cannot be told yet there is a fault.
func (g *guard) open() (bool, *Fault) {
	if g == nil || g.gate == nil {
		return true, nil
	}
	open, err := g.gate.Open()
	if err != nil {
		return false, untold(err)
	}
	return open, nil
}

// untold returns the fault of a call of which it cannot be told yet whether it may be made.
func untold(err error) *Fault {
	f := *faultOfError(err)
	f.Message = "whether the call may be made cannot be told yet: " + f.Message
	return &f
}

// identify returns the request with its caller. A call whose caller cannot be told is refused, before anything of it is read.
func (g *guard) identify(r *http.Request) (*http.Request, *Fault) {
	open, f := g.open()
	if open || f != nil {
		return r, f
	}
	who, f := g.bearer(r.Header)
	if f == nil {
		who.address, who.requestID = r.RemoteAddr, r.Header.Get(correlationHeader)
		_, f = g.record(who)
	}
	if f != nil {
		g.seen.unknown(r, who, f)
		return nil, f
	}
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, who)), nil
}

// bearer reads the token of a request.
func (g *guard) bearer(header http.Header) (*caller, *Fault) {
	values := header.Values("Authorization")
	if len(values) == 0 {
		return nil, unauthenticated("the call carries no token; send one in the header `Authorization: Bearer TOKEN`")
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return nil, unauthenticated("the header Authorization is to be there once, and to be `Bearer TOKEN`")
	}
	id, hash, err := tokens.Parse(strings.TrimSpace(text))
	if err != nil {
		return nil, unauthenticated("what the call carries is no token: " + err.Error())
	}
	return &caller{id: id, hash: hash}, nil
}

// unauthenticated returns the fault of a call whose caller cannot be told. It does not tell tokens that never were from those that have ended.
func unauthenticated(why string) *Fault {
	f := fault(belfryv1.Reason_REASON_UNAUTHENTICATED)
	f.Message = why
	return f
}

// record returns what is kept of a caller's token, if that is valid now.
func (g *guard) record(who *caller) (*tokens.Record, *Fault) {
	record, err := g.gate.Token(who.id)
	if err != nil {
		return nil, untold(err)
	}
	if record == nil || !record.Hash.Equal(who.hash) || record.Expired(g.now()) {
		return nil, unauthenticated("the call's token is not known here, or has ended")
	}
	return record, nil
}

// grant is what a caller may do to queues.
type grant struct {
	caller string
	scopes tokens.Scopes
	action tokens.Action
	// refused is what was refused of the call so far.
	refused refusedEntries
}

// grant returns what the caller of ctx may do where an action is asked for; nil if everybody may. With a fault it is a grant of nothing.
func (g *guard) grant(ctx context.Context, action tokens.Action) (*grant, *Fault) {
	open, f := g.open()
	switch {
	case open:
		return nil, nil
	case f != nil:
		return &grant{action: action}, f
	}
	who, ok := ctx.Value(callerKey{}).(*caller)
	if !ok {
		return &grant{action: action}, unauthenticated("the call carries no token")
	}
	record, f := g.record(who)
	if f != nil {
		return &grant{caller: who.id, action: action}, f
	}
	return &grant{caller: who.id, scopes: record.Scopes, action: action}, nil
}

// allows reports whether the action may be done to a queue. Nil is everybody's.
func (g *grant) allows(queue string) bool {
	switch {
	case g == nil:
		return true
	case g.action == tokens.View:
		return g.scopes.AllowView(queue)
	default:
		return g.scopes.Allow(g.action, queue)
	}
}

// refusals returns what was refused.
func (g *grant) refusals() (r refusedEntries) {
	if g != nil {
		r = g.refused
	}
	return r
}

// forbidden returns the fault of an action that is not allowed, on a queue, or on the whole cluster if that is empty.
func (g *grant) forbidden(queue string) *Fault {
	f := fault(belfryv1.Reason_REASON_FORBIDDEN)
	if queue == "" {
		queue = tokens.All
	}
	g.refused.add(queue)
	f.Message = "token " + g.caller + " does not allow it: it takes " + tokens.Scope{Actions: []tokens.Action{g.action}, Queues: queue}.String()
	return f
}

// openToAll reports whether a path needs no token: load balancers ask there whether the node serves.
func openToAll(path string) bool {
	return path == "/livez" || path == "/readyz" || strings.HasPrefix(path, "/"+grpchealth.HealthV1ServiceName+"/")
}

// admit refuses a procedure that concerns the whole cluster to those who may not do that, and each to those whose token has ended.
func (g *guard) admit(ctx context.Context, procedure string) error {
	if openToAll(procedure) {
		return nil
	}
	action, whole := clusterAction(procedure)
	granted, f := g.grant(ctx, action)
	if f == nil && granted != nil && whole && !granted.scopes.AllowCluster(action) {
		f = granted.forbidden("")
	}
	if f != nil {
		return f
	}
	return nil
}

// clusterAction returns what a procedure takes on all queues and the cluster; false for one that takes something on the queues that it names, which it
// sees to itself. A procedure of AdminService that is new takes all there is.
func clusterAction(procedure string) (action tokens.Action, whole bool) {
	switch procedure {
	case belfryv1connect.AdminServiceCreateQueueProcedure, belfryv1connect.AdminServiceListQueuesProcedure, belfryv1connect.AdminServiceGetQueueProcedure,
		belfryv1connect.AdminServiceUpdateQueueProcedure, belfryv1connect.AdminServicePurgeQueueProcedure, belfryv1connect.AdminServiceDeleteQueueProcedure:
		return tokens.Admin, false
	case belfryv1connect.AdminServiceGetClusterProcedure:
		return tokens.View, true
	default:
		return tokens.Admin, strings.HasPrefix(procedure, "/"+belfryv1connect.AdminServiceName+"/")
	}
}

// guarded lets a handler of operators' tools answer those who may see the state of the cluster.
func (h *handler) guarded(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		granted, f := h.guard.grant(r.Context(), tokens.View)
		if f == nil && granted != nil && !granted.scopes.AllowCluster(tokens.View) {
			f = granted.forbidden("")
		}
		if f != nil {
			h.writeFault(w, plainRequest(r), f)
			return
		}
		inner.ServeHTTP(w, r)
	})
}

// nameRange is the names of queues that begin with prefix, or that one name.
type nameRange struct {
	prefix string
	one    bool
}

// has reports whether the range has all names of another.
func (r nameRange) has(other nameRange) bool {
	return r == other || !r.one && strings.HasPrefix(other.prefix, r.prefix)
}

// namesUnder returns where the queues are that the caller may see, of those whose names begin with prefix: in order, and none twice.
func (g *grant) namesUnder(prefix string) (all []nameRange) {
	if g == nil {
		return []nameRange{{prefix: prefix}}
	}
	for i := range g.scopes {
		start, open := strings.CutSuffix(g.scopes[i].Queues, tokens.All)
		r := nameRange{start, !open}
		switch {
		case open && strings.HasPrefix(prefix, start):
			r = nameRange{prefix: prefix}
		case !strings.HasPrefix(start, prefix):
			continue
		}
		if !slices.ContainsFunc(all, func(known nameRange) bool { return known.has(r) }) {
			all = append(slices.DeleteFunc(all, r.has), r)
		}
	}
	slices.SortFunc(all, func(a, b nameRange) int { return strings.Compare(a.prefix, b.prefix) })
	return all
}
