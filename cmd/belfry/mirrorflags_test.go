package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
)

// TestMirrorHold: a hold that is too short or too long is refused before anything is asked.
func TestMirrorHold(t *testing.T) {
	t.Parallel()
	for _, hold := range []string{"0s", "999ms", "5m1s"} {
		s, said := cli.NewSystem(), &lockedBuffer{}
		s.In, s.Out, s.Err = strings.NewReader(""), said, said
		code := run(t.Context(), s, []string{"mirror", "import", "redis://127.0.0.1:1", "--queue", "orders", "--hold", hold})
		if want := "--hold: must be 1s to 5m0s"; code != cli.CodeUsage || !strings.Contains(said.String(), want) {
			t.Errorf("with %s it ended with %d and said %q, should say %q", hold, code, said, want)
		}
	}
}

// TestServeMirrorFlags: what serve could only ignore, or would learn later for ever, is refused at
// its start.
func TestServeMirrorFlags(t *testing.T) {
	t.Parallel()
	h := newHarness(t, nil)
	for _, test := range []struct {
		says string
		args []string
	}{
		{"--mirror-redis, which is not given", []string{"--mirror-replicas", "1"}},
		{"--mirror-redis, which is not given", []string{"--redis-tls-name", "redis"}},
		{"write '订单=QUEUE'", []string{"--mirror-redis", "redis://127.0.0.1:1", "--mirror-queue", "订单"}},
		{"write '{svc}:orders=QUEUE'",
			[]string{"--mirror-redis", "redis://127.0.0.1:1", "--mirror-queue", "{svc}:orders;codec=json"}},
		{"can have the name", []string{"--mirror-redis", "redis://127.0.0.1:1", "--mirror-queue", "orders=a/b/c"}},
	} {
		h.Run(append([]string{"serve", "--data", filepath.Join(t.TempDir(), "none"), "--listen", "nowhere"},
			test.args...)...).Holds(t, cli.CodeUsage, test.says)
	}
}
