package login

import (
	"testing"
	"time"
)

// TestSessionsEnd: a cookie has its token for twelve hours, at every node with the same secret.
func TestSessionsEnd(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	sessions := func(secret string) *Sealer {
		s, err := NewSealer([]byte(secret), func() time.Time { return now })
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one, same, other, random := sessions("secret"), sessions("secret"), sessions("another"), sessions("")
	cookie := one.Seal("token")
	now = now.Add(Life - time.Second)
	for what, got := range map[string][2]string{
		"the node":              {one.Open(cookie), "token"},
		"one with its secret":   {same.Open(cookie), "token"},
		"one with another":      {other.Open(cookie), ""},
		"one with a random one": {random.Open(cookie), ""},
		"two that are random":   {sessions("").Open(random.Seal("token")), ""},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %q, want %q", what, got[0], got[1])
		}
	}
	now = now.Add(time.Second)
	if got := one.Open(cookie); got != "" {
		t.Errorf("after twelve hours: %q", got)
	}
}
