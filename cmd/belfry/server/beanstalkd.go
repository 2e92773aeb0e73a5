package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/belfrydb/belfry/access/certs"
	"github.com/belfrydb/belfry/rpc"
)

// Beanstalkd configures the front door for programs that speak beanstalkd's protocol.
type Beanstalkd struct {
	// Listen is where it listens, HOST:PORT; empty for nowhere.
	Listen string
	// JobBytesMax bounds the body of a job.
	JobBytesMax int
	// TokenFile has the token under which all connections act. The file is read at each connection. Empty
	// is none.
	TokenFile string
	// ClientCA are the authorities of the certificates that clients must show; each names a token by its
	// common name. Empty asks for none. It excludes TokenFile.
	ClientCA string
}

// check refuses settings with which the door does not open.
func (b *Beanstalkd) check(cfg *Config) error {
	if b.Listen == "" {
		return nil
	}
	if err := cfg.checkExposure("--beanstalkd-listen", b.Listen); err != nil {
		return err
	}
	switch {
	case b.ClientCA != "" && cfg.TLS == (certs.Files{}):
		return &ConfigError{"--beanstalkd-client-ca: clients show certificates only under TLS: --tls-cert, --tls-key and " +
			"--tls-ca are missing"}
	case cfg.RootTokens != "" && b.TokenFile == "" && b.ClientCA == "":
		return &ConfigError{"--beanstalkd-listen: with --root-tokens every call needs a token, and beanstalkd's protocol " +
			"carries none: --beanstalkd-token-file names a token for all connections, --beanstalkd-client-ca lets the " +
			"certificate of a client name one"}
	case b.TokenFile != "" && b.ClientCA != "":
		return &ConfigError{"--beanstalkd-token-file and --beanstalkd-client-ca: have both, want one: a connection acts " +
			"under the token of the file, or under the one that its certificate names"}
	case b.TokenFile != "" && !cfg.Insecure && !local(b.Listen):
		return &ConfigError{fmt.Sprintf("--beanstalkd-listen: whoever reaches %s could do what the token of "+
			"--beanstalkd-token-file may: --beanstalkd-client-ca asks clients for certificates; or listen on loopback, or say "+
			"--insecure if the network is protected", b.Listen)}
	case b.JobBytesMax < 1:
		return &ConfigError{fmt.Sprintf("--beanstalkd-max-job-bytes: have %d, want 1 or more", b.JobBytesMax)}
	}
	return nil
}

// openBeanstalkd listens for programs that speak beanstalkd's protocol, and makes their front door.
func (s *Server) openBeanstalkd(ctx context.Context, cfg Config) (err error) {
	b := &cfg.Beanstalkd
	s.beanstalkd, err = s.listenForProtocol(ctx, "beanstalkd", b.Listen)
	if err != nil || s.beanstalkd == nil {
		return err
	}
	if s.credentials != nil {
		secure, err := b.secure(forClients(s.credentials))
		if err != nil {
			return errors.Join(err, s.beanstalkd.Close())
		}
		s.beanstalkd.Listener = tls.NewListener(s.beanstalkd.Listener, secure)
	}
	s.door = s.rpc.NewBeanstalkd(rpc.Beanstalkd{
		JobBytesMax: b.JobBytesMax, ConnectionsMax: connectionsMax(openFilesMax()) / 2, TokenFile: b.TokenFile,
		Version: cfg.Version,
	})
	return nil
}

// secure returns the TLS settings of the door.
func (b *Beanstalkd) secure(clients *tls.Config) (*tls.Config, error) {
	clients = clients.Clone()
	clients.NextProtos = nil
	if b.ClientCA == "" {
		return clients, nil
	}
	pool, err := certs.ReadAuthorities(b.ClientCA)
	if err != nil {
		return nil, &ConfigError{fmt.Sprintf("--beanstalkd-client-ca: %s", err)}
	}
	clients.ClientCAs, clients.ClientAuth = pool, tls.RequireAndVerifyClientCert
	return clients, nil
}

// closeDoor ends the connections of programs that speak beanstalkd's protocol.
func (s *Server) closeDoor(ctx context.Context) error {
	if s.door == nil {
		return nil
	}
	return errors.Join(s.door.Shutdown(ctx), s.beanstalkd.wait())
}

// BeanstalkdAddress returns the address at which programs that speak beanstalkd's protocol reach the
// server; empty if there is none.
func (s *Server) BeanstalkdAddress() string { return s.beanstalkd.address() }
