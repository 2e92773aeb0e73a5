package redisconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrNoRedis says that what answers is something else.
var ErrNoRedis = errors.New("what answers there is no Redis")

// Reach returns an error if no Redis answers, or one that is not of the kind that the URL says; one
// that refuses does answer.
func Reach(ctx context.Context, r redis.UniversalClient) error {
	err := r.Ping(ctx).Err()
	if err == nil {
		return nil
	}
	if OtherKind(err) {
		return Explain(err)
	}
	if _, answered := errors.AsType[redis.Error](err); answered {
		return nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("the connection was closed at once; if %s: %w", missing(r), err)
	}
	var late net.Error
	if errors.As(err, &late) && late.Timeout() && speaksTLS(r) {
		return fmt.Errorf("no answer in time; if this Redis does not speak TLS the URL begins with redis://: %w", err)
	}
	return Explain(err)
}

// OtherKind reports whether an error of [Reach] is that the URL names another kind of Redis than
// there is, or a database that it does not have.
func OtherKind(err error) bool { return otherKind(err) != "" }

// otherKind says which kind there is, and what to write; "" for any other error.
func otherKind(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "ERR DB index is out of range"):
		return "this Redis has no database of that number; the URL ends with one that it has, as /0"
	case strings.Contains(text, "ERR This instance has cluster support disabled"):
		return "this Redis is no node of a Redis Cluster; a URL that begins with redis:// names a server by itself"
	case strings.Contains(text, "ERR unknown command 'sentinel'"), strings.Contains(text,
		"ERR unknown command `sentinel`"):
		return "this Redis is no Sentinel; name the address of one, or begin the URL with redis:// and leave out " +
			"?master_name="
	default:
		return ""
	}
}

// missing says what a client probably lacks if Redis closes its connection at once. With TLS 1.3 a
// server refuses a missing certificate after the handshake, and the reset of the connection may
// overtake its alert.
func missing(r redis.UniversalClient) string {
	if speaksTLS(r) {
		return "Redis wants a certificate, name one and its key with --redis-cert and --redis-key"
	}
	return "this Redis speaks TLS the URL begins with rediss://"
}

// speaksTLS reports whether a client does.
func speaksTLS(r redis.UniversalClient) bool {
	switch r := r.(type) {
	case *redis.Client:
		return r.Options().TLSConfig != nil
	case *redis.ClusterClient:
		return r.Options().TLSConfig != nil
	default:
		return false
	}
}

// noRetries makes the library send no command twice. The caller decides that, because it knows what
// may have been done. Only a client of a Redis Cluster follows its redirections.
const noRetries = -1

// oneDial makes the library try a connection once; the caller knows better for how long to try.
const oneDial = 1

// clusterReload is how often an active client of a Redis Cluster reads the map of slots. Otherwise
// it would not learn that another node took over from one that died.
const clusterReload = time.Second

// Access is what the URL of a Redis does not say. The zero value adds nothing.
type Access struct {
	// TLS has the authorities that sign the servers' certificates, where the machine does not know
	// them, certificates for the servers to see, and a ServerName if theirs do not name the hosts.
	TLS *tls.Config
	// Password is used in place of one in the URL.
	Password string
}

// Connect is that of an Access that adds nothing.
func Connect(text string) (redis.UniversalClient, error) { return Access{}.Connect(text) }

