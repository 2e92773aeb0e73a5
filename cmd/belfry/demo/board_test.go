package demo

import (
	"strings"
	"testing"
	"time"
)

// TestCheck finds each way in which a story can go wrong.
func TestCheck(t *testing.T) {
	good := func() *board {
		b := newBoard(time.Now(), storyLength)
		b.cast("kettle", "soon")
		b.note(event{job: "kettle", is: wasPut, due: time.Second})
		b.note(event{job: "kettle", is: rang, late: time.Millisecond})
		b.note(event{job: "kettle", is: wasDone})
		b.gather(1)
		b.ring(time.Second, 0)
		return b
	}
	for _, test := range []struct {
		name  string
		spoil func(*board)
		says  string
	}{
		{"nothing", func(*board) {}, ""},
		{"a ring at its time", func(b *board) { b.count(0) }, ""},
		{"an early ring", func(b *board) { b.count(-time.Nanosecond) }, "1 jobs rang before their time"},
		{"a job of the choir is missing", func(b *board) { b.gather(3) }, "2 did not ring once"},
		{"a job of the choir rang twice", func(b *board) { b.ring(0, 0) }, "-1 did not ring once"},
		{"a job never came", func(b *board) { b.cast("lost", "") }, "lost did not come to its end"},
		{"a job is still held", func(b *board) { b.note(event{job: "kettle", is: rang}) }, "kettle did not come to its end"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := good()
			test.spoil(b)
			err := b.check()
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %q", err, test.says)
			}
		})
	}
}

// TestRepeatedPutKeepsTheDueTime: an event that changes nothing must not take the next ring off the
// picture.
func TestRepeatedPutKeepsTheDueTime(t *testing.T) {
	b := newBoard(time.Now(), storyLength)
	b.cast("invoice", "")
	b.note(event{job: "invoice", is: wasPut, due: time.Second})
	b.note(event{job: "invoice", is: wasPutAgain})
	b.note(event{job: "a job of nobody", is: wasPut})
	v := b.view(time.Now())
	if last, _ := v.lanes[0].last(); last.due != time.Second || len(v.log) != 2 {
		t.Errorf("the last event is %+v, the log %v", last, v.log)
	}
}

func TestQuantile(t *testing.T) {
	late := []time.Duration{4, 1, 3, 2}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 4, 1: 4} {
		if got := quantile(late, q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}
