package main

import (
	"strings"
	"testing"
)

// TestMirrorHold: a hold that is too short or too long is refused before anything is asked.
func TestMirrorHold(t *testing.T) {
	t.Parallel()
	for _, hold := range []string{"0s", "999ms", "5m1s"} {
		s, said := newSystem(), &lockedBuffer{}
		s.in, s.out, s.err = strings.NewReader(""), said, said
		code := run(t.Context(), s, []string{"mirror", "import", "redis://127.0.0.1:1", "--queue", "orders", "--hold", hold})
		if want := "--hold: must be 1s to 5m0s"; code != codeUsage || !strings.Contains(said.String(), want) {
			t.Errorf("with %s it ended with %d and said %q, should say %q", hold, code, said, want)
		}
	}
}
