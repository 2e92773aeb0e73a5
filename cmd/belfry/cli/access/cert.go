// Package access has the commands that make certificates and tokens.
package access

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/access/certs"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/node/identity"
)

// The files that `cert` makes besides those of each node.
const (
	AuthorityCert = "ca.pem"
	authorityKey  = "ca-key.pem"
	GossipKeyFile = "gossip.keys"
	// keySuffix is behind the name of a node, or of the authority, in that of its key's file.
	keySuffix = "-key"

	gossipKeyBytes = 32
	certDaysMax    = 3650
)

// certFlags are the flags of `cert`.
type certFlags struct {
	dir    string
	domain string
	nodes  []string // NAME or NAME=HOST,HOST
	days   int
}

// madeCert is a certificate that was made, for people and programs.
type madeCert struct {
	Node     string    `json:"node"`
	Cert     string    `json:"cert"`
	Key      string    `json:"key"`
	Hosts    []string  `json:"hosts"`
	NotAfter time.Time `json:"notAfter"`
}

// MadeCerts is what `cert` did.
type MadeCerts struct {
	Domain     string     `json:"domain"`
	CA         string     `json:"ca"`
	GossipKeys string     `json:"gossipKeys"`
	Nodes      []madeCert `json:"nodes"`
}

// verbs are the commands of certificates and tokens.
type verbs struct{ *cli.App }

// Commands returns `cert` and `token`.
func Commands(a *cli.App) []*cobra.Command {
	v := verbs{a}
	return []*cobra.Command{v.certCommand(), v.tokenCommand()}
}

func (a verbs) certCommand() *cobra.Command {
	f := &certFlags{}
	c := &cobra.Command{
		Use:   "cert --node NAME[=HOST,…]",
		Short: "Make a private authority, certificates of nodes, and a gossip key",
		Long: `
Cert makes what nodes need to prove to each other and to clients who they are. In the directory it
finds or makes an authority for the nodes of one cluster (ca.pem, ca-key.pem) and a gossip key
(gossip.keys), and for each node it makes a new certificate (NAME.pem, NAME-key.pem), also if there
is one. Another cluster needs a directory of its own, and so does a new authority for the same
nodes, made with --domain.

Give each node its own two files, ca.pem and gossip.keys; ca-key.pem stays where it is, and whoever
has it can be any node. Clients need ca.pem. The hosts are those at which clients look for the node;
localhost is always among them.`,
		Example: "  belfry cert --node n1=n1.example.org,10.0.0.1 --node n2=10.0.0.2 --node n3=10.0.0.3\n" +
			"  belfry serve --node-id n1 --tls-cert certs/n1.pem --tls-key certs/n1-key.pem \\\n" +
			"    --tls-ca certs/ca.pem --gossip-keys certs/gossip.keys\n" +
			"  belfry health --server https://localhost:7400 --tls-ca certs/ca.pem",
		Args: cli.Arguments(0, 0),
	}
	c.RunE = func(*cobra.Command, []string) error {
		made, err := a.makeCerts(f)
		if err != nil {
			return err
		}
		return a.ShowValue(made, func(w io.Writer) { renderCerts(w, made) })
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.dir, flag.Dir, "certs", "the directory of the files")
	flags.StringArrayVar(&f.nodes, flag.Node, nil,
		"a node and the hosts and addresses of it, `NAME` or NAME=HOST,…; may be repeated")
	flags.StringVar(&f.domain, flag.Domain, "",
		"if an authority is made: the domain of the one that it is to follow; a new one by default")
	flags.IntVar(&f.days, flag.Days, 365,
		"for how many days the nodes' certificates are valid, 1 to 3650; an authority is for ten years")
	return a.OutputFlag(c)
}

// makeCerts makes what the flags say.
func (a verbs) makeCerts(f *certFlags) (*MadeCerts, error) {
	if len(f.nodes) == 0 {
		return nil, cli.Usagef("--node is missing: which nodes get a certificate")
	}
	if f.days < 1 || f.days > certDaysMax {
		return nil, cli.Usagef("--days: must be 1 to %d, is %d", certDaysMax, f.days)
	}
	if f.domain != "" {
		if err := certs.CheckDomain(f.domain); err != nil {
			return nil, cli.Usagef("--domain: %s", err)
		}
	}
	wanted, err := wantedCerts(f)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(f.dir, 0o755); err != nil { //nolint:gosec // the keys in it are for their owner only
		return nil, fmt.Errorf("making the directory of the certificates: %w", err)
	}
	authority, err := a.authority(f)
	if err != nil {
		return nil, err
	}
	keys := filepath.Join(f.dir, GossipKeyFile)
	if err := ensureGossipKey(keys); err != nil {
		return nil, err
	}
	for i := range wanted {
		m := &wanted[i]
		now := a.Now()
		m.NotAfter = now.AddDate(0, 0, f.days).UTC().Truncate(time.Second)
		pair, err := authority.Issue(m.Node, m.Hosts, now, m.NotAfter)
		if err != nil {
			return nil, fmt.Errorf("making the certificate of node %s: %w", m.Node, err)
		}
		if err := pair.Save(m.Cert, m.Key); err != nil {
			return nil, err
		}
	}
	return &MadeCerts{
		Domain: authority.Domain(), CA: filepath.Join(f.dir, AuthorityCert), GossipKeys: keys, Nodes: wanted,
	}, nil
}

