package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates that only programs with its own certificate trust.
type Authority struct {
	// File has the authority's certificate, PEM.
	File string

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	own  tls.Certificate // of the tests' own clients
}

// NewAuthority makes an authority for a test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of a test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.key = newKey(t)
	a.File, _ = a.sign(t, a.cert, a.key)
	cert, key := a.Issue(t, "client")
	var err error
	if a.own, err = tls.LoadX509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
	return a
}

// Issue makes a certificate for hosts, by name or address, and its key, for servers and for
// clients. It returns the files, PEM.
func (a *Authority) Issue(t testing.TB, hosts ...string) (cert, key string) {
	t.Helper()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: hosts[0]},
		NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, host)
		}
	}
	return a.sign(t, c, newKey(t))
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign writes a certificate, signed by the authority, and its key to files.
func (a *Authority) sign(t testing.TB, c *x509.Certificate, of *ecdsa.PrivateKey) (cert, key string) {
	t.Helper()
	signed, err := x509.CreateCertificate(rand.Reader, c, a.cert, &of.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(of)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: signed},
		key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// config is that of the tests' own clients, nil without an authority.
func (a *Authority) config() *tls.Config {
	if a == nil {
		return nil
	}
	roots := x509.NewCertPool()
	text, err := os.ReadFile(a.File)
	if err == nil {
		roots.AppendCertsFromPEM(text)
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{a.own}, MinVersion: tls.VersionTLS12}
}

// WithTLS has the server speak TLS only, with a certificate of an authority for its address.
func WithTLS(a *Authority) Option {
	return func(s *settings) {
		s.tls = a
		for _, directive := range []string{"tls-replication", "tls-cluster"} {
			WithConfig(directive, "yes")(s)
		}
		WithConfig("tls-auth-clients", "no")(s)
	}
}

// WithMutualTLS is WithTLS for a server that wants a certificate of the same authority from each
// client.
func WithMutualTLS(a *Authority) Option {
	return func(s *settings) {
		WithTLS(a)(s)
		WithConfig("tls-auth-clients", "yes")(s)
	}
}
