package ui

import (
	"errors"
	"time"

	"connectrpc.com/connect"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/belfrydb/belfry/rpc/ui/format"
)

func (l *queueList) mark(c format.Clock) g.Node { return staleMark(l.stale, l.asOf, c) }

// staleMark says that the figures of a page are those of replicas, because a shard has no leader,
// and how old the oldest of them is; nothing if they are not.
func staleMark(stale bool, asOf time.Time, c format.Clock) g.Node {
	if !stale {
		return nil
	}
	text := "A shard has no leader. The figures are those of its replicas"
	if !asOf.IsZero() {
		text += ", and up to " + format.Span(max(c.Now.Sub(asOf), 0)) + " old"
	}
	return h.P(h.Class("warning"), h.Role("status"), g.Text(text+"."))
}

// unavailable reports whether a read failed because a shard has no leader that answers, so that
// replicas may be asked instead.
func unavailable(err error) bool { return connect.CodeOf(err) == connect.CodeUnavailable }

// forbidden reports whether the person's token does not allow a call.
func forbidden(err error) bool {
	var failure *connect.Error
	return errors.As(err, &failure) && failure.Code() == connect.CodePermissionDenied
}
