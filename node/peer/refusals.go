package peer

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	// refusalPeriod is the time in which the same refusal is logged once. A peer that looks for an
	// earlier incarnation of this node tries several times a second, for each group.
	refusalPeriod = time.Minute
	// refusalsMax bounds the refusals that are remembered.
	refusalsMax = 256
)

// passing is a refusal that is normal while a group or a node stops, or while there are many
// handshakes. The peer tries again.
type passing struct{ error }

// refusedError is a greeting that was refused by the server self.
type refusedError struct {
	verdict verdict
	hello   greeting
	self    string
}

func (e *refusedError) Error() string {
	if e.seeksEarlierLife() {
		return fmt.Sprintf("it looks for an earlier life of this node, which is %s now: %s", e.self, e.hello)
	}
	return fmt.Sprintf("%s: %s", e.verdict, e.hello)
}

// seeksEarlierLife reports whether the peer looks for this node as it was before its data directory
// was replaced.
func (e *refusedError) seeksEarlierLife() bool {
	receiver, _, _ := strings.Cut(e.hello.receiver, ".")
	self, _, _ := strings.Cut(e.self, ".")
	return e.verdict == refusedReceiver && receiver == self
}

// reason describes a refusal without its group: a node dials another one for each of its groups.
func (e *refusedError) reason() string {
	alike := e.hello
	alike.group = ""
	return fmt.Sprintf("%s: %s", e.verdict, alike)
}

// refusalLevel returns the log level of a refusal. A passing refusal is routine, as are a peer that
// leaves before it has its answer and one that asks for a group that has not started. Peers look
// for an earlier incarnation of this node until they know that it is gone; operators need not act
// on that.
func refusalLevel(err error) slog.Level {
	_, stops := errors.AsType[passing](err)
	_, broke := errors.AsType[*net.OpError](err)
	refused, _ := errors.AsType[*refusedError](err)
	switch {
	case stops, broke, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe),
		errors.Is(err, net.ErrClosed), refused != nil && refused.verdict == refusedGroup:
		return slog.LevelDebug
	case refused != nil && refused.seeksEarlierLife():
		return slog.LevelInfo
	default:
		return slog.LevelWarn
	}
}

// refusals remembers which refusals and closed connections were logged recently.
type refusals struct {
	mu   sync.Mutex
	said map[string]time.Time
}

// noteChanged counts a connection whose data was changed in transit, and logs it unless the same
// was logged recently.
func (m *Mux) noteChanged(conn *trackedConn, err error) {
	m.changed.Add(1)
	if from := conn.RemoteAddr(); m.refusals.fresh(from, err) {
		m.cfg.Logger.Warn("a peer's connection was ended", "peer", conn.peer, "group", conn.group, "address", from.String(),
			"error", err)
	}
}

// fresh reports whether a refusal was not logged recently, and records it as logged.
func (r *refusals) fresh(from net.Addr, why error) bool {
	host, _, err := net.SplitHostPort(from.String())
	if err != nil {
		host = from.String()
	}
	now, what := time.Now(), host+" "+why.Error()
	if refused, ok := errors.AsType[*refusedError](why); ok {
		what = host + " " + refused.reason()
	}
	if otherwise, ok := errors.AsType[*changedError](why); ok {
		what = host + " " + otherwise.what
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.said[what]; ok && now.Sub(last) < refusalPeriod {
		return false
	}
	if r.said == nil || len(r.said) >= refusalsMax {
		r.said = map[string]time.Time{}
	}
	r.said[what] = now
	return true
}
