package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/mirror/redistest"
)

// TestMirrorAccess reaches a Redis that wants TLS, a certificate and a password, by flags and by the environment.
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
	h.run("mirror", "run", url, "-q", "orders").holds(t, 1, "--redis-ca")
	refused := h.run("mirror", "inspect", url, "--redis-ca", a.File)
	if refused.code != codeUnavailable { // the connection's reset may overtake the alert that refuses the handshake
		refused.holds(t, 1)
	}
	refused.holds(t, refused.code, "--redis-cert and --redis-key")
	h.run("mirror", "inspect", url, "--redis-ca", a.File, "--redis-cert", cert, "--redis-key", key, "--redis-tls-name", "elsewhere").holds(t, 1, "--redis-tls-name")
	all := []string{"--redis-ca", a.File, "--redis-cert", cert, "--redis-key", key, "--redis-password-file", password}
	h.run(append([]string{"mirror", "inspect", url}, all...)...).holds(t, 0)
	h.run(append([]string{"mirror", "import", url, "-q", "orders", "--dry-run"}, all...)...).holds(t, codeNotFound, "no delayed queue")
	h.run("mirror", "inspect", strings.Replace(url, "rediss", "redis", 1), "--redis-ca", a.File).holds(t, codeUsage, "without TLS")
	for flag, file := range map[string]string{"--redis-ca": password, "--redis-password-file": empty, "--redis-cert": cert, "--redis-key": key} {
		h.run("mirror", "inspect", url, flag, file).holds(t, codeUsage, flag)
	}
	h.run("mirror", "inspect", url, "--redis-cert", key, "--redis-key", key).holds(t, codeUsage, "--redis-cert and --redis-key")
	h.run("serve", "--mirror-redis", url, "--mirror-queue", "orders", "--redis-ca", password).holds(t, codeUsage, "--redis-ca")
	h.env["BELFRY_REDIS_CA"], h.env["BELFRY_REDIS_CERT"], h.env["BELFRY_REDIS_KEY"], h.env["BELFRY_REDIS_PASSWORD_FILE"] = a.File, cert, key, password
	h.run("mirror", "inspect", url).holds(t, 0)
	h.run("mirror", "run", url, "-q", "orders", "--replicas", "1").holds(t, 1, "too few replicas")
	h.run("mirror", "export", url, "-q", "orders", "--replicas", "-1").holds(t, codeUsage, "--replicas")
}
