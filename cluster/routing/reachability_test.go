package routing

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestOneAnswerIsNoObjection: a node objects once two answers in a row, a while apart, have said
// that it does not reach this one, and until one says no more.
func TestOneAnswerIsNoObjection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReachability("a.1", nil)
		known := c.peer("b.1")
		for i, step := range []struct {
			after     time.Duration
			unreached []string
			objects   bool
		}{
			{0, []string{"a.1"}, false},
			{ProbeInterval / 10, []string{"a.1"}, false},
			{ProbeInterval, nil, false},
			{ProbeInterval, []string{"a.1"}, false},
			{ProbeInterval, []string{"a.1", "c.1"}, true},
			{ProbeInterval, []string{"a.1"}, true},
			{ProbeInterval, []string{"c.1"}, false},
			{ProbeInterval, []string{"a.1"}, false},
		} {
			time.Sleep(step.after)
			c.recordProbe(known, reachAnswer{Unreached: step.unreached}, nil)
			if got := c.Objectors(); slices.Contains(got, "b.1") != step.objects {
				t.Errorf("after answer %d %q object", i, got)
			}
		}
	})
}

// TestSlowAnswerIsNotSuspect: calls go through a relay after one probe that was refused, or after
// two in a row without an answer in time.
func TestSlowAnswerIsNotSuspect(t *testing.T) {
	late, refused := &url.Error{Op: "Post", Err: context.DeadlineExceeded}, errors.New("connection refused")
	for _, tt := range []struct {
		name  string
		ends  []error
		doubt bool
	}{
		{"late", []error{late}, false},
		{"late twice", []error{late, late}, true},
		{"late, answered, late", []error{late, nil, late}, false},
		{"refused", []error{refused}, true},
		{"refused, then late", []error{refused, late}, true},
		{"refused, then answered", []error{refused, nil}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newReachability("a.1", nil)
				known := c.peer("b.1")
				for _, err := range tt.ends {
					c.recordProbe(known, reachAnswer{}, err)
				}
				time.Sleep(relayAfter)
				if got := c.isSuspect("b.1"); got != tt.doubt {
					t.Errorf("suspect: %v", got)
				}
			})
		})
	}
}
