package spelling_test

import (
	"strings"
	"testing"

	"github.com/belfrydb/belfry/rpc/spelling"
)

func TestNearest(t *testing.T) {
	fields := []string{"queue", "id", "delay", "dueAt", "ttr", "priority", "maxAttempts", "retryDelays", "ttl",
		"requestId"}
	for word, want := range map[string]string{
		"dealy": "delay", "delya": "delay", "Delay": "delay", "que": "queue", "max_attempts": "maxAttempts",
		"maxattempts": "maxAttempts",
		"request_id":  "requestId", "tttl": "ttl", "xyzzy": "", "": "", "completelyDifferent": "", "prioritty": "priority",
		strings.Repeat("delay", 20): "",
	} {
		if got := spelling.Nearest(word, fields); got != want {
			t.Errorf("Nearest(%q) = %q; want %q", word, got, want)
		}
	}
}

func TestEdits(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"a", "", 1},
		{"", "ab", 2},
		{"delay", "dealy", 1},
		{"kitten", "sitting", 3},
		{"abc", "abc", 0},
		{"ab", "ba", 1},
		{"ca", "abc", 3},
	} {
		if got := spelling.Edits(c.a, c.b); got != c.want {
			t.Errorf("Edits(%q, %q) = %d; want %d", c.a, c.b, got, c.want)
		}
	}
}
