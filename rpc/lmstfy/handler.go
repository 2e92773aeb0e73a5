package lmstfy

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// A method is a method of a service of Belfry.
type method[Q, A any] func(context.Context, *Q) (*A, error)

// Queues has the methods of QueueService that lmstfy's routes call.
type Queues struct {
	Put      method[belfryv1.PutRequest, belfryv1.PutResponse]
	PutBatch method[belfryv1.PutBatchRequest, belfryv1.PutBatchResponse]
	Reserve  method[belfryv1.ReserveRequest, belfryv1.ReserveResponse]
	Cancel   method[belfryv1.CancelRequest, belfryv1.CancelResponse]
	Get      method[belfryv1.GetRequest, belfryv1.GetResponse]
	List     method[belfryv1.ListRequest, belfryv1.ListResponse]
	Redrive  method[belfryv1.RedriveRequest, belfryv1.RedriveResponse]
}

// Administration has the methods of AdminService that lmstfy's routes call.
type Administration struct {
	GetQueue    method[belfryv1.GetQueueRequest, belfryv1.GetQueueResponse]
	ListQueues  method[belfryv1.ListQueuesRequest, belfryv1.ListQueuesResponse]
	PurgeQueue  method[belfryv1.PurgeQueueRequest, belfryv1.PurgeQueueResponse]
	CreateToken method[belfryv1.CreateTokenRequest, belfryv1.CreateTokenResponse]
	ListTokens  method[belfryv1.ListTokensRequest, belfryv1.ListTokensResponse]
	DeleteToken method[belfryv1.DeleteTokenRequest, belfryv1.DeleteTokenResponse]
}

// Config has what a handler needs. All fields are required.
type Config struct {
	// Queues and Administration carry out the calls. They check the scopes of the caller in the
	// context. Their errors are faults, or errors of Connect that carry one.
	Queues         Queues
	Administration Administration
	// Authenticate returns a request with the caller of its header Authorization in its context. If
	// calls need no token, it accepts any header.
	Authenticate func(*http.Request) (*http.Request, *fault.Error)
	// ReleaseUnsent gives back jobs whose answer did not reach the consumer, even if the context has
	// ended.
	ReleaseUnsent func(context.Context, []*belfryv1.Job)
	// WaitMax is the longest wait that Reserve takes.
	WaitMax time.Duration
	// Version is the version of Belfry that /version reports.
	Version string
	// Registry gets the metrics.
	Registry prometheus.Registerer
}

// Handler serves lmstfy's API. It may be called from any goroutine.
type Handler struct {
	cfg     Config
	mux     *http.ServeMux
	deletes *prometheus.CounterVec
}

// New registers the metrics and returns a handler.
func New(cfg Config) (*Handler, error) {
	h := &Handler{cfg: cfg, mux: http.NewServeMux(), deletes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "belfry_lmstfy_deletes_total",
		Help: "DELETEs of jobs on --lmstfy-listen by the state that the job had; \"none\" is no job. lmstfy's consumers " +
			"send no lease: \"reserved\" ends the job of whichever consumer holds it, and the other states are jobs whose " +
			"lease had lapsed, or that no consumer held.",
	}, []string{"state"})}
	if err := cfg.Registry.Register(h.deletes); err != nil {
		return nil, fmt.Errorf("registering the metrics of lmstfy's protocol: %w", err)
	}
	h.mountAPI()
	h.mountAdministration()
	h.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		failure(http.StatusNotFound, "api not found").send(w)
	})
	return h, nil
}

// mountAPI routes the paths of producers and consumers.
func (h *Handler) mountAPI() {
	const queue = "/api/{namespace}/{queue}"
	for route, action := range map[string]func(*call) answer{
		"PUT " + queue:                      h.publish,
		"PUT " + queue + "/bulk":            h.publishBulk,
		"PUT " + queue + "/job/{id}":        h.republish,
		"GET " + queue + "/job/{id}":        h.peekJob,
		"DELETE " + queue + "/job/{id}":     h.deleteJob,
		"GET " + queue + "/peek":            h.peekQueue,
		"GET " + queue + "/size":            h.size,
		"DELETE " + queue:                   h.destroyQueue,
		"GET " + queue + "/deadletter":      h.peekDeadLetter,
		"GET " + queue + "/deadletter/size": h.deadLetterSize,
		"PUT " + queue + "/deadletter":      h.respawnDeadLetter,
		"DELETE " + queue + "/deadletter":   h.deleteDeadLetter,
	} {
		h.mux.Handle(route, h.api(nameFlaw, action))
	}
	h.mux.Handle("GET "+queue, h.api(namesFlaw, h.consume))
}

