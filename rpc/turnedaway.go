package rpc

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// turnedAwayPeriod is how long the log says nothing more of refused calls after it has.
const turnedAwayPeriod = 10 * time.Second

// turnedAway counts calls that were refused for want of a token or of a scope, and says so in the log now and then: whoever tries tokens does not fill it.
type turnedAway struct {
	logger *slog.Logger
	calls  *prometheus.CounterVec

	mu    sync.Mutex
	said  time.Time
	since int // refused since then
}

// newTurnedAway registers the counter.
func newTurnedAway(logger *slog.Logger, registry prometheus.Registerer) (*turnedAway, error) {
	t := &turnedAway{logger: logger, calls: prometheus.NewCounterVec(prometheus.CounterOpts{
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

// unknown counts a request whose caller could not be told.
func (t *turnedAway) unknown(address string, f *Fault) {
	if f.Reason == belfryv1.Reason_REASON_UNAUTHENTICATED {
		t.count(address, "", f)
	}
}

// call counts the end of a call if it was a refusal.
func (t *turnedAway) call(procedure string, f *Fault) {
	if f.Reason == belfryv1.Reason_REASON_UNAUTHENTICATED || f.Reason == belfryv1.Reason_REASON_FORBIDDEN {
		t.count("", procedure, f)
	}
}

func (t *turnedAway) count(address, procedure string, f *Fault) {
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
	t.logger.Warn("calls were refused", slog.Int("calls", t.since), slog.String("address", address), slog.String("procedure", procedure),
		slog.String("last", f.Message))
	t.said, t.since = now, 0
}
