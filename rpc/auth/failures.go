package auth

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
	"github.com/belfrydb/belfry/rpc/fault"
)

// failureLogPeriod is the shortest time between two warnings about refused calls.
const failureLogPeriod = 10 * time.Second

// The audit log has at most refusalLines lines about refused calls at once, and one more each
// refusalPause. Calls with and without a valid token are counted separately, so that many calls
// without one hide no line about the others.
const (
	refusalLines = 20
	refusalPause = time.Second
)

// Failures counts calls that were refused for want of a token or of a scope. It logs them from
// time to time only, so that a client that guesses tokens does not fill the log. The audit log has
// a line for each such call, and for each call of which some entries were refused, up to the rate
// of an auditLimiter.
type Failures struct {
	logger   *slog.Logger
	recorder *Recorder
	calls    *prometheus.CounterVec

	mu                     sync.Mutex
	said                   time.Time
	since                  int // refused since then
	known, unauthenticated auditLimiter
}

// auditLimiter is a token bucket for lines of the audit log.
type auditLimiter struct {
	paid   time.Time // the lines are used up until then
	unsaid int       // calls without a line since the last line
}

// line reports whether the log may have a line now, and how many calls had none since the last
// line.
func (a *auditLimiter) line(now time.Time) (unsaid int, ok bool) {
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

// NewFailures registers the counter of refused calls. logger gets a warning from time to time, and
// recorder the records of single calls.
func NewFailures(logger *slog.Logger, recorder *Recorder, registry prometheus.Registerer) (*Failures, error) {
	t := &Failures{logger: logger, recorder: recorder, calls: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "belfry_refused_calls_total", Help: "Calls refused because of their token, by reason: unauthenticated or " +
			"forbidden.",
	}, []string{"reason"})}
	for _, reason := range []string{"unauthenticated", "forbidden"} {
		t.calls.WithLabelValues(reason)
	}
	if err := registry.Register(t.calls); err != nil {
		return nil, fmt.Errorf("registering the metrics of refused calls: %w", err)
	}
	return t, nil
}

// addUnauthenticated counts a request without a valid token. who is the caller that the token
// names; nil if the request has no well-formed token.
func (t *Failures) addUnauthenticated(r *http.Request, who *caller, f *fault.Error) {
	if f.Reason == belfryv1.Reason_REASON_UNAUTHENTICATED {
		c := &Call{Procedure: tokens.Mask(r.URL.Path), Address: r.RemoteAddr, ID: r.Header.Get(CallIDHeader)}
		t.count(c, f)
		t.auditLine(&t.unauthenticated, newAuditRecord(who, c, f.Code().String()+": "+f.Message))
	}
}

// auditCall records a refused call of an authenticated caller, unless there were too many lately.
// The next record then says how many calls have none. more has further attributes of the log line.
func (t *Failures) auditCall(r *belfryv1.AuditRecord, more ...any) { t.auditLine(&t.known, r, more...) }

// auditLine records a refused call if the limiter allows it.
func (t *Failures) auditLine(of *auditLimiter, r *belfryv1.AuditRecord, more ...any) {
	t.mu.Lock()
	unsaid, ok := of.line(time.Now())
	t.mu.Unlock()
	if !ok {
		return
	}
	r.Outcome = fault.Clip(r.Outcome, fault.QuotedBytesMax)
	r.Unrecorded = uint32(unsaid) //nolint:gosec // far fewer than 2³²
	t.recorder.record(r, append(more, slog.Int("unsaid", unsaid))...)
}

// RefusedEntries counts the entries of a call that were refused for want of a scope while the
// others were carried out. Queue is the queue of the first.
type RefusedEntries struct {
	Count int
	Queue string
}

// Add counts a refused entry that names a queue.
func (r *RefusedEntries) Add(queue string) {
	if r.Count++; r.Count == 1 {
		r.Queue = queue
	}
}

// AuditEntries makes one record of the refused entries of a call.
func (t *Failures) AuditEntries(ctx context.Context, procedure string, r RefusedEntries) {
	who, ok := ctx.Value(callerKey{}).(*caller)
	if !ok {
		return // such a call was refused as a whole
	}
	record := newAuditRecord(who, &Call{Procedure: procedure, Address: who.address, ID: who.requestID},
		connect.CodePermissionDenied.String()+": the token does not allow it")
	record.RefusedEntries = uint32(r.Count) //nolint:gosec // entries of one request
	record.Queue = readable(fault.Clip(tokens.Mask(r.Queue), fault.QuotedBytesMax))
	t.auditCall(record, slog.Int("entries", r.Count), slog.String("queue", record.Queue))
}

// CountCall counts a call that has ended if it was refused for want of a token or of a scope.
func (t *Failures) CountCall(c *Call, f *fault.Error) {
	if f.Reason == belfryv1.Reason_REASON_UNAUTHENTICATED || f.Reason == belfryv1.Reason_REASON_FORBIDDEN {
		t.count(c, f)
	}
}

// count counts a refused call, and logs the sum at most once in failureLogPeriod.
func (t *Failures) count(c *Call, f *fault.Error) {
	reason := "unauthenticated"
	if f.Reason == belfryv1.Reason_REASON_FORBIDDEN {
		reason = "forbidden"
	}
	t.calls.WithLabelValues(reason).Inc()
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since++
	if now.Sub(t.said) < failureLogPeriod {
		return
	}
	t.logger.Warn("calls were refused", slog.Int("calls", t.since), slog.String("address", c.Address),
		slog.String("procedure", fault.Clip(c.Procedure, fault.QuotedBytesMax)),
		slog.String("last", tokens.Mask(f.Message)))
	t.said, t.since = now, 0
}
