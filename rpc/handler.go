package rpc

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/rpc/admin"
	"github.com/belfrydb/belfry/rpc/auth"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/drain"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/inbound"
	"github.com/belfrydb/belfry/rpc/lmstfy"
	"github.com/belfrydb/belfry/rpc/metrics"
	"github.com/belfrydb/belfry/rpc/openapi"
	"github.com/belfrydb/belfry/rpc/queue"
	"github.com/belfrydb/belfry/rpc/schedule"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/ui"
	"github.com/belfrydb/belfry/stream"
)

// Config configures a handler. Node, Catalog, Cluster, Logger, Registry and Calendars are required.
type Config struct {
	Node    backend.Node
	Catalog backend.Catalog
	Cluster backend.Cluster
	// Logger receives the failures of the server. Requests are not logged.
	Logger *slog.Logger
	// Audit receives a line for each administrative call; Logger by default.
	Audit *slog.Logger
	// Registry holds the metrics that /metrics serves.
	Registry *prometheus.Registry
	// MetricsQueuesMax is how many queues have their own series in /metrics; the default is
	// metrics.DefaultQueues. A queue counts once for each shard that has a partition of it.
	MetricsQueuesMax int
	// Limits bounds requests; the zero value means DefaultLimits.
	Limits check.Limits
	// Authenticator knows the tokens that calls must carry; nil allows every call. /livez, /readyz
	// and the health service of gRPC need no token.
	Authenticator auth.Authenticator
	// Backups keeps the time of the node's last complete backup over restarts. If it is nil, the
	// time is lost when the process ends.
	Backups admin.BackupTimes
	// Name is the node's name, shown in the Belfry-Served-By header. Address is where clients reach
	// the node. Version is the version that it runs.
	Name, Address, Version string
	// ConnectionsMax bounds the connections of clients, each of which takes a file descriptor; 0
	// for no bound. At the bound, a connection without an authenticated call is closed for a new
	// one.
	ConnectionsMax int
	// TLS has the settings for clients' connections; nil for no TLS.
	TLS *tls.Config
	// Local says that only callers on this machine can reach the port, and without TLS. While calls
	// need no token, the Host of a call must then be an address, localhost or LocalName; others are
	// refused.
	Local     bool
	LocalName string
	// Dashboard says what of the dashboard is served.
	Dashboard Dashboard
	// Lmstfy makes the server ready for ServeLmstfy.
	Lmstfy bool
	// Calendars finds the firings of schedules, with the time-zone data of this node. It is required.
	Calendars schedule.Calendars
	// Now is the wall clock; defaults to time.Now.
	Now func() time.Time
}

