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
	"github.com/belfrydb/belfry/rpc/fault"
)

// Authenticator knows the tokens that calls must carry. A server without one allows every call.
type Authenticator interface {
	// OpenAccess reports whether calls need no token. The server asks at each call, and OpenAccess
	// returns without waiting, as Token does. It returns an error if the answer is not known yet,
	// since the server has just started.
	OpenAccess() (bool, error)
	// Token returns the record of a token by its id; nil if there is none. The server asks at each
	// call, and Token returns without waiting. It returns an error if the answer is not known yet,
	// since the server has just started.
	Token(id string) (*tokens.Record, error)
}

// caller identifies the client of a call by the token that it sent. The scopes of the token are
// looked up at each call, so that a token that ends does so for open connections too.
type caller struct {
	id   string
	hash tokens.Hash
	// address and requestID are those of the request that carried the token. The calls of a session
	// have those of the request that opened it.
	address, requestID string
}

type callerKey struct{}

// authorizer checks the tokens of calls and what they allow. Without an authenticator, or if it is
// nil, it allows every call.
type authorizer struct {
	authenticator Authenticator
	now           func() time.Time
	failures      *authFailures
}

// openAccess reports whether calls need no token. It returns a fault if that is not known yet.
func (g *authorizer) openAccess() (bool, *fault.Error) {
	if g == nil || g.authenticator == nil {
		return true, nil
	}
	open, err := g.authenticator.OpenAccess()
	if err != nil {
		return false, accessUnknown(err)
	}
	return open, nil
}

// accessUnknown returns the fault of a call while it is not known whether the call is allowed.
func accessUnknown(err error) *fault.Error {
	f := *fault.Of(err)
	f.Message = "whether the call may be made cannot be told yet: " + f.Message
	return &f
}

// authenticate returns the request with its caller in the context. It refuses a request without a
// valid token before anything of its body is read.
func (g *authorizer) authenticate(r *http.Request) (*http.Request, *fault.Error) {
	open, f := g.openAccess()
	if open || f != nil {
		return r, f
	}
	who, f := g.bearer(r.Header)
	if f == nil {
		who.address, who.requestID = r.RemoteAddr, r.Header.Get(correlationHeader)
		_, f = g.tokenRecord(who)
	}
	if f != nil {
		g.failures.addUnauthenticated(r, who, f)
		return nil, f
	}
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, who)), nil
}

// bearer reads the token of a request.
func (g *authorizer) bearer(header http.Header) (*caller, *fault.Error) {
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

// unauthenticated returns the fault of a call without a valid token. It does not say whether such a
// token ever existed.
func unauthenticated(why string) *fault.Error {
	f := fault.New(belfryv1.Reason_REASON_UNAUTHENTICATED)
	f.Message = why
	return f
}

// tokenRecord returns the record of the token of a caller if the token is valid now.
func (g *authorizer) tokenRecord(who *caller) (*tokens.Record, *fault.Error) {
	record, err := g.authenticator.Token(who.id)
	if err != nil {
		return nil, accessUnknown(err)
	}
	if record == nil || !record.Hash.Equal(who.hash) || record.Expired(g.now()) {
		return nil, unauthenticated("the call's token is not known here, or has ended")
	}
	return record, nil
}

// permissions are what a caller may do to queues.
type permissions struct {
	caller string
	scopes tokens.Scopes
	action tokens.Action
	// refused counts the entries of the call that were refused so far.
	refused refusedEntries
}

// permissions returns what the caller of ctx may do where an action is required; nil if calls need
// no token. With a fault it returns permissions that allow nothing.
func (g *authorizer) permissions(ctx context.Context, action tokens.Action) (*permissions, *fault.Error) {
	open, f := g.openAccess()
	switch {
	case open:
		return nil, nil
	case f != nil:
		return &permissions{action: action}, f
	}
	who, ok := ctx.Value(callerKey{}).(*caller)
	if !ok {
		return &permissions{action: action}, unauthenticated("the call carries no token")
	}
	record, f := g.tokenRecord(who)
	if f != nil {
		return &permissions{caller: who.id, action: action}, f
	}
	return &permissions{caller: who.id, scopes: record.Scopes, action: action}, nil
}

// allows reports whether the caller may do the action to a queue. Nil permissions allow everything.
func (g *permissions) allows(queue string) bool {
	switch {
	case g == nil:
		return true
	case g.action == tokens.View:
		return g.scopes.AllowView(queue)
	default:
		return g.scopes.Allow(g.action, queue)
	}
}

// refusals returns the entries that were refused.
func (g *permissions) refusals() (r refusedEntries) {
	if g != nil {
		r = g.refused
	}
	return r
}

// forbidden returns the fault of an action that is not allowed on a queue, or, if queue is empty,
// on the whole cluster. It records the refusal.
func (g *permissions) forbidden(queue string) *fault.Error {
	f := fault.New(belfryv1.Reason_REASON_FORBIDDEN)
	if queue == "" {
		queue = tokens.All
	}
	g.refused.add(queue)
	f.Message = "token " + g.caller + " does not allow it: it takes " + tokens.Scope{Actions: []tokens.Action{g.action}, Queues: queue}.String()
	return f
}

// isPublicPath reports whether a path needs no token: load balancers ask there whether the node
// serves.
func isPublicPath(path string) bool {
	return path == "/livez" || path == "/readyz" || strings.HasPrefix(path, "/"+grpchealth.HealthV1ServiceName+"/")
}

// authorize refuses a procedure for the whole cluster unless the token allows it for the whole
// cluster. It refuses every procedure once the token has ended.
func (g *authorizer) authorize(ctx context.Context, procedure string) error {
	if isPublicPath(procedure) {
		return nil
	}
	action, whole := clusterAction(procedure)
	allowed, f := g.permissions(ctx, action)
	if f == nil && allowed != nil && whole && !allowed.scopes.AllowCluster(action) {
		f = allowed.forbidden("")
	}
	if f != nil {
		return f
	}
	return nil
}

// clusterAction returns the action that a procedure requires on all queues and the cluster. whole
// is false for a procedure that requires an action only on the queues that it names, and checks
// that itself. A new procedure of AdminService requires admin:*.
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

// requireView wraps a handler of operational pages. It serves only callers that may view the state
// of the cluster.
func (h *handler) requireView(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		allowed, f := h.authorizer.permissions(r.Context(), tokens.View)
		if f == nil && allowed != nil && !allowed.scopes.AllowCluster(tokens.View) {
			f = allowed.forbidden("")
		}
		if f != nil {
			h.writeFault(w, plainRequest(r), f)
			return
		}
		inner.ServeHTTP(w, r)
	})
}

// nameRange is the set of queue names that begin with prefix or, if one is set, only the name
// prefix itself.
type nameRange struct {
	prefix string
	one    bool
}

// has reports whether the range contains all names of another.
func (r nameRange) has(other nameRange) bool {
	return r == other || !r.one && strings.HasPrefix(other.prefix, r.prefix)
}

// namesUnder returns the ranges of the names that begin with prefix and that the caller may see.
// The ranges are in order and do not overlap.
func (g *permissions) namesUnder(prefix string) (all []nameRange) {
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
