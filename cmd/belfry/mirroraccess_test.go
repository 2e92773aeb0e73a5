package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// TestMirrorAccess reaches a Redis that wants TLS, a certificate and a password, by flags and by
// the environment.
func TestMirrorAccess(t *testing.T) {
	h, _ := mirrorHarness(t)
	a := redistest.NewAuthority(t)
	r := redistest.Start(t, redistest.WithMutualTLS(a))
	r.User("app", "+@all", "~*", "&*")
	cert, key := a.Issue(t, "app")
	password, empty := filepath.Join(t.TempDir(), "password"), filepath.Join(t.TempDir(), "empty")
	for file, text := range map[string]string{password: "password-of-app\n", empty: "\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	url := "rediss://app@" + r.Address()
	h.Run("mirror", "run", url, "-q", "orders").Holds(t, 1, "--redis-ca")
	refused := h.Run("mirror", "inspect", url, "--redis-ca", a.File)
	if refused.Code != cli.CodeUnavailable { // the connection's reset may overtake the alert that refuses the handshake
		refused.Holds(t, 1)
	}
	refused.Holds(t, refused.Code, "--redis-cert and --redis-key")
	h.Run("mirror", "inspect", url, "--redis-ca", a.File, "--redis-cert", cert, "--redis-key", key, "--redis-tls-name",
		"elsewhere").Holds(t, 1, "--redis-tls-name")
	all := []string{"--redis-ca", a.File, "--redis-cert", cert, "--redis-key", key, "--redis-password-file", password}
	h.Run(append([]string{"mirror", "inspect", url}, all...)...).Holds(t, 0)
	h.Run(append([]string{"mirror", "import", url, "-q", "orders", "--dry-run"}, all...)...).Holds(t, cli.CodeNotFound,
		"no delayed queue")
	h.Run("mirror", "inspect", strings.Replace(url, "rediss", "redis", 1), "--redis-ca", a.File).Holds(t, cli.CodeUsage,
		"without TLS")
	for flag, file := range map[string]string{
		"--redis-ca": password, "--redis-password-file": empty, "--redis-cert": cert, "--redis-key": key,
	} {
		h.Run("mirror", "inspect", url, flag, file).Holds(t, cli.CodeUsage, flag)
	}
	h.Run("mirror", "inspect", url, "--redis-cert", key, "--redis-key", key).Holds(t, cli.CodeUsage,
		"--redis-cert and --redis-key")
	h.Run("serve", "--mirror-redis", url, "--mirror-queue", "orders", "--redis-ca", password).Holds(t, cli.CodeUsage,
		"--redis-ca")
	h.Env["BELFRY_REDIS_CA"], h.Env["BELFRY_REDIS_CERT"], h.Env["BELFRY_REDIS_KEY"],
		h.Env["BELFRY_REDIS_PASSWORD_FILE"] = a.File, cert, key, password
	h.Run("mirror", "inspect", url).Holds(t, 0)
	h.Run("mirror", "run", url, "-q", "orders", "--replicas", "1").Holds(t, 1, "too few replicas")
	h.Run("mirror", "export", url, "-q", "orders", "--replicas", "-1").Holds(t, cli.CodeUsage, "--replicas")
}
