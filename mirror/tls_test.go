package mirror_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redisconn"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// trust is the configuration of a client that knows an authority, and has a certificate if there is
// a file of one.
func trust(t *testing.T, a *redistest.Authority, cert, key string) *tls.Config {
	t.Helper()
	text, err := os.ReadFile(a.File)
	if err != nil {
		t.Fatal(err)
	}
	c := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	c.RootCAs.AppendCertsFromPEM(text)
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

// access is a client for a URL with what goes with it.
func access(t *testing.T, a redisconn.Access, url string) redis.UniversalClient {
	t.Helper()
	r, err := a.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// TestTLS brings a queue over from servers that speak TLS only, and says what is wrong where it
// cannot.
func TestTLS(t *testing.T) {
	t.Parallel()
	a, other := redistest.NewAuthority(t), redistest.NewAuthority(t)
	cert, key := a.Issue(t, "mirror")
	known, full := trust(t, a, "", ""), trust(t, a, cert, key)
	open, closed, plain := redistest.Start(t, redistest.WithTLS(a)), redistest.Start(t, redistest.WithMutualTLS(a)),
		redistest.Start(t)
	c := belfrytest.Start(t).Client(t)
	for _, good := range []struct {
		server *redistest.Server
		with   *tls.Config
	}{{open, known}, {open, full}, {closed, full}} {
		app := redissontest.New(good.server.Client(), "orders", redissontest.NewGeneration, time.Now)
		if err := app.Offer(t.Context(), []byte("x"), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		counts, err := mirror.Import(t.Context(), access(t, redisconn.Access{TLS: good.with}, good.server.URL()), c,
			mirror.ImportOptions{RedisQueue: "orders", Share: 1})
		if err != nil || counts.Acked != 1 {
			t.Errorf("it counted %+v, %v", counts, err)
		}
	}
	foreign, its := other.Issue(t, "mirror")
	stranger, named := trust(t, a, foreign, its), known.Clone()
	named.ServerName = "elsewhere"
	for name, bad := range map[string]struct {
		url    string
		with   *tls.Config
		passes bool // as what a Redis that is silent or goes for a moment says
		words  []string
	}{
		"an unknown authority": {open.URL(), nil, false, []string{"an authority that this machine does not know",
			"--redis-ca"}},
		"the wrong authority": {open.URL(), trust(t, other, "", ""), false,
			[]string{"an authority that this machine does not know", "--redis-ca"}},
		"no certificate": {closed.URL(), known, false, []string{"TLS handshake was refused",
			"--redis-cert and --redis-key"}},
		"a certificate of others": {closed.URL(), stranger, false, []string{"TLS handshake was refused"}},
		"another host":            {open.URL(), named, false, []string{"for another host", "--redis-tls-name"}},
		"TLS where there is none": {"rediss://" + plain.Address() + "?dial_timeout=100ms", known, true,
			[]string{"no answer in time", "does not speak TLS", "redis://"}},
		"none where there is TLS": {"redis://" + open.Address(), nil, true, []string{"rediss://"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := access(t, redisconn.Access{TLS: bad.with}, bad.url)
			err := redisconn.Reach(t.Context(), r)
			if !bad.passes {
				_, err = mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "orders"})
			}
			for _, word := range bad.words {
				if err == nil || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "\n") {
					t.Errorf("it said %v, which lacks %q", err, word)
				}
			}
		})
	}
	if _, err := (redisconn.Access{TLS: known}).Connect(plain.URL()); err == nil || !strings.Contains(err.Error(),
		"without TLS") {
		t.Errorf("certificates without TLS: %v", err)
	}
}

// TestResetAfterTheHandshakeNamesTheCertificate: the reset of a connection may overtake the alert
// that refuses a client without a certificate.
func TestResetAfterTheHandshakeNamesTheCertificate(t *testing.T) {
	t.Parallel()
	a := redistest.NewAuthority(t)
	pair, err := tls.LoadX509KeyPair(a.Issue(t, "127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var resets sync.WaitGroup
	defer resets.Wait()
	defer l.Close()
	resets.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair},
				MinVersion: tls.VersionTLS12}).HandshakeContext(t.Context())
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	})
	err = redisconn.Reach(t.Context(), access(t, redisconn.Access{TLS: trust(t, a, "", "")},
		"rediss://"+l.Addr().String()))
	if err == nil || !strings.Contains(err.Error(), "--redis-cert and --redis-key") {
		t.Errorf("it said %v", err)
	}
}

// TestTLSCluster: each node of a Redis Cluster has a certificate for its own address, and the URL
// may name another one.
func TestTLSCluster(t *testing.T) {
	t.Parallel()
	a := redistest.NewAuthority(t)
	s := redistest.Start(t, redistest.WithMutualTLS(a), redistest.WithCluster())
	cert, key := a.Issue(t, "mirror")
	offer(t, s.Client(), "orders", "x")
	r := access(t, redisconn.Access{TLS: trust(t, a, cert, key)}, strings.Replace(s.URL(), "rediss", "rediss+cluster", 1))
	if counts, err := mirror.Import(t.Context(), r, belfrytest.Start(t).Client(t),
		mirror.ImportOptions{RedisQueue: "orders", Share: 1}); err != nil || counts.Acked != 1 {
		t.Errorf("it counted %+v, %v", counts, err)
	}
}

// TestPasswords: those of Redis and of its Sentinel are two, and may have any character.
func TestPasswords(t *testing.T) {
	t.Parallel()
	const password = `p@ss/w:rd?#%&+ "ü`
	s, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	if err := s.Client().ACLSetUser(t.Context(), "us@r:/", "reset", "on", ">"+password, "+@all", "~*",
		"&*").Err(); err != nil {
		t.Fatal(err)
	}
	offer(t, s.Client(), "orders", "x")
	s.Replica(t)
	sentinel, at := s.Sentinel(t)
	if err := sentinel.Client().ACLSetUser(t.Context(), "watcher", "reset", "on", ">secret", "+@all",
		"&*").Err(); err != nil {
		t.Fatal(err)
	}
	at = strings.Replace(at, "://", "://us%40r%3A%2F@", 1)
	r := access(t, redisconn.Access{Password: password}, at+"&sentinel_username=watcher&sentinel_password=wrong")
	if _, err := mirror.Rehearse(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "orders"}); err == nil ||
		!strings.Contains(err.Error(), "sentinel_password") {
		t.Errorf("with a wrong password for the Sentinel: %v", err)
	}
	for _, one := range []struct {
		password, url string
	}{
		{"", "redis://us%40r%3A%2F:p%40ss%2Fw%3Ard%3F%23%25%26%2B%20%22%C3%BC@" + s.Address()},
		{password, "redis://us%40r%3A%2F@" + s.Address()},
		{password, "redis://us%40r%3A%2F:other@" + s.Address()},
		{password, at + "&sentinel_username=watcher&sentinel_password=secret"},
	} {
		r := access(t, redisconn.Access{Password: one.password}, one.url)
		if _, err := mirror.Rehearse(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "orders"}); err != nil {
			t.Errorf("%s: %v", one.url, err)
		}
	}
}
