package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/access"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
)

// sightOfACluster: in a secured cluster, an operator with a token looks around and makes a bundle
// with no secret in it. Without a token, or without the authority, the error says what is missing.
// shop is the file of a token that does not allow a look.
func sightOfACluster(t *testing.T, c *crew, dir, shop string) {
	t.Helper()
	n1 := c.procs[0]
	if got := n1.run(launcher, "put", "shop/planted-queue", "planted-body", "--id", "planted-id"); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	config := filepath.Join(dir, "belfry.conf")
	var lines strings.Builder
	flags := append(secureFlags(dir, "n1"), "--root-tokens", filepath.Join(dir, access.RootTokensFile), "--data",
		c.dirs[0])
	for i := 0; i < len(flags); i += 2 {
		fmt.Fprintf(&lines, "%s = %s\n", strings.TrimPrefix(flags[i], "--"), flags[i+1])
	}
	if err := os.WriteFile(config, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	bundle := func(p *process, more ...string) (clitest.Outcome, map[string]string) {
		path := filepath.Join(t.TempDir(), "bundle.tar.gz")
		got := p.run(launcher, append([]string{"doctor", "--out", path, "--config", config}, more...)...)
		if got.Code != 0 {
			t.Fatalf("%+v", got)
		}
		return got, unpack(t, path)
	}

	got, files := bundle(n1)
	for _, name := range []string{"cluster.json", "queues.json", "metrics.txt", "ready.txt", "config.txt", "data.txt"} {
		if len(files[name]) == 0 {
			t.Errorf("the bundle has no %s:\n%s", name, files["summary.txt"])
		}
	}
	files["what it prints"] = got.Out + got.Err
	wantNoSecrets(t, dir, files)
	if !strings.Contains(files["config.txt"], access.GossipKeyFile) ||
		!strings.Contains(files["metrics.txt"], "belfry_refused_calls_total{") {
		t.Errorf("the bundle has neither the names of files of secrets nor the metrics' names:\n%s", files["config.txt"])
	}

	for name, test := range map[string]struct {
		p    *process
		more []string
		want string
	}{
		"without a token": {n1.with(""), nil,
			"the server tells this command little: UNAUTHENTICATED: the call carries no token"},
		"with a token for something else": {n1.with(shop), nil, "the server tells this command little: FORBIDDEN: token "},
		"without TLS": {n1, []string{"--server", "http://" + n1.address},
			"does not answer: " + n1.address + " speaks TLS only: write https://"},
		"without the authority of the key": {n1, []string{"--tls-ca", foreignAuthority(t)},
			"unknown authority; name the authority behind it with --tls-ca"},
	} {
		got, files := bundle(test.p, test.more...)
		if !strings.Contains(files["summary.txt"], "  - ") ||
			!strings.Contains(strings.Split(files["summary.txt"], "not reached:")[0], test.want) {
			t.Errorf("%s: %q is not among\n%s", name, test.want, got.Out)
		}
	}

	if got := n1.run(launcher, "top", "--once"); got.Code != 0 || !strings.Contains(got.Out, "shop/planted-queue") {
		t.Errorf("top with the root token: %+v", got)
	}
	n1.with(shop).refuses(cli.CodeForbidden, "it takes view:*", "top", "--once")
	n1.refuses(cli.CodeUnavailable, "--tls-ca", "top", "--once", "--tls-ca", foreignAuthority(t))
}

// foreignAuthority returns a file with the certificate of an authority that signed nothing here.
func foreignAuthority(t *testing.T) string {
	t.Helper()
	return makeCerts(t, t.TempDir(), "--node", "n1").CA
}

// wantNoSecrets fails the test if a file has what is secret of a directory that `cert` and `token
// root` made: not the root token, nor what is kept of it, nor a line of a key; nor anything that is
// planted.
func wantNoSecrets(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	secrets := []string{"planted"}
	for _, pattern := range []string{"*.token", access.RootTokensFile, access.GossipKeyFile, "*-key.pem"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("no %s in %s, %v", pattern, dir, err)
		}
		for _, name := range found {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for word := range strings.FieldsSeq(string(text)) {
				if len(word) > 30 { // an id is not secret
					secrets = append(secrets, word)
				}
			}
		}
	}
	for name, text := range files {
		for _, secret := range secrets {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s has %q", name, text[max(0, at-60):min(len(text), at+60)])
			}
		}
	}
}