// call is a request on one of lmstfy's routes.
type call struct {
	*http.Request

	parameters url.Values
	namespace  string
	// queue is the path's part for the queue: one name or, where jobs are consumed, several.
	queue string
}

// name returns the name of one of the call's queues in Belfry.
func (c *call) name(queue string) string { return c.namespace + "/" + queue }

// parameter returns a parameter of the query, or the default if it is missing.
func (c *call) parameter(name, missing string) string {
	if values := c.parameters[name]; len(values) > 0 {
		return values[0]
	}
	return missing
}

// Refuse answers a request that no route may see.
func Refuse(w http.ResponseWriter, f *fault.Error) { refused(f).send(w) }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead { // net/http takes HEAD for a GET, which would hand out a job
		failure(http.StatusNotFound, "api not found").send(w)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// api returns the handler of a route below /api. As in lmstfy, the names are checked before the
// token.
func (h *Handler) api(flaw func(namespace, queue string) string, action func(*call) answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{
			Request: r, parameters: r.URL.Query(), namespace: r.PathValue("namespace"), queue: r.PathValue("queue"),
		}
		if why := flaw(c.namespace, c.queue); why != "" {
			failure(http.StatusBadRequest, why).send(w)
			return
		}
		pool, token := splitToken(apiToken(c))
		if pool != defaultPool {
			failure(http.StatusNotFound, "pool not found").send(w)
			return
		}
		authenticated, f := h.authenticate(r, token)
		if f != nil {
			refusal(f, token).send(w)
			return
		}
		c.Request = authenticated
		action(c).send(w)
	})
}

// authenticate returns the request with the caller that a token stands for. Without a token, the
// header Authorization counts, as on Belfry's own port.
func (h *Handler) authenticate(r *http.Request, token string) (*http.Request, *fault.Error) {
	if token != "" {
		changed := *r
		changed.Header = r.Header.Clone()
		changed.Header.Set("Authorization", "Bearer "+token)
		r = &changed
	}
	return h.cfg.Authenticate(r)
}

// apiToken returns the token of a request below /api.
func apiToken(c *call) string {
	if token := c.Header.Get("X-Token"); token != "" {
		return token
	}
	return c.parameters.Get("token")
}

// defaultPool is the only pool. In lmstfy, a pool is a Redis.
const defaultPool = "default"

// splitToken splits what lmstfy's clients send as a token: [POOL:]TOKEN.
func splitToken(text string) (pool, token string) {
	if pool, token, ok := strings.Cut(text, ":"); ok {
		return pool, token
	}
	return defaultPool, text
}

// nameMax is the longest name of a namespace or a queue, in bytes.
const nameMax = 255

// isName reports whether a text has only letters, digits, - and _, and is not empty.
func isName(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// nameFlaw returns what is wrong with a namespace and a queue; empty if nothing is.
func nameFlaw(namespace, queue string) string {
	switch {
	case len(namespace) > nameMax || len(queue) > nameMax:
		return "namespace or queue name too long"
	case !isName(namespace):
		return forbiddenNamespace
	case strings.HasPrefix(queue, "_") || !isName(queue):
		return forbiddenQueue
	default:
		return ""
	}
}

// namesFlaw returns what is wrong with a namespace and a list of queues; empty if nothing is.
func namesFlaw(namespace, queues string) string {
	switch {
	case !isName(namespace):
		return forbiddenNamespace
	case queues != strings.Repeat(",", len(queues)) && !isName(strings.ReplaceAll(queues, ",", "")):
		return forbiddenQueue
	default:
		return ""
	}
}

const (
	forbiddenNamespace = "namespace name contains forbidden characters"
	forbiddenQueue     = "queue name contains forbidden characters"
)

// faultOf returns the fault of an error of a service.
func faultOf(err error) *fault.Error {
	if f, ok := fault.FromConnect(err); ok {
		return f
	}
	return fault.Of(err)
}

// isMissing reports whether an error says that there is no such job or queue.
func isMissing(err error) bool {
	if err == nil {
		return false
	}
	reason := faultOf(err).Reason
	return reason == belfryv1.Reason_REASON_JOB_NOT_FOUND || reason == belfryv1.Reason_REASON_QUEUE_NOT_FOUND
}
