package soak

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// violationsMax is how many violations of one schedule are kept: the first few say what is wrong.
const violationsMax = 20

// operation is one request of a client with all its attempts.
type operation struct {
	client  string
	request *fsm.Request
	// invoked and returned are in true time, of the first attempt and of the last.
	invoked, returned time.Duration
	outcome           node.Outcome
	reply             node.Reply
}

// entry is an entry of a group as the first node that applied it saw it.
type entry struct {
	group   string
	term    uint64
	index   uint64
	data    []byte
	sum     uint32
	digest  uint64
	at      time.Duration // in true time
	who     string
	applied int // by how many lives
}

// token is an entry that a client of the catalog proposed.
type token struct {
	value   uint64
	outcome node.Outcome
	index   uint64
}

// history is all that was seen of one schedule.
type history struct {
	start time.Time

	mu         sync.Mutex
	operations []*operation
	tokens     []token
	entries    map[string]map[uint64]*entry // by group and index
	leaders    map[string]map[uint64]string // by group and term
	violations []string
	counts     map[string]int
	narrative  []string
}

func newHistory() *history {
	return &history{
		start: time.Now(), counts: map[string]int{}, leaders: map[string]map[uint64]string{catalogGroup: {}, shardGroup: {}},
		entries: map[string]map[uint64]*entry{catalogGroup: {}, shardGroup: {}},
	}
}

// now returns the true time since the start.
func (h *history) now() time.Duration { return time.Since(h.start) }

// endLife ends a life for the history: what comes from it later is not heard.
func (h *history) endLife(l *life) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.ended = true
}

// heard reports whether what a life just said was said before its end.
func (h *history) heard(l *life) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !l.ended
}

// add takes what became of an operation.
func (h *history) add(o *operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, o)
}

// addToken takes what became of a proposal to the catalog.
func (h *history) addToken(t token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tokens = append(h.tokens, t)
}

// violated notes that something is not as it must be.
func (h *history) violated(invariant, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violatedLocked(invariant, format, args...)
}

func (h *history) violatedLocked(invariant, format string, args ...any) {
	h.counts["violations"]++
	if len(h.violations) < violationsMax {
		h.violations = append(h.violations,
			fmt.Sprintf("%10.3fs %s: %s", h.now().Seconds(), invariant, fmt.Sprintf(format, args...)))
	}
}

// count counts something that happened.
func (h *history) count(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[what]++
}

// narrate records an action on the cluster, for the reader of a violation.
func (h *history) narrate(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.narrative = append(h.narrative, fmt.Sprintf("%10.3fs ", h.now().Seconds())+fmt.Sprintf(format, args...))
}

// applied gets each entry that a life applied. An index has one entry, and one state after it, on
// all nodes and however often it is applied.
func (h *history) applied(l *life, group string, e node.AppliedEntry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.ended {
		return
	}
	sum := crc32.ChecksumIEEE(e.Entry)
	known := h.entries[group][e.Index]
	if known == nil {
		h.entries[group][e.Index] = &entry{
			group: group, term: e.Term, index: e.Index, data: slices.Clone(e.Entry), sum: sum, digest: e.Digest, at: h.now(),
			who: l.name, applied: 1,
		}
		return
	}
	known.applied++
	if known.term != e.Term || known.sum != sum {
		h.violatedLocked("a committed entry is final",
			"entry %d of %s was applied with term %d and sum %08x by %s, with term %d and sum %08x by %s",
			e.Index, group, known.term, known.sum, known.who, e.Term, sum, l.name)
	} else if known.digest != e.Digest {
		h.violatedLocked("equal digests at an equal index", "after entry %d of %s %s has digest %016x, %s has %016x",
			e.Index, group, known.who, known.digest, l.name, e.Digest)
	}
}

// elected is told who won an election.
func (h *history) elected(l *life, group string, term uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.ended {
		return
	}
	h.counts["elections"]++
	if other := h.leaders[group][term]; other != "" && other != l.name {
		h.violatedLocked("one leader a term", "in term %d of %s %s and %s were elected", term, group, other, l.name)
	}
	h.leaders[group][term] = l.name
}

// sorted returns the entries of a group in order.
func (h *history) sorted(group string) []*entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Collect(maps.Values(h.entries[group]))
	slices.SortFunc(list, func(a, b *entry) int { return compare(a.index, b.index) })
	return list
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// listenerToLogs is a slog.Handler that hears of elections, and writes a trace if one is wanted.
type listenerToLogs struct {
	history *history
	life    *life
	group   string
	trace   io.Writer
}

// Enabled implements slog.Handler.
func (*listenerToLogs) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (l *listenerToLogs) Handle(_ context.Context, r slog.Record) error {
	switch {
	case r.Message == "raft: election won":
		var term uint64
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "term" {
				term = a.Value.Resolve().Uint64()
			}
			return true
		})
		l.history.elected(l.life, l.group, term)
	case r.Message == "restarting the group":
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "reason" {
				l.history.count("groups restarted: " + a.Value.String())
			}
			return true
		})
	case r.Message == "snapshot taken":
		l.history.count("snapshots taken")
	case strings.HasPrefix(r.Message, "raft: installed remote snapshot"),
		strings.HasPrefix(r.Message, "raft: Installed remote snapshot"):
		l.history.count("snapshots installed")
	}
	if l.trace == nil {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%10.3fs %s#%d %s %s", l.history.now().Seconds(), l.life.name, l.life.number, l.group, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	b.WriteByte('\n')
	_, err := io.WriteString(l.trace, b.String())
	return err
}

// oneAtATime is a writer for many goroutines.
type oneAtATime struct {
	mu sync.Mutex
	to io.Writer
}

// Write implements io.Writer.
func (w *oneAtATime) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

// WithAttrs implements slog.Handler.
func (l *listenerToLogs) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *l
	for _, a := range attrs {
		if a.Key == "group" {
			next.group = a.Value.String()
		}
	}
	return &next
}

// WithGroup implements slog.Handler.
func (l *listenerToLogs) WithGroup(string) slog.Handler { return l }
