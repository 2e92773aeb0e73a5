// Package ui is the dashboard: pages that show queues, jobs and nodes, and the actions of an
// operator on them. Its pages make calls of the public API, inside this process, with the token of
// the person who looks. So no page can do what that person could not do by a call, and what is audited
// of a call is audited of an action.
package ui

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/login"
	"github.com/belfrydb/belfry/rpc/ui/many"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/outcome"
)

// DefaultPath is the path of the pages if Config has none.
const DefaultPath = "/ui/"

// Config configures the pages. API, Defaults and Logger are required.
type Config struct {
	// API carries the calls that pages make to the handler of the API, in this process.
	API http.RoundTripper
	// Path is the path of the pages. It begins and ends with a slash; the default is DefaultPath.
	// Links are relative, so a proxy may offer the pages under another path.
	Path string
	// ReadOnly leaves out and refuses all actions.
	ReadOnly bool
	// Sessions keeps the tokens of those who have logged in; nil if calls need no token.
	Sessions *login.Sealer
	// Defaults are the settings of a queue that has none of its own.
	Defaults *belfryv1.QueueSettings
	// Name is the name of the node, and Version the version that it runs.
	Name, Version string
	// Logger receives the failures of pages.
	Logger *slog.Logger
	// Now is the wall clock; defaults to time.Now.
	Now func() time.Time
}

// Pages serves the dashboard. It implements http.Handler.
type Pages struct {
	cfg       Config
	queues    belfryv1connect.QueueServiceClient
	admin     belfryv1connect.AdminServiceClient
	schedules belfryv1connect.ScheduleServiceClient
	mux       *http.ServeMux
	forms     []string
	// These are shared by pages, because they cost more than one call.
	allQueues            reads[*queueList]
	deadJobs, deadCauses reads[*many.Dead]
	holders              reads[*many.Held]
}

//go:embed static
var staticFiles embed.FS

// New returns the pages. It reports every problem of the configuration.
func New(cfg Config) (*Pages, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("configuring the dashboard: %w", err)
	}
	p := &Pages{
		cfg: cfg, mux: http.NewServeMux(), allQueues: newReads[*queueList](listFresh, listOld),
		deadJobs: newReads[*many.Dead](listFresh, listOld), deadCauses: newReads[*many.Dead](causesFresh, causesOld),
		holders: newReads[*many.Held](holdersFresh, holdersOld),
	}
	p.queues, p.admin, p.schedules = newClients(cfg.API)
	p.route()
	return p, nil
}

func (c *Config) validate() error {
	var errs []error
	if c.API == nil {
		errs = append(errs, errors.New("an API is required"))
	}
	if c.Defaults == nil {
		errs = append(errs, errors.New("the Defaults are required"))
	}
	if c.Logger == nil {
		errs = append(errs, errors.New("a Logger is required"))
	}
	if c.Path == "" {
		c.Path = DefaultPath
	}
	errs = append(errs, CheckPath(c.Path))
	if c.Now == nil {
		c.Now = time.Now
	}
	return errors.Join(errs...)
}

// CheckPath returns what is wrong with a path for the pages.
func CheckPath(path string) error {
	if !strings.HasPrefix(path, "/") || !strings.HasSuffix(path, "/") || strings.ContainsAny(path, "?#%{}\\ ") ||
		strings.Contains(path, "//") {
		return fmt.Errorf("the path %q of the dashboard must begin and end with a slash, such as /ui/", path)
	}
	for _, taken := range []string{"/", "/v1/", "/q/", "/belfry.v1."} {
		if path == taken || taken != "/" && strings.HasPrefix(path, taken) {
			return fmt.Errorf("the path %q of the dashboard is taken by the API", path)
		}
	}
	return nil
}

// get names the page at a path.
func (p *Pages) get(path string, page func(*visit) (content, error)) {
	p.mux.Handle("GET "+p.cfg.Path+path, p.page(page))
}

// form names what takes the form that is posted to a path.
func (p *Pages) form(path string, handler http.Handler) {
	p.forms = append(p.forms, path)
	p.mux.Handle("POST "+p.cfg.Path+path, handler)
}

// post names an act. page is where its form is: it is shown again if the act is refused.
func (p *Pages) post(path string, act func(*visit) (string, error), page func(*visit) (content, error)) {
	p.form(path, p.action(action{act, page, formBytesMax}))
}

