package cli

import (
	"bytes"
	"testing"
	"time"
)

// clock is a time that tests move.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func TestProgressOnATerminal(t *testing.T) {
	var out bytes.Buffer
	c := &clock{time.Date(2030, 1, 31, 9, 0, 0, 0, time.UTC)}
	p := NewProgress(&System{Err: &out, ErrTerminal: true, Now: c.now}, 1000)
	p.Update(10, 100) // too soon to be shown
	c.at = c.at.Add(time.Second)
	p.Update(2500, 250)
	p.End()
	want := ClearLine + "███████▌░░░░░░░░░░░░░░░░░░░░░░  25 %  2,500 jobs  2,500/s  3s left" + ClearLine
	if out.String() != want {
		t.Errorf("wrote %q, want %q", out.String(), want)
	}
}

func TestProgressElsewhere(t *testing.T) {
	var out bytes.Buffer
	c := &clock{time.Date(2030, 1, 31, 9, 0, 0, 0, time.UTC)}
	p := NewProgress(&System{Err: &out, Now: c.now}, 0)
	for range 12 {
		c.at = c.at.Add(time.Second)
		p.Update(1000, 10)
	}
	p.End()
	if want := "1,000 jobs  200/s\n1,000 jobs  100/s\n"; out.String() != want {
		t.Errorf("wrote %q, want a plain line every 5 seconds: %q", out.String(), want)
	}
}
