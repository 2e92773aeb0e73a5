package bridge

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// TestQueueName: a name that the server would refuse is refused before it is up.
func TestQueueName(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		"orders": true, "a/b:c-d_e.f": true, "": false, "a/": false, "a/..": false, strings.Repeat("a", 256): true,
		strings.Repeat("a", 257): false,
	} {
		if queueName(name) != good {
			t.Errorf("queueName(%q) is %v", name, !good)
		}
	}
}

// TestWarnings: why a bridge waits is logged once, until that changes.
func TestWarnings(t *testing.T) {
	t.Parallel()
	said := &bytes.Buffer{}
	warn := warnings(slog.New(slog.NewTextHandler(said, nil)))
	for _, why := range []string{"full", "full", "away", "away", "full"} {
		warn(errors.New(why))
	}
	if n := strings.Count(said.String(), "level=WARN"); n != 3 || strings.Count(said.String(), "why=full") != 2 {
		t.Errorf("it logged %q", said)
	}
}