// wantedCerts reads the flags. Nothing is written for any node if what is wanted for one cannot be:
// no file may take the place of another.
func wantedCerts(f *certFlags) (wanted []madeCert, err error) {
	taken := map[string]string{
		AuthorityCert: "the authority", authorityKey: "the authority", GossipKeyFile: "the gossip keys",
	}
	for _, text := range f.nodes {
		name, hosts, given := strings.Cut(text, "=")
		if !identity.ValidName(name) {
			return nil, cli.Usagef(
				"--node: have %q, want NAME or NAME=HOST,…; a name is 1 to 64 letters of a to z and A to Z, digits, _ and -", text)
		}
		// as of a variable that is not set; the certificate for its hosts would be replaced by one for
		// none
		if given && strings.Trim(hosts, ", ") == "" {
			return nil, cli.Usagef("--node: have %q, want hosts after the =, or no =", text)
		}
		if strings.HasSuffix(name, keySuffix) {
			return nil, cli.Usagef(
				"--node: the certificate of %s would have the name that the key of %s has: give it another name", name,
				strings.TrimSuffix(name, keySuffix))
		}
		for _, file := range []string{name + ".pem", name + keySuffix + ".pem"} {
			if whose := taken[strings.ToLower(file)]; whose != "" {
				return nil, cli.Usagef("--node: %s of %s would take the place of a file of %s", file, name, whose)
			}
			taken[strings.ToLower(file)] = "node " + name
		}
		m := madeCert{
			Node: name, Cert: filepath.Join(f.dir, name+".pem"), Key: filepath.Join(f.dir, name+keySuffix+".pem"),
			Hosts: []string{"localhost", "127.0.0.1", "::1"},
		}
		for host := range strings.SplitSeq(hosts, ",") {
			host = strings.TrimSpace(host)
			switch {
			case host == "":
			case !validHost(host):
				return nil, cli.Usagef(
					"--node %s: %q is neither the name of a host nor an address; there is no port in it, and no scheme", name, host)
			case !slices.ContainsFunc(m.Hosts, func(other string) bool { return sameHost(other, host) }):
				m.Hosts = append(m.Hosts, host)
			}
		}
		wanted = append(wanted, m)
	}
	return wanted, nil
}

// sameHost reports whether two hosts are written differently at most: names in another case,
// addresses in another form.
func sameHost(a, b string) bool {
	if ip := net.ParseIP(a); ip != nil {
		return ip.Equal(net.ParseIP(b))
	}
	return strings.EqualFold(a, b)
}

// validHost reports whether a certificate can be for a host: an address without zone, or a name,
// which may begin with *.
func validHost(host string) bool {
	const nameMax = 253
	return net.ParseIP(host) != nil || len(host) <= nameMax && hostName.MatchString(host)
}

var hostName = regexp.MustCompile(
	`^(\*\.)?[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?)*$`)

// authority reads the authority of the directory, or makes one.
func (a verbs) authority(f *certFlags) (*certs.Authority, error) {
	cert, key := filepath.Join(f.dir, AuthorityCert), filepath.Join(f.dir, authorityKey)
	_, certErr := os.Stat(cert)
	_, keyErr := os.Stat(key)
	switch {
	case errors.Is(certErr, fs.ErrNotExist) && errors.Is(keyErr, fs.ErrNotExist):
		authority, pair, err := certs.NewAuthority(f.domain, a.Now())
		if err != nil {
			return nil, fmt.Errorf("making an authority: %w", err)
		}
		return authority, pair.Save(cert, key)
	case certErr != nil || keyErr != nil:
		return nil, fmt.Errorf(
			"of %s and %s one is missing: what it issued stays good, and there can be more only with both; use another --dir "+
				"for a new authority", cert, key)
	}
	authority, err := certs.ReadAuthority(cert, key)
	if err != nil {
		return nil, err
	}
	if f.domain != "" && f.domain != authority.Domain() {
		return nil, cli.Usagef("--domain: the authority in %s is that of %s; use another --dir for another one", f.dir,
			authority.Domain())
	}
	return authority, nil
}

// ensureGossipKey makes a file with one gossip key unless there is one.
func ensureGossipKey(path string) error {
	_, err := os.Stat(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key := make([]byte, gossipKeyBytes)
	_, _ = rand.Read(key) // never fails
	return certs.WriteSecret(path, []byte(base64.StdEncoding.EncodeToString(key)+"\n"))
}

// renderCerts shows what was made.
func renderCerts(w io.Writer, made *MadeCerts) {
	fmt.Fprintf(w, "authority %s of the nodes of %s, gossip keys %s\n", made.CA, made.Domain, made.GossipKeys)
	for _, m := range made.Nodes {
		fmt.Fprintf(w, "node %s: %s and %s, for %s, until %s\n", m.Node, m.Cert, m.Key, strings.Join(m.Hosts, ", "),
			m.NotAfter.Format(time.RFC3339))
	}
}
