package certs

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// today is when the tests take place.
var today = time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)

// made is an authority and where its files are.
type made struct {
	*Authority
	dir string
}

func newAuthority(t *testing.T, domain string) *made {
	t.Helper()
	a, pair, err := NewAuthority(domain, today)
	if err != nil {
		t.Fatal(err)
	}
	m := &made{a, t.TempDir()}
	if err := pair.Save(m.file("ca.pem"), m.file("ca-key.pem")); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *made) file(name string) string { return filepath.Join(m.dir, name) }

// save writes a node's certificate and returns the files that go with it.
func (m *made) save(t *testing.T, node string, pair Pair, err error) Files {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	f := Files{Cert: m.file(node + ".pem"), Key: m.file(node + "-key.pem"), CA: m.file("ca.pem")}
	if err := pair.Save(f.Cert, f.Key); err != nil {
		t.Fatal(err)
	}
	return f
}

// node makes a node's certificate, valid for a year.
func (m *made) node(t *testing.T, name string) Files {
	t.Helper()
	pair, err := m.Issue(name, []string{"localhost"}, today, today.AddDate(1, 0, 0))
	return m.save(t, name, pair, err)
}

// odd makes a certificate that belfry would not make.
func (m *made) odd(t *testing.T, change func(*x509.Certificate)) Files {
	t.Helper()
	template := &x509.Certificate{
		URIs: []*url.URL{Name{m.Domain(), "odd"}.uri()}, NotBefore: today.Add(-time.Hour), NotAfter: today.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth},
	}
	change(template)
	pair, err := m.issue(template)
	return m.save(t, "odd", pair, err)
}

// identity loads what must be in order.
func identity(t *testing.T, f Files) *Identity {
	t.Helper()
	i, err := load(f, func() time.Time { return today })
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// trust is a node that shows what it has whether or not others would take it.
func trust(t *testing.T, f Files, name Name) *Identity {
	t.Helper()
	i := &Identity{files: f, name: name, now: func() time.Time { return today }}
	pair, err := readPair(f.Cert, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := ReadAuthorities(f.CA)
	if err != nil {
		t.Fatal(err)
	}
	i.credentials.Store(&credentials{node: pair, client: pair, authorities: pool})
	return i
}

// greet has two nodes connect and say a word each way. The error is that of the side that accepts.
func greet(t *testing.T, server *Identity, client *tls.Config) (proven string, err error) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secured := server.Listen(listener)
	defer secured.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		raw, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		conn := net.Conn(raw)
		if client != nil {
			conn = tls.Client(raw, client)
		}
		defer raw.Close()
		_, _ = conn.Write([]byte("words that are no handshake")) // it may be refused
		_, _ = io.ReadAll(conn)
	}()
	conn, err := secured.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadFull(conn, make([]byte, 4))
	proven = conn.(*PeerConn).Proven()
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	<-ended
	return proven, err
}

