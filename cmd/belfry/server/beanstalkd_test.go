package server_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/access/certs"
	"github.com/belfrydb/belfry/cmd/belfry/server"
)

// TestBeanstalkdSettings: strangers must not act under a token, and calls must have one where they need
// one.
func TestBeanstalkdSettings(t *testing.T) {
	t.Parallel()
	secured := func(c *server.Config) {
		c.TLS, c.RootTokens, c.Alone = certs.Files{Cert: "c", Key: "k", CA: "a"}, "r", true
	}
	for _, tt := range []struct {
		about   string
		door    server.Beanstalkd
		change  func(*server.Config)
		refused string // empty if it is allowed
	}{
		{"loopback", server.Beanstalkd{Listen: "127.0.0.1:0"}, nil, ""},
		{"no port", server.Beanstalkd{Listen: "127.0.0.1"}, nil, "--beanstalkd-listen: have"},
		{"beyond loopback without TLS", server.Beanstalkd{Listen: "0.0.0.0:0"}, nil, "is reachable beyond this machine"},
		{"certificates without TLS", server.Beanstalkd{Listen: "127.0.0.1:0", ClientCA: "a"}, nil,
			"--beanstalkd-client-ca: clients show"},
		{"tokens are needed", server.Beanstalkd{Listen: "127.0.0.1:0"}, secured, "every call needs a token"},
		{"a token on loopback", server.Beanstalkd{Listen: "127.0.0.1:0", TokenFile: "t"}, secured, ""},
		{"a token for strangers", server.Beanstalkd{Listen: "0.0.0.0:0", TokenFile: "t"}, secured,
			"whoever reaches 0.0.0.0:0"},
		{"certificates", server.Beanstalkd{Listen: "0.0.0.0:0", ClientCA: "a"}, secured, ""},
		{"a token for those without a certificate", server.Beanstalkd{Listen: "0.0.0.0:0", TokenFile: "t", ClientCA: "a"},
			secured, "have both, want one"},
	} {
		cfg := config(t, t.TempDir())
		cfg.Beanstalkd = tt.door
		cfg.Beanstalkd.JobBytesMax = 1
		if tt.change != nil {
			tt.change(&cfg)
		}
		err := cfg.Check()
		bad, ok := errors.AsType[*server.ConfigError](err)
		switch {
		case tt.refused == "" && err != nil:
			t.Errorf("%s: %v", tt.about, err)
		case tt.refused != "" && (!ok || !strings.Contains(bad.Error(), tt.refused)):
			t.Errorf("%s: got %v, want a ConfigError with %q", tt.about, err, tt.refused)
		}
	}
	cfg := config(t, t.TempDir())
	cfg.Beanstalkd.Listen = "127.0.0.1:0"
	if err := cfg.Check(); err == nil || !strings.Contains(err.Error(), "--beanstalkd-max-job-bytes: have 0") {
		t.Errorf("no body may have a byte: %v", err)
	}
}
