package ui

import (
	"testing"
	"time"
)

// TestSessionsEnd: a cookie has its token for twelve hours, at every node with the same secret.
func TestSessionsEnd(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	sessions := func(secret string) *Sessions {
		s, err := NewSessions([]byte(secret), func() time.Time { return now })
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one, same, other, random := sessions("secret"), sessions("secret"), sessions("another"), sessions("")
	cookie := one.seal("token")
	now = now.Add(sessionLife - time.Second)
	for what, got := range map[string][2]string{
		"the node":              {one.open(cookie), "token"},
		"one with its secret":   {same.open(cookie), "token"},
		"one with another":      {other.open(cookie), ""},
		"one with a random one": {random.open(cookie), ""},
		"two that are random":   {sessions("").open(random.seal("token")), ""},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %q, want %q", what, got[0], got[1])
		}
	}
	now = now.Add(time.Second)
	if got := one.open(cookie); got != "" {
		t.Errorf("after twelve hours: %q", got)
	}
}
