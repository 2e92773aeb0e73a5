package requestid

import (
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// idTime reads the time out of a request id, and checks its form.
func idTime(t *testing.T, id string) time.Time {
	t.Helper()
	raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(id) != 36 || len(raw) != 16 || id[14] != '7' || !strings.Contains("89ab", id[19:20]) {
		t.Fatalf("request id %q is no UUID of version 7", id)
	}
	var ms int64
	for _, b := range raw[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms)
}

func TestRequestIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock Clock
		seen := make(map[string]bool)
		for range 1000 {
			id := clock.NewID()
			if at := idTime(t, id); !at.Equal(time.Now().Truncate(time.Millisecond)) {
				t.Fatalf("id of %v at %v", at, time.Now())
			}
			if seen[id] {
				t.Fatalf("id %s came twice", id)
			}
			seen[id] = true
		}
	})
}

func TestClockFollowsTheServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock Clock
		for _, try := range []struct {
			date string
			want time.Duration
		}{
			{time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), time.Hour},
			{"yesterday", time.Hour}, // not a date: as before
			{time.Now().Add(-7 * time.Minute).UTC().Format(http.TimeFormat), -7 * time.Minute},
			{time.Now().Add(4 * time.Second).UTC().Format(http.TimeFormat), 0}, // little enough to leave alone
		} {
			clock.Observe(time.Now(), http.Header{"Date": {try.date}})
			got := time.Duration(clock.skew.Load())
			if diff := (got - try.want).Abs(); diff > 10*time.Second {
				t.Errorf("after %s the skew is %v, want about %v", try.date, got, try.want)
			}
		}
	})
}

// An answer that was held up for longer than its server took to write it says nothing about clocks.
func TestHeldUpAnswerIsNoSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock Clock
		for _, skew := range []time.Duration{0, time.Hour, -time.Hour} {
			header := http.Header{"Date": {time.Now().Add(skew).UTC().Format(http.TimeFormat)}}
			clock.Observe(time.Now(), header)
			before := clock.Ahead()
			if diff := (before - skew).Abs(); diff > datePrecision {
				t.Errorf("the skew is %v, want %v", before, skew)
			}
			sent := time.Now()
			time.Sleep(time.Minute)
			clock.Observe(sent, header) // of the minute before, as it stood in the socket
			if clock.Ahead() != before {
				t.Errorf("an answer held up for a minute moved the skew from %v to %v", before, clock.Ahead())
			}
		}
	})
}

// TestSetForwardSince: an id is outdated only if the servers' clock was set forward, not because
// time went on. was set further meanwhile.
func TestSetForwardSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock Clock
		id := clock.NewID()
		if clock.SetForwardSince(id) || clock.SetForwardSince("") || clock.SetForwardSince(strings.Repeat("x", 36)) {
			t.Error("an id is to be renewed once")
		}
		time.Sleep(idWindow)
		if clock.SetForwardSince(id) {
			t.Error("an id is renewed because time went on")
		}
		clock.Observe(time.Now(), http.Header{"Date": {time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}})
		if !clock.SetForwardSince(id) || clock.SetForwardSince(clock.NewID()) {
			t.Error("the servers' clock was set further, and the id is not renewed, or is for ever")
		}
	})
}
