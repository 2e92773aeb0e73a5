package server_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/access/certs"
	"github.com/belfrydb/belfry/access/tokens"
)

// TestOpenNodeSaysSo: what it does without is a line of its log as it starts.
func TestOpenNodeSaysSo(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]int{"0.0.0.0:0": 1, "127.0.0.1:0": 0} {
		var log logbook
		cfg := config(t, t.TempDir())
		cfg.Listen, cfg.Insecure, cfg.Logger = listen, true, log.logger()
		start(t, cfg)
		if got := strings.Count(log.String(),
			`level=WARN msg="this node is reachable beyond its machine, and --insecure lets it do without`); got != want {
			t.Errorf("at %s it is said %d times, want %d: %s", listen, got, want, log.String())
		}
	}
}

// TestSecretsThatEverybodyMayRead are named with their mode at the start and at each reload; a
// group may read them, and nothing is refused.
func TestSecretsThatEverybodyMayRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	authority, pair, err := certs.NewAuthority("", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	save := func(pair certs.Pair, err error, cert, key string) {
		if err == nil {
			err = pair.Save(file(cert), file(key))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	save(pair, nil, "ca.pem", "ca-key.pem")
	pair, err = authority.Issue("n1", []string{"127.0.0.1"}, time.Now(), time.Now().Add(24*365*time.Hour))
	save(pair, err, "n1.pem", "n1-key.pem")
	save(pair, nil, "client.pem", "client-key.pem")
	_, id, hash := tokens.New()
	for name, text := range map[string]string{
		"gossip.keys": base64.StdEncoding.EncodeToString(make([]byte, 32)) + "\n",
		"root-tokens": tokens.FormatRoot(id, hash),
	} {
		if err := os.WriteFile(file(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	secrets := []string{"n1-key.pem", "client-key.pem", "gossip.keys", "root-tokens"}
	change := func(mode os.FileMode) {
		for _, name := range secrets {
			if err := os.Chmod(file(name), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	var log logbook
	expect := func(mode string, want int) {
		for _, name := range secrets {
			line := `give it mode 0600, or 0640 if a group is to read it" file=` + file(name) + " mode=" + mode + "\n"
			if got := strings.Count(log.String(), line); got != want {
				t.Errorf("%s with mode %s was named %d times, want %d: %s", name, mode, got, want, log.String())
			}
		}
	}
	cfg := config(t, t.TempDir())
	cfg.NodeID, cfg.Logger, cfg.GossipKeys, cfg.RootTokens = "n1", log.logger(), file("gossip.keys"), file("root-tokens")
	cfg.TLS = certs.Files{
		Cert: file("n1.pem"), Key: file("n1-key.pem"), CA: file("ca.pem"), ClientCert: file("client.pem"),
		ClientKey: file("client-key.pem"),
	}
	change(0o604)
	s := start(t, cfg)
	expect("0604", 1)
	for mode, want := range map[os.FileMode]int{0o644: 1, 0o602: 1, 0o444: 1, 0o600: 0, 0o640: 0, 0o440: 0} {
		change(mode)
		if err := s.Reload(); err != nil {
			t.Errorf("with mode %#o: %v", mode, err)
		}
		expect(fmt.Sprintf("%#o", mode), want)
	}
}
