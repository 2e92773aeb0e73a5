package node

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	// refusalPeriod is how long the same refusal is not logged again: a peer that looks for an earlier life of this node tries several times a
	// second, for each group.
	refusalPeriod = time.Minute
	// refusalsMax bounds the refusals that are remembered.
	refusalsMax = 256
)

// passing is a refusal that is ordinary while a group or a node starts or stops: the peer tries again.
type passing struct{ error }

// refusalLevel returns how loud a refusal is. That a peer went before it was answered is as ordinary as passing.
func refusalLevel(err error) slog.Level {
	_, starts := errors.AsType[passing](err)
	_, broke := errors.AsType[*net.OpError](err)
	if starts || broke || errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// refusals remembers which refusals of connections were logged lately.
type refusals struct {
	mu   sync.Mutex
	said map[string]time.Time
}

// fresh reports whether a refusal was not logged lately, and takes it for logged.
func (r *refusals) fresh(from net.Addr, why error) bool {
	host, _, err := net.SplitHostPort(from.String())
	if err != nil {
		host = from.String()
	}
	now, what := time.Now(), host+" "+why.Error()
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