// validate reports every problem and fills in the defaults.
func (c *Config) validate() error {
	var errs []error
	if c.Node == nil {
		errs = append(errs, errors.New("a Node is required"))
	}
	if c.Catalog == nil {
		errs = append(errs, errors.New("a Catalog is required"))
	}
	if c.Cluster == nil {
		errs = append(errs, errors.New("a Cluster is required"))
	}
	if c.Calendars == nil {
		errs = append(errs, errors.New("a Calendars is required"))
	}
	if c.Logger == nil {
		errs = append(errs, errors.New("a Logger is required"))
	}
	if c.Registry == nil {
		errs = append(errs, errors.New("a Registry is required"))
	}
	if c.Limits == (check.Limits{}) {
		c.Limits = check.DefaultLimits()
	}
	if c.MetricsQueuesMax == 0 {
		c.MetricsQueuesMax = metrics.DefaultQueues
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Audit == nil {
		c.Audit = c.Logger
	}
	return errors.Join(append(errs, c.Limits.Validate())...)
}

// handler is the whole public edge of a node: every protocol and path on one port.
type handler struct {
	limits check.Limits
	now    func() time.Time
	name   string
	logger *slog.Logger
	drain  *drain.Signal
	queues *queue.Service
	// router and administration are for front doors.
	router         shardcall.Router
	administration *admin.Service
	errors         *connect.ErrorWriter
	origins        *http.CrossOriginProtection
	// local says that only callers on this machine are expected. They may call it localName.
	local     bool
	localName string

	// routes has the handlers of exact paths. calls has the Connect procedures, under both of their
	// names.
	routes map[string]http.Handler
	calls  map[string]call
	// others has handlers by prefix: health and reflection.
	others map[string]http.Handler
	// dashboard serves pages for people; nil if it is off.
	dashboard *ui.Pages
	// lmstfy serves lmstfy's protocol; nil if it is off.
	lmstfy *lmstfy.Handler
	// paths has the short paths; methodList is the same as text.
	paths      []string
	methodList string

	// interceptor runs the calls of Connect and of sessions. sessionMethods has the methods that
	// sessions carry.
	interceptor    *interceptor
	authorizer     *auth.Authorizer
	sessions       *stream.Server
	sessionMethods map[stream.Method]sessionMethod
	buffers        *codec.Buffers // of requests and answers
	requestBytes   *requestBytes

	date date
	// bodies bounds the bodies of requests; bodyBytesInFlight counts what all of them hold.
	bodies            *inbound.Limiter
	bodyBytesInFlight atomic.Int64
	// streams counts the open streams.
	streams atomic.Int64
}

// call is a Connect procedure.
type call struct {
	method  method
	handler http.Handler
}

// newHandler wires services, codecs, limits and routes together.
func newHandler(cfg Config) (*handler, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("configuring the public API: %w", err)
	}
	watch, err := newTraffic(cfg.Registry)
	if err != nil {
		return nil, err
	}
	sizes, err := newRequestBytes(cfg.Registry)
	if err != nil {
		return nil, err
	}
	if err := cfg.Registry.Register(
		metrics.NewNodeCollector(cfg.Node, cfg.Cluster.VotersWanted, cfg.Version)); err != nil {
		return nil, fmt.Errorf("registering the node's metrics: %w", err)
	}
	if err := cfg.Registry.Register(metrics.NewNamespaceCollector(cfg.Node, cfg.Cluster.Namespaces)); err != nil {
		return nil, fmt.Errorf("registering the metrics of namespaces: %w", err)
	}
	recorder := &auth.Recorder{Logger: cfg.Audit, Trail: auth.NewTrail(cfg.Name, cfg.Now)}
	failures, err := auth.NewFailures(cfg.Logger, recorder, cfg.Registry)
	if err != nil {
		return nil, err
	}
	h := &handler{
		limits: cfg.Limits, authorizer: &auth.Authorizer{
			Authenticator: cfg.Authenticator, Now: cfg.Now, Failures: failures,
		}, now: cfg.Now, name: cfg.Name, logger: cfg.Logger, drain: drain.New(),
		errors: connect.NewErrorWriter(), origins: http.NewCrossOriginProtection(), local: cfg.Local,
		localName: cfg.LocalName,
		routes:    map[string]http.Handler{}, calls: map[string]call{}, others: map[string]http.Handler{},
		requestBytes: sizes,
	}
	h.bodies = &inbound.Limiter{Limits: &h.limits, InFlight: &h.bodyBytesInFlight, Observe: sizes.observe}
	binary := codec.Binary{Bounds: codec.NewBounds(&cfg.Limits), Buffers: &codec.Buffers{}}
	rules := &check.Rules{Limits: cfg.Limits, Now: cfg.Now, Authorizer: h.authorizer}
	router := shardcall.Router{Node: cfg.Node, Catalog: cfg.Catalog, PartsAtOnce: shardcall.PartsAtOnce}
	h.router = router
	h.queues = queue.New(queue.Config{Router: router, Rules: rules, Drain: h.drain, Codec: binary})
	administration, err := admin.New(admin.Config{
		Router: router, Cluster: cfg.Cluster, Rules: rules, Drain: h.drain, Logger: cfg.Logger,
		Registry: cfg.Registry, Backups: cfg.Backups, Trail: recorder.Trail,
	})
	if err != nil {
		return nil, err
	}
	h.administration = administration
	h.interceptor, h.buffers = &interceptor{
		logger: cfg.Logger, traffic: watch, authorizer: h.authorizer,
		auditor: &auth.AuditLog{
			Audited: auditedMethods(), Changes: changingMethods(), Recorder: recorder, Failures: failures,
		},
	}, binary.Buffers
	h.mountSessions()
	options := connectOptions(cfg, h.interceptor, binary)
	h.mountServices(administration, schedule.New(schedule.Config{
		Router: router, Rules: rules, Calendars: cfg.Calendars, Format: cfg.Cluster.Format,
	}), options)
	h.mountOperations(cfg, options)
	if err := h.mountLmstfy(cfg, administration); err != nil {
		return nil, err
	}
	if err := h.mountDashboard(cfg); err != nil {
		return nil, err
	}
	return h, nil
}

