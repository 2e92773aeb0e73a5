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

// Passage is a payload that came to Redis or left it, by the hand of a process of Redisson.
type Passage struct {
	// Client is the process, Queue the name of the queue, which is the same in Redis and in Belfry.
	Client  string `json:"client"`
	Queue   string `json:"queue"`
	Payload []byte `json:"payload"`
	// Taken says that it was taken from the ready list; else it was offered, to be due at Due.
	Taken bool      `json:"taken,omitempty"`
	Due   time.Time `json:"due,omitzero"`
	// Invoked and Returned are when that began and ended, as those of an Op.
	Invoked  time.Duration `json:"invokedNs"`
	Returned time.Duration `json:"returnedNs"`
	// Unknown says that Redis did not answer the offer: it is there, or not.
	Unknown bool `json:"unknown,omitempty"`
}

// Pass takes a passage that has ended.
func (h *History) Pass(p Passage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.passages = append(h.passages, p)
}

// Passages returns all passages in the order in which they ended.
func (h *History) Passages() []Passage {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Clone(h.passages)
	slices.SortStableFunc(all, func(a, b Passage) int { return cmp.Compare(a.Returned, b.Returned) })
	return all
}

// WritePassages writes them as lines of JSON.
func (h *History) WritePassages(w io.Writer) error {
	lines := json.NewEncoder(w)
	for _, p := range h.Passages() {
		if err := lines.Encode(p); err != nil {
			return fmt.Errorf("writing the passages: %w", err)
		}
	}
	return nil
}

// ReadPassages adds what WritePassages wrote.
func (h *History) ReadPassages(r io.Reader) error {
	in := json.NewDecoder(bufio.NewReader(r))
	in.DisallowUnknownFields()
	for {
		var p Passage
		err := in.Decode(&p)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: passage %d: %w", ErrDamaged, len(h.passages)+1, err)
		}
		h.Pass(p)
	}
}
