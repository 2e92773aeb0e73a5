package server

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/belfrydb/belfry/access/certs"
	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/node/identity"
)

// checkListen refuses to expose an unprotected server to a network unless the operator allows it.
func checkListen(cfg *Config) error {
	for _, listen := range []struct{ flag, address string }{
		{"--listen", cfg.Listen},
		{"--peer-listen", cfg.PeerListen},
		{"--gossip-listen", cfg.GossipListen},
		{"--lmstfy-listen", cfg.LmstfyListen},
	} {
		address := listen.address
		if address == "" && listen.flag != "--listen" {
			continue // it defaults to a port next to --listen, or to none
		}
		if err := cfg.checkExposure(listen.flag, address); err != nil {
			return err
		}
	}
	return nil
}

// checkExposure refuses an address that is none, or that strangers reach while the node lacks
// protections.
func (cfg *Config) checkExposure(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if _, number := strconv.ParseUint(port, 10, 16); err != nil || number != nil {
		return &ConfigError{fmt.Sprintf("%s: have %q, want HOST:PORT with a port of 0 to 65535, such as 127.0.0.1:7400",
			flag, address)}
	}
	if cfg.Insecure || local(address) {
		return nil
	}
	if missing := cfg.missing(); len(missing) > 0 {
		return &ConfigError{fmt.Sprintf(
			"%s: %s is reachable beyond this machine, and whoever reaches it could read and change every job, for want of %s: "+
				"'belfry cert' makes certificates and a gossip key, and 'belfry token root' a token; or listen on loopback, or "+
				"say --insecure if the network is protected",
			flag, address, strings.Join(missing, ", "))}
	}
	return nil
}

// missing names the protections that a node reachable beyond its machine should have, and lacks.
func (cfg *Config) missing() (missing []string) {
	if cfg.TLS == (certs.Files{}) {
		missing = append(missing, "TLS (--tls-cert, --tls-key, --tls-ca)")
	}
	if cfg.GossipKeys == "" && !cfg.Alone {
		missing = append(missing, "gossip keys (--gossip-keys)")
	}
	if cfg.RootTokens == "" {
		missing = append(missing, "tokens (--root-tokens)")
	}
	return missing
}

// checkNames refuses invalid names and addresses, an invalid --bootstrap-expect and an unreadable
// file of gossip keys. Its errors name the flags.
func checkNames(cfg *Config) error {
	if cfg.NodeID != "" && !identity.ValidName(cfg.NodeID) {
		return &ConfigError{fmt.Sprintf("--node-id: have %q, want 1 to 64 letters of a to z and A to Z, digits, _ and -",
			cfg.NodeID)}
	}
	if !gossip.ValidZone(cfg.Zone) {
		return &ConfigError{fmt.Sprintf("--zone: have %.100q, want 1 to 64 visible letters of ASCII, without blanks",
			cfg.Zone)}
	}
	if cfg.BootstrapExpect < 0 { // else this node alone would meet it, even if it had a cluster to join
		return &ConfigError{fmt.Sprintf(
			"--bootstrap-expect: have %d, want 1 or more, or 0 to found no cluster together with others", cfg.BootstrapExpect)}
	}
	for _, address := range cfg.Join {
		if !gossip.Dialable(address) {
			return &ConfigError{fmt.Sprintf("--join: have %q, want HOST:PORT, where a node gossips, by default at port 7402",
				address)}
		}
	}
	if cfg.GossipKeys == "" {
		return nil
	}
	if _, err := gossip.ReadKeyFile(cfg.GossipKeys); err != nil {
		return &ConfigError{fmt.Sprintf("--gossip-keys: %s", err)}
	}
	return nil
}

// ConfigError is an error in a setting that keeps the server from running.
type ConfigError struct{ text string }

func (e *ConfigError) Error() string { return e.text }