// Connect returns a client for the Redis that a URL names; it sends nothing yet. redis:// and
// rediss:// (TLS 1.2 or later) name a server, as in redis://user:password@host:6379/0.
// redis+cluster:// and rediss+cluster:// name one node of a Redis Cluster. redis+sentinel:// and
// rediss+sentinel:// name a Sentinel, with ?master_name=… and more addresses as addr=host:port.
// User and password are those of Redis. The Sentinels may have their own, as sentinel_username=…
// and sentinel_password=….
func (a Access) Connect(text string) (redis.UniversalClient, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	base, kind, _ := strings.Cut(scheme, "+")
	if !ok || base != "redis" && base != "rediss" && base != "unix" {
		return nil, fmt.Errorf("the Redis URL is %q, should begin with redis://, rediss://, redis+cluster:// or "+
			"redis+sentinel://", withoutPassword(text))
	}
	if a.TLS != nil && base != "rediss" {
		return nil, badURL(text, errors.New("it is without TLS, for which there are certificates; rediss:// is with it"))
	}
	plain := base + "://" + rest
	if u, err := url.Parse(plain); strings.Contains(rest, "@") && (err != nil || u.User == nil) {
		// What the library would say could have a part of the password.
		return nil, badURL(text, errors.New("its user, password, host or port cannot be read; write special characters as "+
			"%XX, such as %40 for @, or put the password into a file"))
	}
	switch kind {
	case "":
		o, err := redis.ParseURL(plain)
		if err != nil {
			return nil, badURL(text, err)
		}
		o.MaxRetries, o.DialerRetries, o.Password = noRetries, oneDial, cmp.Or(a.Password, o.Password)
		if o.TLSConfig != nil {
			o.TLSConfig = a.tls(o.TLSConfig, o.TLSConfig.ServerName)
		}
		return redis.NewClient(o), nil
	case "cluster":
		o, err := redis.ParseClusterURL(plain)
		if err != nil {
			return nil, badURL(text, err)
		}
		// a replica may lack what was written
		o.MaxRetries, o.ReadOnly, o.RouteByLatency, o.RouteRandomly = noRetries, false, false, false
		o.DialerRetries, o.Password, o.ClusterStateReloadInterval = oneDial, cmp.Or(a.Password, o.Password), clusterReload
		if o.TLSConfig != nil {
			o.TLSConfig = a.tls(o.TLSConfig, "")
		}
		return redis.NewClusterClient(o), nil
	case "sentinel":
		return a.sentinel(text, plain)
	default:
		return nil, fmt.Errorf("the Redis URL is %q: there is no kind %q, only cluster and sentinel",
			withoutPassword(text), kind)
	}
}

// sentinel is Connect for the primary that a Sentinel knows.
func (a Access) sentinel(text, plain string) (redis.UniversalClient, error) {
	u, err := url.Parse(plain)
	if err != nil {
		return nil, badURL(text, err)
	}
	query := u.Query()
	user, password := query.Get("sentinel_username"), query.Get("sentinel_password")
	query.Del("sentinel_username")
	query.Del("sentinel_password")
	u.RawQuery = query.Encode()
	o, err := redis.ParseFailoverURL(u.String())
	if err != nil {
		return nil, badURL(text, err)
	}
	if o.MasterName == "" {
		return nil, badURL(text, errors.New("it lacks ?master_name="))
	}
	if u.User != nil { // the library takes them for the Sentinels'
		o.Username, o.Password = o.SentinelUsername, o.SentinelPassword
	}
	o.SentinelUsername, o.SentinelPassword, o.Password = user, password, cmp.Or(a.Password, o.Password)
	o.DialerRetries, o.MaxRetries = oneDial, noRetries
	o.ReplicaOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	if o.TLSConfig != nil {
		o.TLSConfig = a.tls(o.TLSConfig, "")
	}
	return redis.NewFailoverClient(o), nil
}

// tls is the configuration for a URL of which the library made one. Certificates must name the host
// that is dialled, or name if that is not empty.
func (a Access) tls(parsed *tls.Config, name string) *tls.Config {
	c := a.TLS.Clone()
	if c == nil {
		c = &tls.Config{} //nolint:gosec // the version is set below
	}
	c.ServerName = cmp.Or(c.ServerName, name)
	c.MinVersion = max(c.MinVersion, tls.VersionTLS12)
	if parsed.InsecureSkipVerify {
		c.InsecureSkipVerify = true //nolint:gosec // the URL asks for it: skip_verify
	}
	return c
}

func badURL(text string, err error) error {
	if parsing, ok := errors.AsType[*url.Error](err); ok {
		err = parsing.Err // without the URL
	}
	return fmt.Errorf("the Redis URL is %q: %w", withoutPassword(text), err)
}

// withoutPassword is a URL as it may be shown. Options may be passwords as well, and a password may
// have any character.
func withoutPassword(text string) string {
	scheme, rest := "", text
	if end := strings.Index(text, "://"); end >= 0 {
		scheme, rest = text[:end+3], text[end+3:]
	}
	user := ""
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, _, _ = strings.Cut(rest[:at], ":")
		user, rest = user+":…@", rest[at+1:]
	}
	rest, options, _ := strings.Cut(rest, "?")
	if options != "" {
		options = "?…"
	}
	return scheme + user + rest + options
}