// route names what is at each path.
func (p *Pages) route() {
	get, form, post := p.get, p.form, p.post
	get("{$}", p.overview)
	get("queues", p.listQueues)
	get("queue", p.showQueue)
	get("queue-settings", p.showSettingsForm)
	get("new-queue", p.showQueueForm)
	get("put", p.showPutForm)
	get("jobs", p.listJobs)
	get("job", p.showJob)
	get("dead", p.deadLetters)
	get("find", p.find)
	get("consumers", p.listConsumers)
	get("tasks", p.listTasks)
	get("task", p.showTask)
	get("cluster", p.showCluster)
	get("node", p.showNode)
	get("namespaces", p.listNamespaces)
	get("namespace", p.showNamespace)
	get("tokens", p.listTokens)
	get("token", p.showToken)
	get("audit", p.listAudit)
	get("settings", p.showSettings)
	p.mux.HandleFunc("GET "+p.cfg.Path+"body", p.download)
	p.mux.HandleFunc("GET "+p.cfg.Path+"export", p.exportJobs)
	post("pause", p.pauseQueue, p.showQueue)
	post("resume", p.resumeQueue, p.showQueue)
	post("purge", p.purgeQueue, p.showQueue)
	post("delete-queue", p.deleteQueue, p.showQueue)
	post("queue-settings", p.changeSettings, p.showSettingsForm)
	post("new-queue", p.createQueue, p.showQueueForm)
	form("put", p.action(action{p.putJob, p.showPutForm, putFormBytesMax}))
	post("run-now", p.runNow, p.showJob)
	post("reschedule", p.rescheduleJob, p.showJob)
	post("cancel", p.cancelJob, p.showJob)
	post("redrive", p.redriveJob, p.showJob)
	form("choose", p.action(action{p.choose, p.listJobs, chosenFormMax}))
	form("act-chosen", p.action(action{p.actOnChosen, p.showChosen, chosenFormMax}))
	post("count", p.startCount, p.pageOfForm)
	post("act-all", p.actOnAll, p.pageOfForm)
	post("stop-task", p.stopTask, p.showTask)
	post("release-leases", p.releaseLeases, p.listConsumers)
	post("drain", p.drainNode, p.showNode)
	post("undrain", p.undrainNode, p.showNode)
	post("remove-node", p.removeNode, p.showNode)
	post("transfer", p.transferLeader, p.showCluster)
	post("namespace", p.setNamespace, p.showNamespace)
	post("delete-namespace", p.deleteNamespace, p.showNamespace)
	post("new-token", p.createToken, p.listTokens)
	post("rotate-token", p.rotateToken, p.showToken)
	post("revoke-token", p.revokeToken, p.showToken)
	p.routeRooms()
	form("settings", http.HandlerFunc(p.keepSettings))
	p.mux.HandleFunc("GET "+p.cfg.Path+"login", p.showLogin)
	form("login", http.HandlerFunc(p.login))
	form("logout", http.HandlerFunc(p.logout))
	p.mux.HandleFunc("GET "+p.cfg.Path+"static/", p.serveStatic)
}

// Forms returns the paths at which forms are posted, relative to the path of the pages.
func (p *Pages) Forms() []string { return p.forms }

// Serves reports whether a path is one of the pages.
func (p *Pages) Serves(path string) bool {
	return strings.HasPrefix(path, p.cfg.Path) || path == strings.TrimSuffix(p.cfg.Path, "/")
}

// ServeHTTP implements http.Handler.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := form.CheckText(r.URL.Query()); err != nil {
		p.visit(w, r).fail(err)
		return
	}
	p.mux.ServeHTTP(w, r)
}

// Protect sets the headers that every answer at a path of the pages needs, also one that refuses the
// request: no other page may show it in a frame, no cache keeps it, and no script in it runs but our
// own.
func Protect(w http.ResponseWriter) {
	for name, value := range map[string]string{
		"Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; " +
			"object-src 'none'",
		"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
		"Cache-Control": "no-store", "X-Robots-Tag": "noindex, nofollow", "Cross-Origin-Opener-Policy": "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		w.Header().Set(name, value)
	}
}

// serveStatic serves a file of the pages. Links to it have the version in their query.
func (p *Pages) serveStatic(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, p.cfg.Path)
	if _, err := fs.Stat(staticFiles, name); err != nil { // the name of a folder ends in a slash, which is none here
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "private, max-age=3600")
	http.ServeFileFS(w, r, staticFiles, name)
}

// page serves a page that shows something.
func (p *Pages) page(show func(*visit) (content, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := p.visit(w, r)
		c, err := show(v)
		if err != nil {
			v.fail(err)
			return
		}
		if c.target != "" {
			v.redirect(c.target)
			return
		}
		status := http.StatusOK
		if v.Problem != nil { // of the query, which the page says
			status = v.Problem.Status
		}
		v.send(status, c)
	})
}

// action is what a form does.
type action struct {
	// act returns where to go afterwards, relative to the page; nothing if it set the visit's answer.
	act func(*visit) (string, error)
	// page is the page of the form; nil shows a refusal on a page of its own.
	page func(*visit) (content, error)
	// bytesMax bounds the form.
	bytesMax int64
}

// action serves a form.
func (p *Pages) action(a action) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := p.visit(w, r)
		if p.cfg.ReadOnly {
			v.fail(outcome.ErrReadOnly)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, a.bytesMax)
		if err := cmp.Or(r.ParseForm(), markup.ReadHidden(r)); err != nil {
			v.fail(fmt.Errorf("%w: %w", outcome.ErrForm, err))
			return
		}
		target, err := a.act(v)
		// Also a refused act may have changed something: only a part of it failed, or it is not known.
		p.allQueues.Forget(v.token())
		p.deadJobs.Forget(v.token())
		p.deadCauses.Forget(v.token())
		p.holders.Forget(v.token())
		switch {
		case err != nil:
			v.refuse(err, a.page)
		case v.answer != nil:
			v.send(http.StatusOK, *v.answer)
		default:
			v.redirect(target)
		}
	})
}

const (
	// formBytesMax bounds a form.
	formBytesMax = 64 << 10
	// putFormBytesMax bounds the form of a put: a body of 1 MiB has three times its size there.
	putFormBytesMax = 4 << 20
)
