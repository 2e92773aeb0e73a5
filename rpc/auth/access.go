package auth

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
	// vouched says that the caller proved in another way that it may use the token; hash is empty.
	vouched bool
	// about says what the token is for, and is empty if the token is not known.
	about string
	// address and requestID are those of the request that carried the token. The calls of a session
	// have those of the request that opened it.
	address, requestID string
}

type callerKey struct{}

// Authorizer checks the tokens of calls and what they allow. Without an authenticator, or if it is
// nil, it allows every call.
type Authorizer struct {
	// Authenticator knows the tokens; nil allows every call.
	Authenticator Authenticator
	// Now is the wall clock, by which tokens end.
	Now func() time.Time
	// Failures counts the refused calls.
	Failures *Failures
}

// OpenAccess reports whether calls need no token. It returns a fault if that is not known yet.
func (a *Authorizer) OpenAccess() (bool, *fault.Error) {
	if a == nil || a.Authenticator == nil {
		return true, nil
	}
	open, err := a.Authenticator.OpenAccess()
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

// Authenticate returns the request with its caller in the context. It refuses a request without a
// valid token before anything of its body is read.
func (a *Authorizer) Authenticate(r *http.Request) (*http.Request, *fault.Error) {
	open, f := a.OpenAccess()
	if open || f != nil {
		return r, f
	}
	who, f := a.bearer(r.Header.Values("Authorization"))
	if f == nil {
		who.address, who.requestID = r.RemoteAddr, r.Header.Get(CallIDHeader)
		var record *tokens.Record
		if record, f = a.tokenRecord(who); f == nil {
			who.about = record.About
		}
	}
	if f != nil {
		a.Failures.addUnauthenticated(r, who, f)
		return nil, f
	}
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, who)), nil
}

// Known returns ctx with the caller that a value of the header Authorization names, as Authenticate
// does. It returns false, and counts no failure, for a call that Authenticate must refuse.
func (a *Authorizer) Known(ctx context.Context, authorization, address, callID string) (context.Context, bool) {
	open, f := a.OpenAccess()
	if open || f != nil {
		return ctx, open
	}
	who, f := a.bearer([]string{authorization})
	if f != nil {
		return nil, false
	}
	who.address, who.requestID = address, callID
	record, f := a.tokenRecord(who)
	if f != nil {
		return nil, false
	}
	who.about = record.About
	return context.WithValue(ctx, callerKey{}, who), true
}

