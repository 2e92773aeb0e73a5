package lab

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Token is what a client proves itself with. Its id is in its text, and is no secret.
type Token struct{ ID, Text string }

// Root is a token that may do everything, which nodes find in their files.
type Root struct {
	Token
	// Known is when every node knew it, Ending from when on some node may have forgotten it, and Ended
	// when all had; 0 for what has not come.
	Known, Ending, Ended time.Duration
}

// Secrets are the secrets of a secured cluster: authorities, certificates and root tokens, all made
// by the commands of the server's own program. Its methods may be called from any goroutine.
type Secrets struct {
	dir, program string

	mu sync.Mutex
	// authorities are the directories of the trusted authorities; the last one issues. pool is what
	// clients trust.
	authorities []string
	domain      string
	pool        *x509.CertPool
	made        int // authorities and versions of files so far
	// roots are those that nodes know, the last one is the one in use; all are those that there ever
	// were.
	roots []string
	all   []*Root
	inUse *Root
}

// The files of a node, in a directory that is replaced as a whole.
const (
	secretsDir    = "secrets"
	certFile      = "cert.pem"
	keyFile       = "key.pem"
	authorityFile = "ca.pem"
	rootsFile     = "root-tokens"
	current       = "current"
)

// NewSecrets makes the first authority and the first root token.
func NewSecrets(dir, program string) (*Secrets, error) {
	s := &Secrets{dir: filepath.Join(dir, secretsDir), program: program}
	if err := s.AddAuthority(); err != nil {
		return nil, err
	}
	if err := s.IssueAnew(); err != nil {
		return nil, err
	}
	root, err := s.AddRoot()
	if err != nil {
		return nil, err
	}
	s.UseRoot(root, 0)
	return s, nil
}

// run runs a command of the program and reads what it says.
func (s *Secrets) run(answer any, args ...string) error {
	//nolint:noctx // it takes milliseconds and does not wait
	c := exec.Command(s.program, append(args, "-o", "json")...)
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("belfry %s: %w", strings.Join(args, " "), err)
	}
	if err := json.Unmarshal(out, answer); err != nil {
		return fmt.Errorf("reading what belfry %s says: %w", strings.Join(args, " "), err)
	}
	return nil
}

// AddAuthority makes one more authority for the nodes of the cluster, which is believed from now on
// by clients, and by nodes when they are equipped anew. The one before goes on issuing.
func (s *Secrets) AddAuthority() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	dir := filepath.Join(s.dir, fmt.Sprintf("authority-%d", s.made))
	var made struct {
		Domain string `json:"domain"`
	}
	args := []string{"cert", "--dir", dir, "--node", "nobody"}
	if s.domain != "" {
		args = append(args, "--domain", s.domain)
	}
	if err := s.run(&made, args...); err != nil {
		return err
	}
	s.domain = made.Domain
	s.authorities = append([]string{dir}, s.authorities...) // the first is new, the last one issues
	return s.believe()
}

// IssueAnew has the newest authority issue certificates from now on.
func (s *Secrets) IssueAnew() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.authorities = append(s.authorities[1:], s.authorities[0])
	return s.believe()
}

// ForgetAuthorities has only the one that issues be believed.
func (s *Secrets) ForgetAuthorities() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.authorities = s.authorities[len(s.authorities)-1:]
	return s.believe()
}

// believe has clients believe the authorities. mu is held.
func (s *Secrets) believe() error {
	text, err := s.bundle()
	if err != nil {
		return err
	}
	s.pool = x509.NewCertPool()
	if !s.pool.AppendCertsFromPEM(text) {
		return errors.New("the authorities of the lab have no certificate")
	}
	return nil
}

// bundle returns the certificates of the authorities. mu is held.
func (s *Secrets) bundle() (text []byte, err error) {
	for _, dir := range s.authorities {
		one, err := os.ReadFile(filepath.Join(dir, authorityFile))
		if err != nil {
			return nil, fmt.Errorf("reading an authority: %w", err)
		}
		text = append(text, one...)
	}
	return text, nil
}

// AddRoot makes a root token, which nodes know when they are equipped anew.
func (s *Secrets) AddRoot() (*Root, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir, name := filepath.Join(s.dir, "roots"), fmt.Sprintf("root-%d", len(s.all)+1)
	var made struct {
		ID         string `json:"id"`
		Token      string `json:"token"`
		RootTokens string `json:"rootTokens"`
	}
	if err := s.run(&made, "token", "root", "--dir", dir, "--name", name); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(made.Token)
	if err != nil {
		return nil, fmt.Errorf("reading a root token: %w", err)
	}
	known, err := os.ReadFile(made.RootTokens)
	if err != nil {
		return nil, fmt.Errorf("reading the root tokens: %w", err)
	}
	root := &Root{Token: Token{ID: made.ID, Text: strings.TrimSpace(string(text))}}
	for line := range strings.Lines(string(known)) {
		if strings.HasPrefix(line, root.ID) {
			s.roots = append(s.roots, line)
		}
	}
	s.all = append(s.all, root)
	return root, nil
}

// UseRoot has the harness's clients carry a root token from now on, which every node knows. The one
// before is about to end.
func (s *Secrets) UseRoot(root *Root, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	root.Known, s.inUse = now, root
	for _, other := range s.all {
		if other != root && other.Ending == 0 {
			other.Ending = now
		}
	}
}

