package sim

import (
	"fmt"
	"io"
)

// trace is the running hash over everything that happens, and its text for readers.
type trace struct {
	hash uint64
	text io.Writer // nil without a reader
}

// mark adds an event to the hash.
func (t *trace) mark(what string, values ...uint64) {
	for i := range len(what) {
		t.mix(uint64(what[i]))
	}
	for _, v := range values {
		t.mix(v)
	}
}

// mix is a step of a multiply-and-rotate hash. It need not be strong: it tells worlds apart that
// came apart by accident.
func (t *trace) mix(v uint64) {
	t.hash = (t.hash ^ v) * 0x9e3779b97f4a7c15
	t.hash ^= t.hash >> 29
}

// told reports whether anyone reads, so that the text is made only then.
func (t *trace) told() bool { return t.text != nil }

// say writes a line. What it says does not enter the hash.
func (t *trace) say(format string, args ...any) {
	_, _ = fmt.Fprintf(t.text, format+"\n", args...) // a reader that is gone does not change the world
}