// connectOptions returns the options of every service.
func connectOptions(cfg Config, e *interceptor, binary codec.Binary) []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithCodec(codec.NewJSON(codec.NameJSON, binary.Bounds)),
		connect.WithCodec(codec.NewJSON(codec.NameJSONUTF8, binary.Bounds)),
		connect.WithCodec(binary),
		connect.WithReadMaxBytes(cfg.Limits.MessageBytesMax),
		connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
			if spec.Procedure != belfryv1connect.QueueServiceWorkProcedure {
				return nil
			}
			return []connect.HandlerOption{connect.WithReadMaxBytes(cfg.Limits.StreamMessageBytesMax)}
		}),
		connect.WithCompression("gzip", codec.NewGunzip(cfg.Limits.MessageBytesMax), codec.NewGzip),
		connect.WithCompressMinBytes(compressBytesMin),
		connect.WithInterceptors(e),
	}
}

// compressBytesMin is the size from which answers are compressed, if the client accepts it. For
// smaller ones compression costs more than it saves.
const compressBytesMin = 1 << 10

// mountServices routes the methods of the contract under their own and their short paths.
func (h *handler) mountServices(administration *admin.Service, schedules *schedule.Service,
	options []connect.HandlerOption) {
	_, queues := belfryv1connect.NewQueueServiceHandler(h.queues, options...)
	_, admins := belfryv1connect.NewAdminServiceHandler(administration, options...)
	_, scheduled := belfryv1connect.NewScheduleServiceHandler(schedules, options...)
	fast := h.queues.FastPathHandlers(options)
	for _, m := range methodsOfContract() {
		service := queues
		if strings.HasPrefix(m.procedure, "/"+belfryv1connect.AdminServiceName+"/") {
			service = admins
		} else if strings.HasPrefix(m.procedure, "/"+belfryv1connect.ScheduleServiceName+"/") {
			service = scheduled
		} else if own, ok := fast[m.procedure]; ok {
			service = own
		}
		h.calls[m.procedure] = call{method: m, handler: service}
		h.calls[m.short] = call{method: m, handler: service}
		h.paths = append(h.paths, m.short)
	}
	h.methodList = strings.Join(h.paths, ", ")
}

// mountOperations routes the paths for operators and their tools.
func (h *handler) mountOperations(cfg Config, options []connect.HandlerOption) {
	services := []string{
		belfryv1connect.QueueServiceName, belfryv1connect.AdminServiceName, belfryv1connect.ScheduleServiceName,
	}
	health := &health{begun: time.Now(), node: cfg.Node, drain: h.drain, services: append([]string{""}, services...)}
	path, healthHandler := grpchealth.NewHandler(health, options...)
	h.others[path] = healthHandler
	reflector := grpcreflect.NewStaticReflector(append(slices.Clone(services), grpchealth.HealthV1ServiceName)...)
	path, reflectHandler := grpcreflect.NewHandlerV1(reflector, options...)
	h.others[path] = reflectHandler
	path, reflectHandler = grpcreflect.NewHandlerV1Alpha(reflector, options...)
	h.others[path] = reflectHandler
	h.routes[openapi.Path] = openapi.Handler()
	h.routes["/livez"] = http.HandlerFunc(health.live)
	h.routes["/readyz"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := health.ready(w, r); f != nil {
			h.writeFault(w, plainRequest(r), f)
		}
	})
	h.routes["/metrics"] = h.requireView(metrics.NewPage(cfg.Registry, cfg.Node, cfg.MetricsQueuesMax))
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.identify(w, r)
	out := &reply{ResponseWriter: w, request: r, handler: h}
	defer func() {
		if p := recover(); p != nil {
			h.recovered(out, r, p)
		}
	}()
	h.route(out, r)
	limitLeftover(out, r)
	out.finish()
}

