package lab

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// secretsOf returns the secrets of a lab whose program is the server as it is.
func secretsOf(t *testing.T) *Secrets {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "belfry")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program,
		"github.com/belfrydb/belfry/cmd/belfry").CombinedOutput(); err != nil {
		t.Fatalf("building the server: %v\n%s", err, out)
	}
	s, err := NewSecrets(dir, program)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// file returns the text of a node's file, as the flag names it.
func (s *Secrets) file(t *testing.T, node, flag string) string {
	t.Helper()
	flags := s.Flags(node)
	for i := range flags {
		if flags[i] == flag {
			text, err := os.ReadFile(flags[i+1])
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
	}
	t.Fatalf("a node has no %s", flag)
	return ""
}

// shown returns the certificate that a node has now.
func (s *Secrets) shown(t *testing.T, node string) tls.Certificate {
	t.Helper()
	cert, err := tls.X509KeyPair([]byte(s.file(t, node, "--tls-cert")), []byte(s.file(t, node, "--tls-key")))
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// handshake has a client that looks for a node meet a server that shows a certificate, and returns
// what the client says.
func (s *Secrets) handshake(ctx context.Context, node string, shows tls.Certificate) error {
	here, there := net.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = tls.Server(there, &tls.Config{Certificates: []tls.Certificate{shows},
			MinVersion: tls.VersionTLS13}).HandshakeContext(ctx)
		_ = there.Close()
	}()
	client := tls.Client(here, s.TLS(node))
	err := client.HandshakeContext(ctx)
	_ = here.Close()
	<-ended
	return err
}

// TestSecrets takes a cluster's authority through its replacement: at each step clients believe the
// right servers, and only the node that they look for.
func TestSecrets(t *testing.T) {
	s := secretsOf(t)
	equip := func(nodes ...string) {
		t.Helper()
		for _, n := range nodes {
			if err := s.Equip(n); err != nil {
				t.Fatal(err)
			}
		}
	}
	equip("n1", "n2")
	old := s.shown(t, "n1")
	if err := s.handshake(t.Context(), "n1", old); err != nil {
		t.Errorf("a client and its node: %v", err)
	}
	if err := s.handshake(t.Context(), "n1", s.shown(t, "n2")); err == nil || !strings.Contains(err.Error(), "node/n2") {
		t.Errorf("a client takes one node for another: %v", err)
	}
	if err := s.AddAuthority(); err != nil {
		t.Fatal(err)
	}
	equip("n1")
	if got := strings.Count(s.file(t, "n1", "--tls-ca"), "BEGIN CERTIFICATE"); got != 2 {
		t.Errorf("beside each other a node believes %d authorities", got)
	}
	if err := s.IssueAnew(); err != nil {
		t.Fatal(err)
	}
	equip("n1")
	fresh := s.shown(t, "n1")
	for _, shown := range []tls.Certificate{old, fresh} {
		if err := s.handshake(t.Context(), "n1", shown); err != nil {
			t.Errorf("while there are two authorities: %v", err)
		}
	}
	if err := s.ForgetAuthorities(); err != nil {
		t.Fatal(err)
	}
	if err := s.handshake(t.Context(), "n1", old); err == nil {
		t.Error("an authority that was replaced is believed")
	}
	if err := s.handshake(t.Context(), "n1", fresh); err != nil {
		t.Errorf("the authority that is left: %v", err)
	}
}

// TestRoots replaces the root token: nodes are told of both, then of the new one alone, and clients
// carry what every node knows.
func TestRoots(t *testing.T) {
	s := secretsOf(t)
	known := func() string {
		t.Helper()
		if err := s.Equip("n1"); err != nil {
			t.Fatal(err)
		}
		return s.file(t, "n1", "--root-tokens")
	}
	first := s.Root()
	if !strings.HasPrefix(known(), first.ID+" ") || !strings.HasPrefix(first.Text, "belfry_"+first.ID+"_") {
		t.Errorf("the first is %s, and the node knows %s", first.ID, known())
	}
	second, err := s.AddRoot()
	if err != nil {
		t.Fatal(err)
	}
	if both := known(); !strings.Contains(both, first.ID) || !strings.Contains(both, second.ID) || s.Root() != first {
		t.Errorf("with another one clients carry %s, and nodes know %s", s.Root().ID, both)
	}
	s.UseRoot(second, 7)
	s.ForgetRoots()
	if one := known(); strings.Contains(one, first.ID) || !strings.Contains(one, second.ID) || s.Root() != second.Token {
		t.Errorf("in the end clients carry %s, and nodes know %s", s.Root().ID, one)
	}
	s.RootsForgotten(9)
	if all := s.Roots(); len(all) != 2 || all[0].Ending != 7 || all[0].Ended != 9 || all[1].Known != 7 ||
		all[1].Ending != 0 {
		t.Errorf("it says of them %+v", all)
	}
	if env, err := s.Environment(); err != nil || len(env) != 2 {
		t.Errorf("commands are given %q, %v", env, err)
	}
}
