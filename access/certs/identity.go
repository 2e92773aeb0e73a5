package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// Files are where a node's credentials lie, as PEM. Cert, Key and CA are required.
type Files struct {
	// Cert and Key are the node's certificate, with those between it and the authority behind it, and
	// its key. CA are the authorities whose certificates nodes have: during a change of authority the
	// old one and the new one.
	Cert, Key, CA string
	// ClientCert and ClientKey are what clients are shown instead, such as a certificate of a public
	// authority; empty for Cert and Key.
	ClientCert, ClientKey string
}

// Check reports what is missing, by the names of the flags.
func (f Files) Check() error {
	switch {
	case f == Files{}:
		return nil
	case f.Cert == "" || f.Key == "" || f.CA == "":
		return errors.New("--tls-cert, --tls-key and --tls-ca belong together, and one of them is missing; 'belfry cert' " +
			"makes the three files")
	case (f.ClientCert == "") != (f.ClientKey == ""):
		return errors.New("--tls-client-cert and --tls-client-key belong together, and one of them is missing")
	}
	return nil
}

// Identity is a node's credentials. Its methods may be called from any number of goroutines.
type Identity struct {
	files Files
	name  Name
	now   func() time.Time
	// credentials are those in use. Handshakes take them as they are then.
	credentials atomic.Pointer[credentials]
}

// credentials are what the files held at one time.
type credentials struct {
	node, client *tls.Certificate
	authorities  *x509.CertPool
}

// Load reads a node's credentials. The node's certificate must name it, be valid now, and come from
// one of the authorities, since other nodes would refuse it otherwise.
func Load(files Files) (*Identity, error) { return load(files, time.Now) }

func load(files Files, now func() time.Time) (*Identity, error) {
	i := &Identity{files: files, now: now}
	read, name, err := i.read()
	if err != nil {
		return nil, err
	}
	i.name = name
	i.credentials.Store(read)
	return i, nil
}

// Name returns the name of the node.
func (i *Identity) Name() Name { return i.name }

// NotAfter returns when the first of the certificates in use ends.
func (i *Identity) NotAfter() time.Time {
	c := i.credentials.Load()
	if c.client.Leaf.NotAfter.Before(c.node.Leaf.NotAfter) {
		return c.client.Leaf.NotAfter
	}
	return c.node.Leaf.NotAfter
}

// Reload reads the files again. What connects from then on meets what they hold now; connections
// that there are stay. If something is not in order, nothing changes. A certificate of another node
// is refused: a node does not become another one.
func (i *Identity) Reload() error {
	read, name, err := i.read()
	if err != nil {
		return err
	}
	if name != i.name {
		return fmt.Errorf("%s is the certificate of %s, and this node is %s", i.files.Cert, name, i.name)
	}
	i.credentials.Store(read)
	return nil
}

// read reads the files and judges them as other nodes will.
func (i *Identity) read() (*credentials, Name, error) {
	authorities, err := ReadAuthorities(i.files.CA)
	if err != nil {
		return nil, Name{}, err
	}
	c := &credentials{authorities: authorities}
	if c.node, err = readPair(i.files.Cert, i.files.Key); err != nil {
		return nil, Name{}, err
	}
	chain := chainOf(c.node)
	name, err := i.judge(chain, authorities, x509.ExtKeyUsageServerAuth)
	if err == nil {
		_, err = i.judge(chain, authorities, x509.ExtKeyUsageClientAuth)
	}
	if err != nil {
		return nil, Name{}, fmt.Errorf("%s: other nodes would refuse it: %w", i.files.Cert, err)
	}
	if c.client = c.node; i.files.ClientCert != "" {
		if c.client, err = readPair(i.files.ClientCert, i.files.ClientKey); err != nil {
			return nil, Name{}, err
		}
		if now := i.now(); now.Before(c.client.Leaf.NotBefore) || now.After(c.client.Leaf.NotAfter) {
			return nil, Name{}, fmt.Errorf("%s: clients would refuse it: %w", i.files.ClientCert, period(c.client.Leaf))
		}
	}
	return c, name, nil
}

// judge returns the name of the holder of a chain of certificates, if the chain is valid for the
// usage.
func (i *Identity) judge(chain []*x509.Certificate, authorities *x509.CertPool, usage x509.ExtKeyUsage) (Name, error) {
	if len(chain) == 0 {
		return Name{}, errors.New("there is no certificate")
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: authorities, Intermediates: between, CurrentTime: i.now(),
		KeyUsages: []x509.ExtKeyUsage{usage}})
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return Name{}, period(invalid.Cert)
	}
	if err != nil {
		return Name{}, err
	}
	return NameOf(chain[0])
}

// period says when a certificate is valid, in a text that is the same each time: the standard error
// has the time of day, and would be logged anew each second.
func period(cert *x509.Certificate) error {
	return fmt.Errorf("the certificate of %q is valid from %s to %s, and not now",
		cert.Subject.CommonName, cert.NotBefore.UTC().Format(time.RFC3339), cert.NotAfter.UTC().Format(time.RFC3339))
}

// ReadAuthorities reads a file of certificates of authorities.
func ReadAuthorities(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("reading the certificates of authorities: %w", err)
	}
	pool := x509.NewCertPool()
	found := 0
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != pemCertificate {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("reading the certificates of authorities: number %d in %s: %w", found+1, path, err)
		}
		pool.AddCert(cert)
		found++
	}
	if found == 0 {
		return nil, fmt.Errorf("reading the certificates of authorities: there is none in %s, which must hold them as PEM",
			path)
	}
	return pool, nil
}

// readPair reads a certificate and its key.
func readPair(cert, key string) (*tls.Certificate, error) {
	certText, err := os.ReadFile(cert) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("reading a certificate: %w", err)
	}
	keyText, err := os.ReadFile(key) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("reading the key of %s: %w", cert, err)
	}
	pair, err := tls.X509KeyPair(certText, keyText)
	if err != nil {
		return nil, fmt.Errorf("reading %s and its key %s: %w", cert, key, err)
	}
	return &pair, nil
}

// chainOf returns a certificate and those behind it.
func chainOf(pair *tls.Certificate) []*x509.Certificate {
	chain := []*x509.Certificate{pair.Leaf}
	for _, der := range pair.Certificate[1:] {
		if cert, err := x509.ParseCertificate(der); err == nil {
			chain = append(chain, cert)
		}
	}
	return chain
}
