package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/belfrydb/belfry/rpc/admin"
	"github.com/belfrydb/belfry/rpc/auth"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/lmstfy"
)

// mountLmstfy prepares lmstfy's protocol. Its calls are those of the services: the interceptor
// authorizes, measures and audits them.
func (h *handler) mountLmstfy(cfg Config, a *admin.Service) error {
	if !cfg.Lmstfy {
		return nil
	}
	e := h.interceptor
	var err error
	h.lmstfy, err = lmstfy.New(lmstfy.Config{
		Queues: lmstfy.Queues{
			Put:      intercepted(e, belfryv1connect.QueueServicePutProcedure, h.queues.Put),
			PutBatch: intercepted(e, belfryv1connect.QueueServicePutBatchProcedure, h.queues.PutBatch),
			Reserve:  intercepted(e, belfryv1connect.QueueServiceReserveProcedure, h.queues.Reserve),
			Cancel:   intercepted(e, belfryv1connect.QueueServiceCancelProcedure, h.queues.Cancel),
			Get:      intercepted(e, belfryv1connect.QueueServiceGetProcedure, h.queues.Get),
			List:     intercepted(e, belfryv1connect.QueueServiceListProcedure, h.queues.List),
			Redrive:  intercepted(e, belfryv1connect.QueueServiceRedriveProcedure, h.queues.Redrive),
		},
		Administration: lmstfy.Administration{
			GetQueue:    intercepted(e, belfryv1connect.AdminServiceGetQueueProcedure, a.GetQueue),
			ListQueues:  intercepted(e, belfryv1connect.AdminServiceListQueuesProcedure, a.ListQueues),
			PurgeQueue:  intercepted(e, belfryv1connect.AdminServicePurgeQueueProcedure, a.PurgeQueue),
			CreateToken: intercepted(e, belfryv1connect.AdminServiceCreateTokenProcedure, a.CreateToken),
			ListTokens:  intercepted(e, belfryv1connect.AdminServiceListTokensProcedure, a.ListTokens),
			DeleteToken: intercepted(e, belfryv1connect.AdminServiceDeleteTokenProcedure, a.DeleteToken),
		},
		Authenticate:  h.authenticateForeign,
		ReleaseUnsent: h.queues.ReleaseUnsent,
		WaitMax:       h.limits.WaitMax, Version: cfg.Version, Registry: cfg.Registry,
	})
	return err
}

// foreignKey is the key of the foreignRequest that a call is made for.
type foreignKey struct{}

// foreignRequest is a request in another protocol, whose calls the interceptor makes.
type foreignRequest struct {
	address, id string
	reply       *reply
}

// in returns a request whose calls are made for the foreign one.
func (f *foreignRequest) in(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), foreignKey{}, f))
}

// intercepted returns a method as the services of Connect offer it: the interceptor makes its calls.
func intercepted[Q, A any](e *interceptor, procedure string,
	method func(context.Context, *Q) (*A, error)) func(context.Context, *Q) (*A, error) {
	return func(ctx context.Context, req *Q) (res *A, err error) {
		c := &auth.Call{Procedure: procedure, Request: req}
		if from, ok := ctx.Value(foreignKey{}).(*foreignRequest); ok {
			c.Address, c.ID = from.address, from.id
		}
		err = e.run(ctx, c, func() (err error) {
			if res, err = method(ctx, req); err == nil {
				c.Answer = res
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		return res, nil
	}
}

// authenticateForeign authenticates a request in another protocol by its header Authorization.
func (h *handler) authenticateForeign(r *http.Request) (*http.Request, *fault.Error) {
	authenticated, f := h.authorizer.Authenticate(r)
	if f != nil {
		return nil, f
	}
	if from, ok := r.Context().Value(foreignKey{}).(*foreignRequest); ok {
		from.reply.known = true
	}
	known(r)
	return authenticated, nil
}

// serveLmstfy serves a request of one of lmstfy's clients. It has the bounds of a request on the
// port of Belfry's own clients.
func (h *handler) serveLmstfy(w http.ResponseWriter, r *http.Request) {
	h.identify(w, r)
	out := &reply{ResponseWriter: w, request: r, handler: h, foreign: true}
	defer func() {
		if p := recover(); p != nil {
			h.recoveredLmstfy(out, r, p)
		}
	}()
	defer limitLeftover(out, r)
	if f := h.ofPage(r); f != nil {
		lmstfy.Refuse(out, f)
		return
	}
	named, f := auth.WithClient(r)
	if f != nil {
		lmstfy.Refuse(out, f)
		return
	}
	from := &foreignRequest{address: r.RemoteAddr, id: r.Header.Get(auth.CallIDHeader), reply: out}
	limited, release := h.bodies.Unary(w, from.in(named), "")
	defer release()
	h.lmstfy.ServeHTTP(out, limited)
}

// recoveredLmstfy answers for a handler that panicked, if no answer was begun.
func (h *handler) recoveredLmstfy(out *reply, r *http.Request, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p)
	}
	h.logger.Error("a handler of lmstfy's protocol panicked", slog.String("path", fault.Quote([]byte(r.URL.Path))),
		slog.String("request_id", r.Header.Get(auth.CallIDHeader)), slog.Any("panic", p),
		slog.String("stack", string(debug.Stack())))
	if out.wrote {
		panic(http.ErrAbortHandler)
	}
	lmstfy.Refuse(out, fault.New(belfryv1.Reason_REASON_INTERNAL))
}
