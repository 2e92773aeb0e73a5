package bridge

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"

	"github.com/belfrydb/belfry/mirror/redisconn"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
)

// RedisFlags are what the URL of a Redis does not say.
type RedisFlags struct{ ca, cert, key, name, password string }

// Add adds them to a command.
func (f *RedisFlags) Add(flags *pflag.FlagSet) {
	flags.StringVar(&f.password, flag.RedisPasswordFile, "",
		"a `file` with the password for Redis, so that no list of processes shows it; used in place of one in the URL")
	flags.StringVar(&f.ca, flag.RedisCA, "",
		"a `file` of certificates, PEM, of the authorities that sign those of Redis; those that this machine knows if empty")
	flags.StringVar(&f.cert, flag.RedisCert, "",
		"a `file` with the certificate to show to Redis, PEM; read again for each connection")
	flags.StringVar(&f.key, flag.RedisKey, "", "a `file` with the key of --redis-cert, PEM")
	flags.StringVar(&f.name, flag.RedisTLSName, "",
		"the name in the certificates of Redis; by default each must name the host that it is on")
	cli.Configurable(flags, flag.RedisPasswordFile, flag.RedisCA, flag.RedisCert, flag.RedisKey, flag.RedisTLSName)
}

// Connect returns a client for a URL and what the flags say; nothing is sent yet.
func (f *RedisFlags) Connect(url string) (redis.UniversalClient, error) {
	access := redisconn.Access{}
	var err error
	if f.password != "" {
		text, err := os.ReadFile(f.password)
		if err != nil {
			return nil, cli.Usagef("--redis-password-file: %s", err)
		}
		if access.Password = strings.TrimRight(string(text), "\r\n"); access.Password == "" {
			return nil, cli.Usagef("--redis-password-file: %s is empty", f.password)
		}
	}
	if access.TLS, err = f.tls(); err != nil {
		return nil, err
	}
	r, err := access.Connect(url)
	if err != nil {
		return nil, cli.Usagef("%s", err)
	}
	return r, nil
}

// tls is what the flags say about TLS, nil if they say nothing.
func (f *RedisFlags) tls() (*tls.Config, error) {
	if f.ca == "" && f.cert == "" && f.key == "" && f.name == "" {
		return nil, nil //nolint:nilnil // without it the machine's own authorities count
	}
	c := &tls.Config{ServerName: f.name, MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		text, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, cli.Usagef("--redis-ca: %s", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, cli.Usagef("--redis-ca: %s has no certificate in PEM", f.ca)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return nil, cli.Usagef("--redis-cert and --redis-key go together")
	}
	if f.cert == "" {
		return c, nil
	}
	load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		return &pair, err
	}
	if _, err := load(nil); err != nil {
		return nil, cli.Usagef("--redis-cert and --redis-key: %s", err)
	}
	c.GetClientCertificate = load
	return c, nil
}
