package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/access/certs"
	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/peer"
)

const (
	// expiryWarning is how long before the end of a certificate the log starts to warn. expiryAgain is
	// the time between two warnings.
	expiryWarning = 30 * 24 * time.Hour
	expiryAgain   = 24 * time.Hour
)

// loadCredentials reads the node's certificates; nil without TLS.
func loadCredentials(cfg Config) (*certs.Identity, error) {
	if err := cfg.TLS.Check(); err != nil {
		return nil, &ConfigError{err.Error()}
	}
	if cfg.TLS == (certs.Files{}) {
		return nil, nil
	}
	credentials, err := certs.Load(cfg.TLS)
	if err != nil {
		return nil, &ConfigError{fmt.Sprintf("--tls-cert, --tls-key and --tls-ca: %s", err)}
	}
	return credentials, nil
}

// forClients returns the TLS settings of the port for clients; nil without TLS.
func forClients(credentials *certs.Identity) *tls.Config {
	if credentials == nil {
		return nil
	}
	return credentials.ForClients()
}

// certificateMetrics returns the metrics of the certificates; none without TLS.
func certificateMetrics(credentials *certs.Identity) []prometheus.Collector {
	if credentials == nil {
		return nil
	}
	return []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "belfry_certificate_expiry_timestamp_seconds", Help: "When the first of the certificates in use ends.",
	}, func() float64 { return float64(credentials.NotAfter().Unix()) })}
}

// warnOfEnd logs now, and then once a day until ctx ends, if a certificate expires soon.
func warnOfEnd(ctx context.Context, logger *slog.Logger, credentials *certs.Identity) {
	again := time.NewTicker(expiryAgain)
	defer again.Stop()
	for {
		if end := credentials.NotAfter(); time.Until(end) < expiryWarning {
			logger.Warn("a certificate of this node ends soon, and then nobody connects to it: replace it, and send SIGHUP",
				"end", end)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// checkCredentials refuses the certificate of another node: no node would connect to this one.
func (b *bootstrap) checkCredentials(known identity.Identity) error {
	if b.credentials == nil {
		return nil
	}
	proven, name := b.credentials.Name().Node, b.name
	setDefault(&name, known.Name)
	if proven != name {
		return &ConfigError{fmt.Sprintf("--tls-cert: it is the certificate of node %s, and this is node %s", proven, name)}
	}
	return nil
}

// unproven reports whether an error comes from a handshake in which one of two nodes refused the
// other's certificate.
func unproven(err error) bool {
	_, told := errors.AsType[tls.AlertError](err)
	return told || errors.Is(err, certs.ErrRefused)
}

// dial returns the function that connects to other nodes; nil for plain TCP.
func (b *bootstrap) dial() func(ctx context.Context, addr string) (net.Conn, error) {
	if b.credentials == nil {
		return nil
	}
	return b.credentials.Dial
}

// askToFound is peer.AskToFound under the node's credentials.
func (b *bootstrap) askToFound(ctx context.Context, addr, asker string) (peer.Introduction, error) {
	return peer.AskToFound(ctx, b.dial(), addr, asker)
}

// secured returns a listener for other nodes under the node's credentials. Nil stays nil.
func (b *bootstrap) secured(l net.Listener) net.Listener {
	if b.credentials == nil || l == nil {
		return l
	}
	return b.credentials.Listen(l)
}

// securedStrangers is secured for a listener whose Accept can be ended.
func (b *bootstrap) securedStrangers(l peer.StrangerListener) peer.StrangerListener {
	return &stoppableListener{b.secured(l), l}
}

// stoppableListener wraps a listener. SetDeadline on the inner one ends Accept.
type stoppableListener struct {
	net.Listener
	inner peer.StrangerListener
}

// SetDeadline implements peer.StrangerListener.
func (l *stoppableListener) SetDeadline(t time.Time) error { return l.inner.SetDeadline(t) }

// Reload reads the files of gossip keys, root tokens and certificates again. For a file with an
// error the earlier content stays in use, and the error says why. Reload also repeats the warnings
// about files that every user may read.
func (s *Server) Reload() error {
	s.cfg.warnOfReaders()
	var problems []error
	switch {
	case s.cfg.GossipKeys == "":
	case s.bootstrap.gossip == nil:
		problems = append(problems, errors.New("this node does not gossip, so that it has no use for gossip keys"))
	default:
		problems = append(problems, s.bootstrap.gossip.ReloadKeys())
	}
	problems = append(problems, s.authenticator.reload())
	if s.credentials != nil {
		err := s.credentials.Reload()
		if err == nil {
			s.cfg.Logger.Info("certificates reloaded", "end", s.credentials.NotAfter())
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}
