package server

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/belfrydb/belfry/access/certs"
)

// local reports whether only this machine can reach an address.
func local(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// warnOfExposure logs which protections the node lacks, once its listen addresses are known.
// Operators set --insecure once and forget it.
func (cfg *Config) warnOfExposure() {
	listens := []string{cfg.Listen}
	if cfg.PeerListen != "" { // else it does not gossip either
		listens = append(listens, cfg.PeerListen, cfg.GossipListen)
	}
	if cfg.LmstfyListen != "" {
		listens = append(listens, cfg.LmstfyListen)
	}
	var beyond []string
	for _, address := range listens {
		if !local(address) {
			beyond = append(beyond, address)
		}
	}
	missing := cfg.missing()
	switch {
	case len(beyond) > 0 && len(missing) > 0:
		cfg.Logger.Warn("this node is reachable beyond its machine, and --insecure lets it do without what would protect it",
			slog.String("missing", strings.Join(missing, ", ")), slog.String("consequence", cfg.consequence()),
			slog.String("addresses", strings.Join(beyond, ", ")))
	case cfg.TLS != (certs.Files{}) && cfg.GossipKeys == "" && !cfg.Alone:
		cfg.Logger.Warn("there is TLS, and gossip has no key: whoever reaches its address can tell this node wrong " +
			"addresses of others; 'belfry cert' makes a key, for --gossip-keys")
	}
}

// consequence returns the worst consequence of the missing protections.
func (cfg *Config) consequence() string {
	switch {
	case cfg.RootTokens == "":
		return "whoever reaches it can read and change every job"
	case cfg.TLS == (certs.Files{}):
		return "tokens cross the network in the clear, whoever sees one can use it, and the address for other nodes asks " +
			"nobody for one"
	default:
		return "whoever reaches its gossip address can tell it wrong addresses of others"
	}
}

// warnOfReaders logs the secret files whose mode gives every user of the machine access. The node
// uses them nevertheless: a mount may support no other mode, and a node that does not start
// protects no data.
func (cfg *Config) warnOfReaders() {
	for _, file := range []string{cfg.TLS.Key, cfg.TLS.ClientKey, cfg.GossipKeys, cfg.RootTokens} {
		if file == "" {
			continue
		}
		info, err := os.Stat(file)
		if err != nil { // the load of the file reports it
			continue
		}
		if mode := info.Mode().Perm(); mode&0o007 != 0 {
			cfg.Logger.Warn("every user of this machine may use a file of what is secret: give it mode 0600, or 0640 if a "+
				"group is to read it",
				slog.String("file", file), slog.String("mode", fmt.Sprintf("%#o", mode)))
		}
	}
}