// bearer reads the token in the values of the header Authorization.
func (a *Authorizer) bearer(values []string) (*caller, *fault.Error) {
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
func (a *Authorizer) tokenRecord(who *caller) (*tokens.Record, *fault.Error) {
	record, err := a.Authenticator.Token(who.id)
	if err != nil {
		return nil, accessUnknown(err)
	}
	if record == nil || !who.vouched && !record.Hash.Equal(who.hash) || record.Expired(a.Now()) {
		return nil, unauthenticated("the call's token is not known here, or has ended")
	}
	return record, nil
}

// Permissions are what a caller may do to queues.
type Permissions struct {
	// Caller is the id of the token.
	Caller string
	scopes tokens.Scopes
	action tokens.Action
	// refused counts the entries of the call that were refused so far.
	refused RefusedEntries
}

// Permissions returns what the caller of ctx may do where an action is required; nil if calls need
// no token. With a fault it returns permissions that allow nothing.
func (a *Authorizer) Permissions(ctx context.Context, action tokens.Action) (*Permissions, *fault.Error) {
	open, f := a.OpenAccess()
	switch {
	case open:
		return nil, nil
	case f != nil:
		return &Permissions{action: action}, f
	}
	who, ok := ctx.Value(callerKey{}).(*caller)
	if !ok {
		return &Permissions{action: action}, unauthenticated("the call carries no token")
	}
	record, f := a.tokenRecord(who)
	if f != nil {
		return &Permissions{Caller: who.id, action: action}, f
	}
	return &Permissions{Caller: who.id, scopes: record.Scopes, action: action}, nil
}

// Allows reports whether the caller may do the action to a queue. Nil permissions allow everything.
func (p *Permissions) Allows(queue string) bool {
	switch {
	case p == nil:
		return true
	case p.action == tokens.View:
		return p.scopes.AllowView(queue)
	default:
		return p.scopes.Allow(p.action, queue)
	}
}

// Refusals returns the entries that were refused.
func (p *Permissions) Refusals() (r RefusedEntries) {
	if p != nil {
		r = p.refused
	}
	return r
}

// Forbidden returns the fault of an action that is not allowed on a queue, or, if queue is empty,
// on the whole cluster. It records the refusal.
func (p *Permissions) Forbidden(queue string) *fault.Error {
	f := fault.New(belfryv1.Reason_REASON_FORBIDDEN)
	if queue == "" {
		queue = tokens.All
	}
	p.refused.Add(queue)
	f.Message = "token " + p.Caller + " does not allow it: it takes " +
		tokens.Scope{Actions: []tokens.Action{p.action}, Queues: queue}.String()
	return f
}

// PublicPath reports whether a path needs no token: load balancers ask there whether the node
// serves.
func PublicPath(path string) bool {
	return path == "/livez" || path == "/readyz" || strings.HasPrefix(path, "/"+grpchealth.HealthV1ServiceName+"/")
}

// Authorize refuses a procedure for the whole cluster unless the token allows it for the whole
// cluster. It refuses every procedure once the token has ended.
func (a *Authorizer) Authorize(ctx context.Context, procedure string) error {
	if PublicPath(procedure) {
		return nil
	}
	action, whole := clusterAction(procedure)
	allowed, f := a.Permissions(ctx, action)
	if f == nil && allowed != nil && whole && !allowed.scopes.AllowCluster(action) {
		f = allowed.Forbidden("")
	}
	if f != nil {
		return f
	}
	return nil
}

// ViewCluster refuses a caller that may not view the state of the cluster.
func (a *Authorizer) ViewCluster(ctx context.Context) *fault.Error {
	allowed, f := a.Permissions(ctx, tokens.View)
	if f == nil && allowed != nil && !allowed.scopes.AllowCluster(tokens.View) {
		f = allowed.Forbidden("")
	}
	return f
}

// clusterAction returns the action that a procedure requires on all queues and the cluster. whole
// is false for a procedure that requires an action only on the queues that it names, and checks
// that itself. A new procedure of AdminService requires admin:*.
func clusterAction(procedure string) (action tokens.Action, whole bool) {
	switch procedure {
	case belfryv1connect.AdminServiceCreateQueueProcedure, belfryv1connect.AdminServiceListQueuesProcedure,
		belfryv1connect.AdminServiceGetQueueProcedure,
		belfryv1connect.AdminServiceUpdateQueueProcedure, belfryv1connect.AdminServicePurgeQueueProcedure,
		belfryv1connect.AdminServiceStartTaskProcedure, belfryv1connect.AdminServiceGetTaskProcedure,
		belfryv1connect.AdminServiceListTasksProcedure, belfryv1connect.AdminServiceStopTaskProcedure,
		belfryv1connect.AdminServiceListKeysProcedure, belfryv1connect.AdminServicePauseKeyProcedure,
		belfryv1connect.AdminServiceResumeKeyProcedure, belfryv1connect.AdminServicePurgeKeyProcedure,
		belfryv1connect.AdminServiceReleaseLeasesProcedure, belfryv1connect.AdminServiceDeleteQueueProcedure:
		return tokens.Admin, false
	case belfryv1connect.AdminServiceGetClusterProcedure:
		return tokens.View, true
	default:
		return tokens.Admin, strings.HasPrefix(procedure, "/"+belfryv1connect.AdminServiceName+"/")
	}
}

// NameRange is the set of queue names that begin with Prefix or, if One is set, only the name
// Prefix itself.
type NameRange struct {
	Prefix string
	One    bool
}

// has reports whether the range contains all names of another.
func (r NameRange) has(other NameRange) bool {
	return r == other || !r.One && strings.HasPrefix(other.Prefix, r.Prefix)
}

// NamesUnder returns the ranges of the names that begin with prefix and that the caller may see.
// The ranges are in order and do not overlap.
func (p *Permissions) NamesUnder(prefix string) (all []NameRange) {
	if p == nil {
		return []NameRange{{Prefix: prefix}}
	}
	for i := range p.scopes {
		start, open := strings.CutSuffix(p.scopes[i].Queues, tokens.All)
		r := NameRange{start, !open}
		switch {
		case open && strings.HasPrefix(prefix, start):
			r = NameRange{Prefix: prefix}
		case !strings.HasPrefix(start, prefix):
			continue
		}
		if !slices.ContainsFunc(all, func(known NameRange) bool { return known.has(r) }) {
			all = append(slices.DeleteFunc(all, r.has), r)
		}
	}
	slices.SortFunc(all, func(x, y NameRange) int { return strings.Compare(x.Prefix, y.Prefix) })
	return all
}
