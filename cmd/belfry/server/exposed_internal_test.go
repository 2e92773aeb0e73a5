package server

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/access/certs"
)

// TestExposureIsSaid: a node that is reachable beyond its machine says at its start what it lacks
// and what may come of it, once; one that is not says nothing.
func TestExposureIsSaid(t *testing.T) {
	const reachable = "reachable beyond its machine"
	tls := certs.Files{Cert: "c", Key: "k", CA: "a"}
	for _, test := range []struct {
		name string
		cfg  Config
		says []string // of the one warning; none for no warning
	}{
		{"nothing protects it", Config{Listen: "0.0.0.0:7400"},
			[]string{reachable, "TLS (--tls-cert", "gossip keys (--gossip-keys)", "tokens (--root-tokens)", "every job",
				`addresses=0.0.0.0:7400`}},
		{"only its gossip is seen", Config{
			Listen: "127.0.0.1:7400", PeerListen: "127.0.0.1:7401", GossipListen: "10.0.0.1:7402",
		}, []string{reachable, "addresses=10.0.0.1:7402"}},
		{"only its listener for lmstfy is seen", Config{
			Listen: "127.0.0.1:7400", LmstfyListen: "10.0.0.1:7777", Alone: true,
		}, []string{reachable, "addresses=10.0.0.1:7777"}},
		{"tokens without TLS", Config{
			Listen: "10.0.0.1:7400", RootTokens: "r", GossipKeys: "g",
		}, []string{reachable, "tokens cross the network in the clear"}},
		{"no gossip keys", Config{
			Listen: "10.0.0.1:7400", RootTokens: "r", TLS: tls,
		}, []string{reachable, `missing="gossip keys (--gossip-keys)" consequence="whoever reaches its gossip address`}},
		{"all there is", Config{Listen: "10.0.0.1:7400", RootTokens: "r", TLS: tls, GossipKeys: "g"}, nil},
		{"loopback", Config{Listen: "localhost:7400", PeerListen: "[::1]:7401", GossipListen: "127.0.0.2:7402"}, nil},
		{"loopback with TLS", Config{Listen: "127.0.0.1:7400", TLS: tls}, []string{"there is TLS, and gossip has no key"}},
	} {
		var log strings.Builder
		test.cfg.Logger, test.cfg.Insecure = slog.New(slog.NewTextHandler(&log, nil)), true
		test.cfg.warnOfExposure()
		lines := strings.Count(log.String(), "level=WARN")
		if want := min(len(test.says), 1); lines != want || strings.Count(log.String(), "\n") != want {
			t.Errorf("%s: %d warnings, want %d: %s", test.name, lines, want, log.String())
		}
		for _, text := range test.says {
			if !strings.Contains(log.String(), text) {
				t.Errorf("%s: it is not said that %q: %s", test.name, text, log.String())
			}
		}
	}
}
