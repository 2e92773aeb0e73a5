package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Status is what one node said of the cluster when it was asked for GetCluster.
type Status struct {
	Node string `json:"node"`
	// Asked and Answered are when the question was sent and when it ended, as those of an Op.
	Asked    time.Duration `json:"askedNs"`
	Answered time.Duration `json:"answeredNs"`
	// Problems are those of the answer. Failure says why there was no answer; empty if there was one.
	Problems []string `json:"problems,omitempty"`
	Failure  string   `json:"failure,omitempty"`
}

// AddStatus adds an answered question, or one that failed. It may be called from any goroutine.
func (h *History) AddStatus(s Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.statuses = append(h.statuses, s)
}

// Statuses returns all of them in the order in which they were asked.
func (h *History) Statuses() []Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Clone(h.statuses)
	slices.SortStableFunc(all, func(a, b Status) int { return cmp.Compare(a.Asked, b.Asked) })
	return all
}

// WriteStatuses writes them as lines of JSON.
func (h *History) WriteStatuses(w io.Writer) error {
	lines := json.NewEncoder(w)
	for _, s := range h.Statuses() {
		if err := lines.Encode(s); err != nil {
			return fmt.Errorf("writing the statuses: %w", err)
		}
	}
	return nil
}

// ReadStatuses adds what WriteStatuses wrote.
func (h *History) ReadStatuses(r io.Reader) error {
	in := json.NewDecoder(bufio.NewReader(r))
	in.DisallowUnknownFields()
	for {
		var s Status
		err := in.Decode(&s)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: status %d: %w", ErrDamaged, len(h.statuses)+1, err)
		}
		h.AddStatus(s)
	}
}