// ForgetRoots takes all root tokens but the one in use out of the files that nodes get from now on.
func (s *Secrets) ForgetRoots() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roots = s.roots[len(s.roots)-1:]
}

// RootsForgotten says that every node has read such a file.
func (s *Secrets) RootsForgotten(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.all {
		if r.Ending != 0 && r.Ended == 0 {
			r.Ended = now
		}
	}
}

// Root returns the root token in use.
func (s *Secrets) Root() Token {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inUse.Token
}

// Roots returns all root tokens that there ever were.
func (s *Secrets) Roots() (all []Root) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.all {
		all = append(all, *r)
	}
	return all
}

// nodeDir is where a node finds its files.
func (s *Secrets) nodeDir(node string) string { return filepath.Join(s.dir, "nodes", node) }

// Equip gives a node a new certificate, the authorities and the root tokens that there are now.
// They take the place of what was there at once: the node may be starting.
func (s *Secrets) Equip(node string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	issuer := s.authorities[len(s.authorities)-1]
	var made struct{}
	if err := s.run(&made, "cert", "--dir", issuer, "--node", node); err != nil {
		return err
	}
	bundle, err := s.bundle()
	if err != nil {
		return err
	}
	cert, certErr := os.ReadFile(filepath.Join(issuer, node+".pem"))
	key, keyErr := os.ReadFile(filepath.Join(issuer, node+"-key.pem"))
	if err := errors.Join(certErr, keyErr); err != nil {
		return fmt.Errorf("reading the certificate of %s: %w", node, err)
	}
	s.made++
	dir, version := s.nodeDir(node), fmt.Sprintf("v%d", s.made)
	if err := os.MkdirAll(filepath.Join(dir, version), 0o700); err != nil {
		return fmt.Errorf("making a directory for the certificate of %s: %w", node, err)
	}
	for name, text := range map[string][]byte{certFile: cert, keyFile: key, authorityFile: bundle,
		rootsFile: []byte(strings.Join(s.roots, ""))} {
		if err := os.WriteFile(filepath.Join(dir, version, name), text, 0o600); err != nil {
			return fmt.Errorf("writing %s of %s: %w", name, node, err)
		}
	}
	link := filepath.Join(dir, version+".link")
	if err := errors.Join(os.Symlink(version, link), os.Rename(link, filepath.Join(dir, current))); err != nil {
		return fmt.Errorf("giving %s its certificate: %w", node, err)
	}
	return nil
}

// Flags are those of a node that has been equipped.
func (s *Secrets) Flags(node string) []string {
	at := func(name string) string { return filepath.Join(s.nodeDir(node), current, name) }
	return []string{"--tls-cert", at(certFile), "--tls-key", at(keyFile), "--tls-ca", at(authorityFile), "--root-tokens",
		at(rootsFile)}
}

// TLS returns the settings with which a client connects to a node. By the certificate it accepts
// only that node.
func (s *Secrets) TLS(node string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientSessionCache: nil,
		InsecureSkipVerify: true, //nolint:gosec // all is verified below, by the authorities that there are then
		VerifyConnection:   func(state tls.ConnectionState) error { return s.verify(node, state.PeerCertificates) },
	}
}

// verify reports what is wrong with the certificates that a node shows a client.
func (s *Secrets) verify(node string, shown []*x509.Certificate) error {
	s.mu.Lock()
	pool := s.pool
	want := fmt.Sprintf("belfry://%s/node/%s", s.domain, node)
	s.mu.Unlock()
	if len(shown) == 0 {
		return errors.New("who answers shows no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range shown[1:] {
		between.AddCert(c)
	}
	if _, err := shown[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between,
		DNSName: "localhost"}); err != nil {
		return fmt.Errorf("who answers for %s: %w", node, err)
	}
	if uris := shown[0].URIs; len(uris) != 1 || uris[0].String() != want {
		return fmt.Errorf("who answers for %s shows the certificate of %v", node, uris)
	}
	return nil
}

// transport returns how the harness itself reaches a node, with the root token in use.
func (s *Secrets) transport(node string) http.RoundTripper {
	return s.WithToken(s.TLS(node))
}

// WithToken returns a transport with the current root token, to the server that a configuration is
// for.
func (s *Secrets) WithToken(to *tls.Config) http.RoundTripper {
	return carrier{s, &http.Transport{TLSClientConfig: to, DisableKeepAlives: true}}
}

// carrier has requests carry the root token in use.
type carrier struct {
	secrets *Secrets
	inner   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	carrying := r.Clone(r.Context())
	carrying.Header.Set("Authorization", "Bearer "+c.secrets.Root().Text)
	return c.inner.RoundTrip(carrying)
}

// Environment is with what a command of the program finds its way to the nodes, besides their
// address: it believes their authorities and has the root token in use.
func (s *Secrets) Environment() ([]string, error) {
	s.mu.Lock()
	bundle, err := s.bundle()
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	ca, token := filepath.Join(s.dir, "harness-ca.pem"), filepath.Join(s.dir, "harness.token")
	if err := errors.Join(os.WriteFile(ca, bundle, 0o600),
		os.WriteFile(token, []byte(s.Root().Text+"\n"), 0o600)); err != nil {
		return nil, fmt.Errorf("writing what commands prove themselves with: %w", err)
	}
	return []string{"BELFRY_TLS_CA=" + ca, "BELFRY_TOKEN_FILE=" + token}, nil
}
