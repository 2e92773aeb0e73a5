package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/access/tokens"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// turnedAwayPeriod is how long the log says nothing more of refused calls after it has.
const turnedAwayPeriod = 10 * time.Second

// Of refused calls the audit has refusalLines at once, and one more each refusalPause; those of strangers and those of callers whose tokens are good are counted each for
// themselves, so that the noise of the ones hides nothing of the others.
const (
	refusalLines = 20
	refusalPause = time.Second
)

// turnedAway counts calls that were refused for want of a token or of a scope, and says so in the log now and then: whoever tries tokens does not fill it.
// The audit has a line for each, and for each call of which some entries were, as long as they are few.
type turnedAway struct {
	logger, auditor *slog.Logger
	calls           *prometheus.CounterVec

	mu               sync.Mutex
	said             time.Time
	since            int // refused since then
	known, strangers allowance
}

// allowance is what the audit may say of some callers.
type allowance struct {
	paid   time.Time // up to when its lines are used up
	unsaid int       // calls that have had none since the last
}

// line reports whether there may be one now, and for how many calls there was none since the last.
func (a *allowance) line(now time.Time) (unsaid int, ok bool) {
	if first := now.Add(-refusalLines * refusalPause); a.paid.Before(first) {
		a.paid = first
	}
	if a.paid.Add(refusalPause).After(now) {
		a.unsaid++
		return 0, false
	}
	unsaid = a.unsaid
	a.paid, a.unsaid = a.paid.Add(refusalPause), 0
	return unsaid, true
}

// newTurnedAway registers the counter.
func newTurnedAway(logger, auditor *slog.Logger, registry prometheus.Registerer) (*turnedAway, error) {
	t := &turnedAway{logger: logger, auditor: auditor, calls: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "belfry_refused_calls_total", Help: "Calls refused because of their token, by reason: unauthenticated or forbidden.",
	}, []string{"reason"})}
	for _, reason := range []string{"unauthenticated", "forbidden"} {
		t.calls.WithLabelValues(reason)
	}
	if err := registry.Register(t.calls); err != nil {
		return nil, fmt.Errorf("registering the metrics of refused calls: %w", err)
	}
	return t, nil
}

// unknown counts a request whose caller could not be told. who is what it says to be, nil if it says nothing.
func (t *turnedAway) unknown(r *http.Request, who *caller, f *Fault) {
	if f.Reason == belfryv1.Reason_REASON_UNAUTHENTICATED {
		c := &procedureCall{procedure: tokens.Mask(r.URL.Path), address: r.RemoteAddr, id: r.Header.Get(correlationHeader)}
		t.count(c, f)
		t.line(&t.strangers, who, c, f.Code().String()+": "+f.Message)
	}
}

// audit leaves a line about a refused call of somebody who is known, unless there were too many lately: then the next line says how many had none.
func (t *turnedAway) audit(who *caller, c *procedureCall, outcome string, more ...any) {
	t.line(&t.known, who, c, outcome, more...)
}

func (t *turnedAway) line(of *allowance, who *caller, c *procedureCall, outcome string, more ...any) {
	t.mu.Lock()
	unsaid, ok := of.line(time.Now())
	t.mu.Unlock()
	if !ok {
		return
	}
	attrs := append(auditAttrs(who, c, clip(outcome, quotedBytesMax)), more...)
	t.auditor.Info("audit", append(attrs, slog.Int("unsaid", unsaid))...)
}

// refusedEntries counts what was refused of a call for want of a scope while the rest of it was carried out, and has the queue of the first.
type refusedEntries struct {
	count int
	queue string
}

func (r *refusedEntries) add(queue string) {
	if r.count++; r.count == 1 {
		r.queue = queue
	}
}

// entries leaves one line about what was refused of a call.
func (t *turnedAway) entries(ctx context.Context, procedure string, r refusedEntries) {
	who, ok := ctx.Value(callerKey{}).(*caller)
	if !ok {
		return // then nothing was admitted
	}
	t.audit(who, &procedureCall{procedure: procedure, address: who.address, id: who.requestID}, connect.CodePermissionDenied.String()+": the token does not allow it",
		slog.Int("entries", r.count), slog.String("queue", clip(tokens.Mask(r.queue), quotedBytesMax)))
}

// call counts the end of a call if it was a refusal.
func (t *turnedAway) call(c *procedureCall, f *Fault) {
	if f.Reason == belfryv1.Reason_REASON_UNAUTHENTICATED || f.Reason == belfryv1.Reason_REASON_FORBIDDEN {
		t.count(c, f)
	}
}

func (t *turnedAway) count(c *procedureCall, f *Fault) {
	reason := "unauthenticated"
	if f.Reason == belfryv1.Reason_REASON_FORBIDDEN {
		reason = "forbidden"
	}
	t.calls.WithLabelValues(reason).Inc()
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since++
	if now.Sub(t.said) < turnedAwayPeriod {
		return
	}
	t.logger.Warn("calls were refused", slog.Int("calls", t.since), slog.String("address", c.address), slog.String("procedure", clip(c.procedure, quotedBytesMax)),
		slog.String("last", tokens.Mask(f.Message)))
	t.said, t.since = now, 0
}
