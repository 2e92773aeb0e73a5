package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/belfrydb/belfry/access/certs"
	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/access"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
)

// makeCerts runs `cert` in a directory and returns what it says.
func makeCerts(t *testing.T, dir string, more ...string) (made access.MadeCerts) {
	t.Helper()
	got := runProgram(t, launcher, nil, append([]string{"cert", "--dir", dir, "-o", "json"}, more...)...)
	if err := json.Unmarshal([]byte(got.Out), &made); got.Code != 0 || err != nil {
		t.Fatalf("making certificates: %+v, %v", got, err)
	}
	return made
}

// secureFlags are the flags of a node's certificates in a directory.
func secureFlags(dir, node string) []string {
	return []string{
		"--tls-cert", filepath.Join(dir, node+".pem"), "--tls-key", filepath.Join(dir, node+"-key.pem"), "--tls-ca",
		filepath.Join(dir, access.AuthorityCert),
		"--gossip-keys", filepath.Join(dir, access.GossipKeyFile),
	}
}

// TestSecuredCluster: three nodes found a cluster with certificates from one command. Clients reach
// it with TLS only, strangers do not become part of it although they have the gossip key, and new
// certificates take effect under load without an error.
func TestSecuredCluster(t *testing.T) {
	t.Parallel()
	dir, foreign := t.TempDir(), t.TempDir()
	made := makeCerts(t, dir, "--node", "n1", "--node", "n2", "--node", "n3")
	makeCerts(t, foreign, "--node", "n4")
	c := newCrew(t, 3)
	for i := range c.procs {
		c.launch(i, secureFlags(dir, fmt.Sprintf("n%d", i+1))...).ca = made.CA
	}
	c.wantOne()
	n1 := c.procs[0]
	if got := runProgram(t, launcher, nil, "put", "orders", "x", "--server",
		n1.address); got.Code != cli.CodeUnavailable || !strings.Contains(got.Err, "speaks TLS only") {
		t.Errorf("a put without TLS: %+v", got)
	}
	if got := runProgram(t, launcher, nil, "put", "orders", "x", "--server", "https://"+n1.address, "--tls-ca",
		filepath.Join(foreign, access.AuthorityCert)); got.Code != cli.CodeUnavailable ||
		!strings.Contains(got.Err, "certificate") {
		t.Errorf("a put to whom nothing speaks for: %+v", got)
	}

	stranger := newCrew(t, 1)
	flags := secureFlags(foreign, "n4")
	flags[len(flags)-1] = filepath.Join(dir, access.GossipKeyFile)
	stranger.gossip = []string{n1.gossip}
	p := stranger.launchAt(0, addresses.Free(t), append(flags, "--node-id", "n4")...)
	awaitText(t, p, "unknown authority")

	stop := putAlways(t, c, made.CA)
	reloads := func(p *process) int { return strings.Count(p.stderr.String(), "certificates reloaded") }
	for range 2 {
		makeCerts(t, dir, "--node", "n1", "--node", "n2", "--node", "n3")
		for _, p := range c.procs {
			before := reloads(p)
			p.signal(syscall.SIGHUP)
			await(t, "the certificates to be read again", func() bool { return reloads(p) > before })
		}
		c.kill(2)
		c.launch(2, secureFlags(dir, "n3")...).ca = made.CA // all its connections are new
		c.wantOne()
	}
	stop()
	if exists(stranger.dirs[0], "node.json") {
		t.Error("a node with a foreign certificate joined")
	}

	if err := os.WriteFile(filepath.Join(dir, "n1.pem"), []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	n1.signal(syscall.SIGHUP)
	awaitText(t, n1, "reloading failed: of what the error names nothing was changed")
	n1.awaitHealth("health after a reload that failed")
}

// putAlways puts jobs through all nodes until stop is called, which fails the test if a put failed
// for good.
func putAlways(t *testing.T, c *crew, ca string) (stop func()) {
	t.Helper()
	var urls []string
	for _, p := range c.procs {
		urls = append(urls, "https://"+p.address)
	}
	sdk, err := client.New(strings.Join(urls, ","), client.WithTLS(believing(t, ca)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var puts atomic.Int64
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if _, err := sdk.Put(ctx, "load", []byte("x")); err != nil && ctx.Err() == nil {
				ended <- err
				return
			}
			puts.Add(1)
		}
		ended <- nil
	}()
	await(t, "the first put", func() bool { return puts.Load() > 0 || len(ended) > 0 })
	return func() {
		cancel()
		if err := errors.Join(<-ended, sdk.Close()); err != nil {
			t.Errorf("after %d puts: %v", puts.Load(), err)
		}
	}
}

// TestCertificatesOfOthers: a node does not start with a certificate that would have others refuse
// it.
func TestCertificatesOfOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	made := makeCerts(t, dir, "--node", "n1", "--node", "n2=example.org,10.0.0.2")
	data := t.TempDir()
	p := serve(t, launcher, data, secureFlags(dir, "n1")...)
	p.ca = made.CA
	awaitText(t, p, "msg=ready")
	if got := p.run(launcher, "health"); got.Code != 0 {
		t.Errorf("health over TLS: %+v", got)
	}
	if name := answeredBy(t, p); name != "n1" {
		t.Errorf("a new node has the name %q, and its certificate n1", name)
	}
	p.signal(syscall.SIGTERM)
	p.end()
	start := func(flags ...string) clitest.Outcome {
		return runProgram(t, launcher, nil,
			append([]string{"serve", "--data", data, "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0"}, flags...)...)
	}
	for _, test := range []struct {
		name  string
		flags []string
		want  string
	}{
		{"another node's", secureFlags(dir, "n2"), "it is the certificate of node n2, and this is node n1"},
		{"no key", secureFlags(dir, "n1")[:2], "--tls-cert by the command line; missing: --tls-key, --tls-ca. 'belfry cert'"},
		{"a file that is not there", secureFlags(dir, "n9"), "n9.pem"},
	} {
		if got := start(test.flags...); got.Code != cli.CodeUsage || !strings.Contains(got.Err, test.want) {
			t.Errorf("%s: %+v, want exit code 2 and %q", test.name, got, test.want)
		}
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"cert"}, "--node is missing"},
		{[]string{"cert", "--dir", dir, "--node", "a/b"}, "--node"},
		{[]string{"cert", "--dir", dir, "--node", "n1", "--days", "0"}, "--days: must be 1 to 3650"},
		{[]string{"cert", "--dir", dir, "--node", "n3", "--domain", strings.Repeat("a", 32)}, "is that of " + made.Domain},
		{[]string{"cert", "--dir", t.TempDir(), "--node", "n3", "--domain", "x"},
			"--domain: want the domain of an authority"},
		{[]string{"cert", "--dir", dir, "--node", "n3", "--node", "ca"},
			"ca.pem of ca would take the place of a file of the authority"},
		{[]string{"cert", "--dir", dir, "--node", "n3", "--node", "n3"}, "would take the place of a file of node n3"},
		{[]string{"cert", "--dir", dir, "--node", "n3", "--node", "n3-key"}, "the name that the key of n3 has"},
		{[]string{"cert", "--dir", dir, "--node", "n3=10.0.0.3:7400"}, `"10.0.0.3:7400" is neither`},
		{[]string{"cert", "--dir", dir, "--node", "n3=fe80::1%eth0"}, "is neither"},
		{[]string{"cert", "--dir", dir, "--node", "n3="}, `have "n3=", want hosts after the =`},
	} {
		if got := runProgram(t, launcher, nil, test.args...); got.Code != cli.CodeUsage ||
			!strings.Contains(got.Err, test.want) {
			t.Errorf("%v: %+v, want exit code 2 and %q", test.args, got, test.want)
		}
	}
	if exists(dir, "n3.pem") {
		t.Error("a command that was refused made a certificate")
	}
	if got := runProgram(t, launcher, nil, "cert", "--dir", dir, "--node", "n2=example.org"); got.Code != 0 ||
		!strings.Contains(got.Out, "for localhost, 127.0.0.1, ::1, example.org, until ") {
		t.Errorf("for people: %+v", got)
	}
}

// caller returns a client for a server, with its token, and the base of its URLs.
func (p *process) caller() (*http.Client, string) {
	p.t.Helper()
	token := ""
	if p.token != "" {
		text, err := os.ReadFile(p.token)
		if err != nil {
			p.t.Fatal(err)
		}
		token = strings.TrimSpace(string(text))
	}
	if p.ca == "" {
		return &http.Client{Transport: cli.WithToken(token, http.DefaultTransport)}, "http://" + p.address
	}
	return &http.Client{Transport: cli.WithToken(token, &http.Transport{
		TLSClientConfig: believing(p.t, p.ca), DisableKeepAlives: true,
	})}, "https://" + p.address
}

// believing returns the settings of a client that believes one authority.
func believing(t *testing.T, ca string) *tls.Config {
	t.Helper()
	authorities, err := certs.ReadAuthorities(ca)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS13}
}

// answeredBy asks a server for its name.
func answeredBy(t *testing.T, p *process) string {
	t.Helper()
	caller, url := p.caller()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/livez", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := caller.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.Header.Get("Belfry-Served-By")
}
