package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"
	// backdate is how much earlier than its making a certificate is valid: clocks differ.
	backdate = time.Hour
	// authorityYears is how long an authority is valid.
	authorityYears = 10
	domainBytes    = 16
)

// Authority issues the certificates of one domain's nodes.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its key, as PEM.
type Pair struct{ Cert, Key []byte }

// NewAuthority makes an authority, valid for ten years from now: for a domain that another one
// speaks for, which it is to follow, or for a new one if domain is empty.
func NewAuthority(domain string, now time.Time) (*Authority, Pair, error) {
	if domain == "" {
		id := make([]byte, domainBytes)
		_, _ = rand.Read(id) // never fails
		domain = hex.EncodeToString(id)
	}
	if err := CheckDomain(domain); err != nil {
		return nil, Pair{}, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{Organization: []string{"Belfry"}, CommonName: "Belfry nodes " + domain},
		URIs:    []*url.URL{domainURI(domain)}, NotBefore: now.Add(-backdate), NotAfter: now.AddDate(authorityYears, 0, 0),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	a := &Authority{}
	pair, err := a.issue(template)
	return a, pair, err
}

// CheckDomain returns an error for what cannot be a domain.
func CheckDomain(domain string) error {
	if id, err := hex.DecodeString(domain); err != nil || len(id) != domainBytes || domain != strings.ToLower(domain) {
		return fmt.Errorf("want the domain of an authority, %d hexadecimal digits in lower case, have %q",
			2*domainBytes, domain)
	}
	return nil
}

// ReadAuthority reads what NewAuthority made. Of a file with several certificates the first counts.
func ReadAuthority(certFile, keyFile string) (*Authority, error) {
	pair, err := readPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA || domainOf(pair.Leaf) == "" {
		return nil, fmt.Errorf("%s is no authority that belfry made: it must be one with an ECDSA key that names its "+
			"domain, as %s", certFile, domainURI("DOMAIN"))
	}
	return &Authority{pair.Leaf, key}, nil
}

// Domain returns the domain that the authority is for.
func (a *Authority) Domain() string { return domainOf(a.cert) }

// Issue makes the certificate of a node, which is valid from now until then, for the hosts and
// addresses at which clients look for it. It is for both sides of a connection between nodes.
func (a *Authority) Issue(node string, hosts []string, now, until time.Time) (Pair, error) {
	if !until.After(now) {
		return Pair{}, errors.New("a certificate must be valid for some time")
	}
	if until.After(a.cert.NotAfter) {
		return Pair{}, fmt.Errorf("the authority ends at %s, and no certificate of it may be valid for longer",
			a.cert.NotAfter.Format(time.RFC3339))
	}
	name := Name{Domain: a.Domain(), Node: node}
	template := &x509.Certificate{
		Subject: pkix.Name{Organization: []string{"Belfry"}, CommonName: node},
		URIs:    []*url.URL{name.uri()}, NotBefore: now.Add(-backdate), NotAfter: until, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth},
	}
	for _, host := range slices.Compact(slices.Sorted(slices.Values(hosts))) {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.issue(template)
}

// issue makes a key and a certificate for it. An authority without a key signs itself, and keeps
// both.
func (a *Authority) issue(template *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("making a key: %w", err)
	}
	signer, parent := a.key, a.cert
	if signer == nil {
		signer, parent = key, template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, fmt.Errorf("making a certificate: %w", err)
	}
	if a.key == nil {
		a.key = key
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			return Pair{}, fmt.Errorf("reading the new authority: %w", err)
		}
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encoding a key: %w", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: text}),
	}, nil
}

// Save writes the two files. The key is its owner's alone. Neither is ever there in part.
func (p Pair) Save(certFile, keyFile string) error {
	if err := WriteSecret(keyFile, p.Key); err != nil {
		return err
	}
	return replace(certFile, p.Cert, 0o644)
}

// WriteSecret writes a file that its owner alone may read, in place of the one that there is.
func WriteSecret(path string, text []byte) error { return replace(path, text, 0o600) }

// replace puts a file in the place of the one that there is, and on the disk.
func replace(path string, text []byte, mode os.FileMode) (err error) {
	next := path + ".new"
	// the mode of a file that is there would stay
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, errors.Join(err, os.Remove(next)))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("syncing the directory of %s: %w", path, err)
	}
	return errors.Join(dir.Sync(), dir.Close())
}