// TestStrangersAtThePeerPort: only a peer that proves to be a node of the domain is heard.
func TestStrangersAtThePeerPort(t *testing.T) {
	t.Parallel()
	ours, foreign := newAuthority(t, ""), newAuthority(t, "")
	server := identity(t, ours.node(t, "n1"))
	show := func(f Files) *tls.Config {
		f.CA = ours.file("ca.pem") // it would take this node
		return trust(t, f, server.Name()).forPeers()
	}
	older := show(ours.node(t, "n2"))
	older.MinVersion, older.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	for _, test := range []struct {
		name   string
		client *tls.Config
		want   string // in the error; empty for a node that is heard
	}{
		{"a node", identity(t, ours.node(t, "n2")).forPeers(), ""},
		{"no TLS", nil, "first record does not look like a TLS handshake"},
		{"TLS 1.2", older, "unsupported versions"},
		//nolint:gosec // it is a stranger
		{"no certificate", &tls.Config{InsecureSkipVerify: true}, "didn't provide a certificate"},
		{"another authority, with the domain's name",
			show(foreign.odd(t, func(c *x509.Certificate) { c.URIs[0].Host = ours.Domain() })), "signed by unknown authority"},
		{"the authority of this domain, for another",
			show(ours.odd(t, func(c *x509.Certificate) { c.URIs[0].Host = strings.Repeat("f", 32) })),
			"and this is " + Name{ours.Domain(), "n1"}.String()},
		{"expired", show(ours.odd(t, func(c *x509.Certificate) { c.NotAfter = today.Add(-time.Second) })), "and not now"},
		{"not valid yet", show(ours.odd(t, func(c *x509.Certificate) { c.NotBefore = today.Add(time.Second) })),
			"and not now"},
		{"for servers only", show(ours.odd(t, func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] })),
			"incompatible key usage"},
		{"for clients only", show(ours.odd(t, func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] })),
			"incompatible key usage"},
		{"no node's name", show(ours.odd(t, func(c *x509.Certificate) { c.URIs = nil })), "names 0 nodes"},
		{"two nodes' names", show(ours.odd(t, func(c *x509.Certificate) {
			c.URIs = append(c.URIs, Name{ours.Domain(), "n1"}.uri())
		})), "names 2 nodes"},
		{"an empty name", show(ours.odd(t, func(c *x509.Certificate) { c.URIs[0].Path = namePath })), "neither may be empty"},
		{"the authority itself", show(ours.save(t, "ca", Pair{read(t, ours.file("ca.pem")), read(t, ours.file("ca-key.pem"))},
			nil)), "names 0 nodes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			proven, err := greet(t, server, test.client)
			switch {
			case test.want == "" && (err != nil || proven != "n2"):
				t.Errorf("a node of the domain: %q, %v", proven, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("the error is %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestDialAsksForProof: the dialling side refuses the same peers, before it sends anything.
func TestDialAsksForProof(t *testing.T) {
	t.Parallel()
	ours, foreign := newAuthority(t, ""), newAuthority(t, "")
	us := identity(t, ours.node(t, "n1"))
	for _, test := range []struct {
		name  string
		there *Identity
		want  string
	}{
		{"a node", identity(t, ours.node(t, "n2")), ""},
		{"another authority", trust(t, foreign.node(t, "n2"), us.Name()), "signed by unknown authority"},
		{"another cluster", trust(t, ours.odd(t, func(c *x509.Certificate) { c.URIs[0].Host = strings.Repeat("f", 32) }),
			us.Name()), "and this is " + Name{ours.Domain(), "n1"}.String()},
	} {
		t.Run(test.name, func(t *testing.T) {
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			secured := test.there.Listen(listener)
			defer secured.Close()
			go func() {
				conn, err := secured.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 1)) // the handshake
				_ = conn.Close()
			}()
			conn, err := us.Dial(t.Context(), listener.Addr().String())
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("the error is %v, want one with %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := conn.(*PeerConn).Proven(); got != "n2" {
				t.Errorf("it proved to be %q", got)
			}
			_ = conn.Close()
		})
	}
}

// TestLoadRefuses: what others would refuse is refused at the start, with the file in the text.
func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	ours, foreign := newAuthority(t, ""), newAuthority(t, "")
	good := ours.node(t, "n1")
	other := ours.node(t, "n2")
	empty := ours.file("empty.pem")
	if err := os.WriteFile(empty, []byte("nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		files Files
		want  string
	}{
		{"no file", Files{Cert: "missing.pem", Key: good.Key, CA: good.CA}, "missing.pem"},
		{"the key of another", Files{Cert: good.Cert, Key: other.Key, CA: good.CA}, "private key does not match"},
		{"no authority in the file", Files{Cert: good.Cert, Key: good.Key, CA: empty}, "there is none in " + empty},
		{"another authority", Files{Cert: good.Cert, Key: good.Key, CA: foreign.file("ca.pem")},
			good.Cert + ": other nodes would refuse it"},
		{"expired", ours.odd(t, func(c *x509.Certificate) { c.NotAfter = today.Add(-time.Second) }),
			"other nodes would refuse it"},
		{"a client certificate without its file", Files{Cert: good.Cert, Key: good.Key, CA: good.CA, ClientCert: "gone.pem",
			ClientKey: good.Key}, "gone.pem"},
	} {
		if _, err := load(test.files, func() time.Time { return today }); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %q", test.name, err, test.want)
		}
	}
	old := good
	expired := ours.odd(t, func(c *x509.Certificate) { c.NotAfter = today.Add(-time.Second) })
	old.ClientCert, old.ClientKey = expired.Cert, expired.Key
	if _, err := load(old, func() time.Time { return today }); err == nil ||
		!strings.Contains(err.Error(), "clients would refuse it") {
		t.Errorf("a client certificate that has ended: %v", err)
	}
	for _, f := range []Files{{Cert: "a"}, {Cert: "a", Key: "b"}, {Cert: "a", Key: "b", CA: "c", ClientCert: "d"},
		{ClientCert: "a", ClientKey: "b"}} {
		if f.Check() == nil {
			t.Errorf("%+v is taken", f)
		}
	}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
}

// TestReload: what connects after it meets the new certificate, or the old one if the new is not in
// order; an authority is changed in three steps, in each of which all nodes take each other.
func TestReload(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "")
	next := newAuthority(t, ours.Domain())
	f1, f2 := ours.node(t, "n1"), ours.node(t, "n2")
	f2.CA = ours.file("ca2.pem")
	write(t, f2.CA, read(t, f1.CA))
	n1, n2 := identity(t, f1), identity(t, f2)
	handshake := func(step string) {
		t.Helper()
		for _, pair := range [][2]*Identity{{n1, n2}, {n2, n1}} {
			if _, err := greet(t, pair[0], pair[1].forPeers()); err != nil {
				t.Errorf("%s: %v", step, err)
			}
		}
	}
	handshake("at first")
	before := n1.credentials.Load().node.Leaf
	ours.node(t, "n1") // in the same files
	if err := n1.Reload(); err != nil || n1.credentials.Load().node.Leaf.Equal(before) {
		t.Errorf("after the reload the certificate is the same, or %v", err)
	}
	handshake("with a new certificate")

	both := append(read(t, ours.file("ca.pem")), read(t, next.file("ca.pem"))...)
	write(t, f1.CA, both)
	write(t, f2.CA, both)
	for _, n := range []*Identity{n1, n2} {
		if err := n.Reload(); err != nil {
			t.Fatal(err)
		}
		handshake("with both authorities")
	}
	for i, n := range []*Identity{n1, n2} {
		pair, err := next.Issue(n.Name().Node, nil, today, today.AddDate(1, 0, 0))
		ours.save(t, n.Name().Node, pair, err)
		if err := n.Reload(); err != nil {
			t.Fatal(err)
		}
		handshake("with certificates of the next authority at " + []string{"one", "both"}[i])
	}
	write(t, f1.CA, read(t, next.file("ca.pem")))
	if err := n1.Reload(); err != nil {
		t.Fatal(err)
	}
	handshake("without the first authority")

	write(t, f1.Cert, read(t, f2.Cert))
	write(t, f1.Key, read(t, f2.Key))
	if err := n1.Reload(); err == nil || !strings.Contains(err.Error(), "this node is") {
		t.Errorf("another node's certificate: %v", err)
	}
	write(t, f1.Cert, []byte("nothing"))
	if err := n1.Reload(); err == nil {
		t.Error("a file without a certificate was taken")
	}
	handshake("after reloads that failed")
}

