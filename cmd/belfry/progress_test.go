package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// clock is a time that tests move.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func TestProgressOnATerminal(t *testing.T) {
	var out bytes.Buffer
	c := &clock{now}
	p := newProgress(&system{err: &out, errTerminal: true, now: c.now}, 1000)
	p.update(10, 100) // too soon to be shown
	c.at = c.at.Add(time.Second)
	p.update(2500, 250)
	p.end()
	want := clearLine + "███████▌░░░░░░░░░░░░░░░░░░░░░░  25 %  2,500 jobs  2,500/s  3s left" + clearLine
	if out.String() != want {
		t.Errorf("wrote %q, want %q", out.String(), want)
	}
}

func TestProgressElsewhere(t *testing.T) {
	var out bytes.Buffer
	c := &clock{now}
	p := newProgress(&system{err: &out, now: c.now}, 0)
	for range 12 {
		c.at = c.at.Add(time.Second)
		p.update(1000, 10)
	}
	p.end()
	if want := "1,000 jobs  200/s\n1,000 jobs  100/s\n"; out.String() != want {
		t.Errorf("wrote %q, want a plain line every 5 seconds: %q", out.String(), want)
	}
}

func TestBar(t *testing.T) {
	for _, test := range []struct {
		share float64
		want  string
	}{
		{0, strings.Repeat("░", 30)},
		{1, strings.Repeat("█", 30)},
		{0.5, strings.Repeat("█", 15) + strings.Repeat("░", 15)},
		{1.0 / 240, "▏" + strings.Repeat("░", 29)},
	} {
		if got := bar(test.share); got != test.want {
			t.Errorf("bar(%v) = %q, want %q", test.share, got, test.want)
		}
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("grouped(%d) = %q, want %q", n, got, want)
		}
	}
}