// identify sets the headers that name the node and the call.
func (h *handler) identify(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Belfry-Served-By", h.name)
	w.Header().Set("Date", h.date.at(h.now())) // clients check request ids against it
	id := correlation(r.Header.Get(auth.CallIDHeader))
	r.Header.Set(auth.CallIDHeader, id)
	w.Header().Set(auth.CallIDHeader, id)
}

// leftoverWait is how long the rest of a body that no handler read may take to arrive. net/http
// reads some of it before it answers, to reuse the connection, and would wait for it forever.
const leftoverWait = 2 * time.Second

// limitLeftover applies leftoverWait. The next request on the connection has its own deadlines.
func limitLeftover(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		// A connection without deadlines, as in a test, is bounded by its owner.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(leftoverWait))
	}
}

// route finds the handler of a path.
func (h *handler) route(w *reply, r *http.Request) {
	path := r.URL.Path
	isPage := h.isPage(path)
	if isPage {
		ui.Protect(w)
	}
	if f := h.ofPage(r); f != nil {
		h.writeFault(w, r, f)
		return
	}
	if isPage {
		r = h.dashboard.WithToken(r)
	}
	c, isCall := h.calls[path]
	if !auth.PublicPath(path) && (!isPage || !h.dashboard.Public(path)) {
		authenticated, f := h.authorizer.Authenticate(r)
		if f != nil {
			if isPage && f.Reason == belfryv1.Reason_REASON_UNAUTHENTICATED {
				h.dashboard.Refuse(w, r)
				return
			}
			if !isCall {
				r = plainRequest(r)
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="belfry"`)
			h.writeFault(w, r, f)
			return
		}
		r, w.known = authenticated, true
		known(r)
	}
	if isPage {
		h.servePage(w, r)
		return
	}
	if notesClient(path, c) {
		named, f := auth.WithClient(r)
		if f != nil {
			h.writeFault(w, r, f)
			return
		}
		r = named
	}
	if isCall {
		h.serveCall(w, r, c)
		return
	}
	if queue, ok := strings.CutPrefix(path, rawPrefix); ok {
		limited, release := h.bodies.Unary(w.ResponseWriter, r, rawPrefix)
		defer release()
		h.serveRaw(w, limited, queue)
		return
	}
	if path == stream.SessionPath {
		h.serveSession(w, r)
		return
	}
	if route, ok := h.routes[path]; ok {
		route.ServeHTTP(w, r)
		return
	}
	if slash := strings.LastIndexByte(path, '/'); slash > 0 {
		if other, ok := h.others[path[:slash+1]]; ok {
			h.serveOther(w, r, other)
			return
		}
	}
	h.noSuchPath(w, r)
}

// notesClient reports whether jobs note the client of the calls of a path.
func notesClient(path string, c call) bool {
	switch c.method.procedure {
	case belfryv1connect.QueueServiceReserveProcedure, belfryv1connect.QueueServiceWorkProcedure:
		return true
	default:
		return path == stream.SessionPath || strings.HasPrefix(path, rawPrefix)
	}
}

// othersBytesMax bounds a request to health and reflection, which the server reads even without a
// token.
const othersBytesMax = 4 << 10

// serveOther serves health and reflection. A silent stream has the same time limit there as a busy
// one.
func (h *handler) serveOther(w *reply, r *http.Request, other http.Handler) {
	if r.Body != nil {
		r.Body = http.MaxBytesReader(w.ResponseWriter, r.Body, othersBytesMax)
	}
	limited, release := h.bodies.Unary(w.ResponseWriter, r, "")
	defer release()
	other.ServeHTTP(w, jsonByDefault(limited))
}

// serveCall serves a Connect procedure. It replaces a short path with that of the procedure.
func (h *handler) serveCall(w *reply, r *http.Request, c call) {
	if !c.method.streams {
		limited, release := h.bodies.Unary(w.ResponseWriter, r, c.method.procedure)
		defer release()
		r = limited
	} else {
		defer h.streams.Add(-1)
		if h.streams.Add(1) > int64(h.limits.StreamsMax) {
			f := fault.New(belfryv1.Reason_REASON_OVERLOADED)
			f.Message = "more than " + strconv.Itoa(h.limits.StreamsMax) + " streams are open, which is the limit"
			h.writeFault(w, r, f)
			return
		}
		r, w.stream = h.bodies.Stream(w.ResponseWriter, r, c.method.procedure)
		defer w.stream.Release()
	}
	r = jsonByDefault(r)
	if r.URL.Path != c.method.procedure {
		changed, target := *r, *r.URL
		target.Path, target.RawPath = c.method.procedure, ""
		changed.URL = &target
		r = &changed
	}
	if r.Method == http.MethodGet && c.method.reads && r.URL.RawQuery == "" {
		changed, target := *r, *r.URL
		target.RawQuery = "encoding=json&message=%7B%7D"
		changed.URL = &target
		r = &changed
	}
	c.handler.ServeHTTP(w, r)
}

// jsonByDefault reads a POST without a content type, or with the one that curl -d sends, as JSON.
func jsonByDefault(r *http.Request) *http.Request {
	if r.Method != http.MethodPost {
		return r
	}
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "", "application/x-www-form-urlencoded", "text/plain", "text/json":
		changed := *r
		changed.Header = r.Header.Clone()
		changed.Header.Set("Content-Type", "application/json")
		return &changed
	default:
		return r
	}
}

// writeFault answers with an error of the contract, in the protocol of the request.
func (h *handler) writeFault(w http.ResponseWriter, r *http.Request, f *fault.Error) {
	writeFault(h.errors, w, r, f.Wire())
}

// writeFault writes an error. It fails only if the client is gone.
func writeFault(errors *connect.ErrorWriter, w http.ResponseWriter, r *http.Request, err error) {
	_ = errors.Write(w, r, err)
}

// recovered answers for a handler that panicked, if no answer was begun.
func (h *handler) recovered(out *reply, r *http.Request, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p)
	}
	h.logger.Error("a handler panicked", slog.String("path", fault.Quote([]byte(r.URL.Path))),
		slog.String("request_id", r.Header.Get(auth.CallIDHeader)), slog.Any("panic", p),
		slog.String("stack", string(debug.Stack())))
	if out.wrote {
		panic(http.ErrAbortHandler)
	}
	out.captured, out.status = nil, 0
	h.writeFault(out, r, fault.New(belfryv1.Reason_REASON_INTERNAL))
	out.finish()
}

// date is the text of the Date header, which changes once a second.
type date struct{ last atomic.Pointer[dateText] }

// dateText is the text of a second.
type dateText struct {
	second int64
	text   string
}

// at returns the text of a time.
func (d *date) at(t time.Time) string {
	last := d.last.Load()
	if second := t.Unix(); last == nil || last.second != second {
		last = &dateText{second, t.UTC().Format(http.TimeFormat)}
		d.last.Store(last)
	}
	return last.text
}

// correlation returns the client's id if it is short and visible, else a new one.
func correlation(id string) string {
	if id != "" && len(id) <= 128 && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return id
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// requireView wraps a handler of operational pages. It serves only callers that may view the state
// of the cluster.
func (h *handler) requireView(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := h.authorizer.ViewCluster(r.Context()); f != nil {
			h.writeFault(w, plainRequest(r), f)
			return
		}
		inner.ServeHTTP(w, r)
	})
}