// TestForClients: clients that believe the authority are answered at the names in the certificate;
// a client in the process at any.
func TestForClients(t *testing.T) {
	t.Parallel()
	ours, foreign := newAuthority(t, ""), newAuthority(t, "")
	server := identity(t, ours.node(t, "n1"))
	another := identity(t, ours.node(t, "n2"))
	believe := func(m *made, host string) *tls.Config {
		pool, err := ReadAuthorities(m.file("ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		//nolint:gosec // the server wants more
		return &tls.Config{RootCAs: pool, ServerName: host, Time: func() time.Time { return today }}
	}
	old := believe(ours, "localhost")
	old.MaxVersion = tls.VersionTLS12
	for _, test := range []struct {
		name   string
		client *tls.Config
		want   string
	}{
		{"the authority", believe(ours, "localhost"), ""},
		{"another host", believe(ours, "example.org"), "not example.org"},
		{"another authority", believe(foreign, "localhost"), "unknown authority"},
		{"TLS 1.2", old, "protocol version"},
		{"itself", server.ForItself(), ""},
		{"another process", another.ForItself(), "not the one that this process shows"},
	} {
		near, far := net.Pipe()
		go func() {
			_ = tls.Server(far, server.ForClients()).HandshakeContext(t.Context())
			_ = far.Close()
		}()
		err := tls.Client(near, test.client).HandshakeContext(t.Context())
		_ = near.Close()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

// TestAuthority: it is read as it was made, its keys are its owner's, and nothing that it issues
// outlives it.
func TestAuthority(t *testing.T) {
	t.Parallel()
	m := newAuthority(t, "")
	again, err := ReadAuthority(m.file("ca.pem"), m.file("ca-key.pem"))
	if err != nil || again.Domain() != m.Domain() {
		t.Fatalf("read again: %v", err)
	}
	if info, err := os.Stat(m.file("ca-key.pem")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %v, %v", info.Mode(), err)
	}
	for _, until := range []time.Time{today, today.AddDate(authorityYears, 0, 1)} {
		if _, err := again.Issue("n1", nil, today, until); err == nil {
			t.Errorf("a certificate until %v", until)
		}
	}
	f := m.node(t, "n1")
	if _, err := ReadAuthority(f.Cert, f.Key); err == nil {
		t.Error("a node's certificate was taken for an authority")
	}
	if other := newAuthority(t, ""); other.Domain() == m.Domain() {
		t.Error("two authorities speak for one domain")
	}
	if _, _, err := NewAuthority("no domain", today); err == nil {
		t.Error("an impossible domain was taken")
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path) //nolint:gosec // a file of the test
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
