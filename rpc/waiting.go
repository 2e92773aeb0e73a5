package rpc

import (
	"log/slog"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/rpc/auth"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
)

// NewWaitingHandler returns what answers for a server that is no node of a cluster yet, at once:
// /livez as ever, /readyz that it is not ready, and every call, in the protocol of its request,
// with NO_LEADER. why says, for people, what is waited for; it may be called from several
// goroutines.
func NewWaitingHandler(name string, logger *slog.Logger, why func() string) http.Handler {
	h := &handler{
		limits: check.DefaultLimits(), name: name, logger: logger, errors: connect.NewErrorWriter(),
		routes: map[string]http.Handler{},
	}
	h.routes["/livez"] = http.HandlerFunc((&health{}).live)
	h.routes["/readyz"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, f := readyQuery(r); f != nil {
			h.writeFault(w, plainRequest(r), f)
			return
		}
		writeText(w, http.StatusServiceUnavailable, "[-]cluster failed: "+why()+"\nnot ready\n")
	})
	return &waiting{h, why}
}

// waiting is a handler that has no node.
type waiting struct {
	handler *handler
	why     func() string
}

// ServeHTTP implements http.Handler.
func (s *waiting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Belfry-Served-By", s.handler.name)
	w.Header().Set(auth.CallIDHeader, correlation(r.Header.Get(auth.CallIDHeader)))
	out := &reply{ResponseWriter: w, request: r, handler: s.handler}
	defer out.finish()
	if route, ok := s.handler.routes[r.URL.Path]; ok {
		route.ServeHTTP(out, r)
		return
	}
	f := fault.New(belfryv1.Reason_REASON_NO_LEADER)
	f.Message = s.why()
	if r = jsonByDefault(r); strings.HasPrefix(r.URL.Path, rawPrefix) || r.Method != http.MethodPost {
		r = plainRequest(r)
	}
	s.handler.writeFault(out, r, f)
}
