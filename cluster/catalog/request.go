package catalog

import (
	"context"
	"slices"
	"time"
)

const (
	// requestWindow is how long the outcome of a request is remembered. answersMax bounds the
	// remembered outcomes; the oldest is dropped first.
	requestWindow = 5 * time.Minute
	answersMax    = 10_000
)

// request makes a command safe to repeat.
type request struct {
	ID string `json:"id"`
	// Content distinguishes a repeat from another command under the same id.
	Content string `json:"content"`
	// At is the proposer's wall clock.
	At int64 `json:"atNanos"`
}

// answer is a remembered outcome: the record as it was then.
type answer struct {
	Request request     `json:"request"`
	Queue   queueRecord `json:"queue"`
}

// RequestError says that a request id was used before with other content. Nothing was changed.
type RequestError struct{ ID string }

// Error returns the id and the fault.
func (e *RequestError) Error() string {
	return "request " + e.ID + " was made before with other content"
}

// OtherContent returns the request id to the public edge, which does not import this package.
func (e *RequestError) OtherContent() string { return e.ID }

// ForRequest returns the catalog for one caller's request. CreateQueue and UpdateQueue calls that
// succeeded under the same id return the same result again. Their outcomes are remembered for 5
// minutes. A call fails with a RequestError if the content differs.
func (c *Catalog) ForRequest(id, content string) *Catalog {
	bound := *c
	bound.request = &request{ID: id, Content: content}
	return &bound
}

// recall returns the remembered outcome of the request that c is bound to.
func (c *Catalog) recall() (q QueueConfig, remembered bool, err error) {
	if c.request == nil {
		return QueueConfig{}, false, nil
	}
	c.view(func(m *machine) {
		a := m.byID[c.request.ID]
		switch {
		case a == nil || time.Now().UnixNano()-a.Request.At > int64(requestWindow):
		case a.Request.Content != c.request.Content:
			err = &RequestError{c.request.ID}
		default:
			q, remembered = a.Queue.config(), true
		}
	})
	return q, remembered, err
}

// proposeOnce is propose for a command that the request c is bound to makes safe to repeat.
func (c *Catalog) proposeOnce(ctx context.Context, cmd command) (outcome, error) {
	if c.request != nil {
		stamped := *c.request
		stamped.At = time.Now().UnixNano()
		cmd.Request = &stamped
	}
	out, err := c.propose(ctx, cmd)
	if err == nil && out.verdict == misused {
		return outcome{}, &RequestError{c.request.ID}
	}
	return out, err
}

// once applies a command unless its request was applied before, and remembers the outcome.
func (m *machine) once(r *request, apply func() outcome) outcome {
	if r == nil {
		return apply()
	}
	m.state.Clock = max(m.state.Clock, r.At)
	m.sweep()
	if known := m.byID[r.ID]; known != nil {
		if known.Request.Content != r.Content {
			return outcome{verdict: misused}
		}
		return outcome{queue: known.Queue.config(), replayed: true}
	}
	out := apply()
	if out.verdict == done {
		a := &answer{Request: request{ID: r.ID, Content: r.Content, At: m.state.Clock}, Queue: *m.byName[out.queue.Name]}
		a.Queue.Settings = settingsRecord(out.queue.Settings) // config made a copy
		m.byID[r.ID], m.state.Answers = a, append(m.state.Answers, a)
	}
	return out
}

// sweep removes answers that are too old, and the oldest ones if there are too many.
func (m *machine) sweep() {
	keep := 0
	for keep < len(m.state.Answers) && m.state.Answers[keep].Request.At < m.state.Clock-int64(requestWindow) {
		keep++
	}
	keep = max(keep, len(m.state.Answers)-answersMax+1)
	for _, a := range m.state.Answers[:max(0, keep)] {
		delete(m.byID, a.Request.ID)
	}
	m.state.Answers = slices.Delete(m.state.Answers, 0, max(0, keep))
}
