package server

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/access/certs"
)

// warnings counts the lines of a log that say that a certificate ends soon.
type warnings struct{ atomic.Int64 }

// Write implements io.Writer.
func (w *warnings) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("ends soon")) {
		w.Add(1)
	}
	return len(line), nil
}

// TestEndOfACertificateIsSaid: not while it is far, and once a day when it is near, however long
// the server has run.
func TestEndOfACertificateIsSaid(t *testing.T) {
	const day = 24 * time.Hour
	dir := t.TempDir()
	files := certs.Files{
		Cert: filepath.Join(dir, "n1.pem"), Key: filepath.Join(dir, "n1-key.pem"), CA: filepath.Join(dir, "ca.pem"),
	}
	synctest.Test(t, func(t *testing.T) {
		authority, pair, err := certs.NewAuthority("", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.Save(files.CA, filepath.Join(dir, "ca-key.pem")); err != nil {
			t.Fatal(err)
		}
		if pair, err = authority.Issue("n1", nil, time.Now(), time.Now().Add(40*day)); err != nil {
			t.Fatal(err)
		}
		if err := pair.Save(files.Cert, files.Key); err != nil {
			t.Fatal(err)
		}
		credentials, err := certs.Load(files)
		if err != nil {
			t.Fatal(err)
		}
		var log warnings
		ctx, cancel := context.WithCancel(t.Context())
		go warnOfEnd(ctx, slog.New(slog.NewTextHandler(&log, nil)), credentials)
		for _, step := range []struct {
			after time.Duration
			want  int // warnings so far
		}{{10*day + time.Hour, 0}, {day, 1}, {4 * day, 5}} {
			time.Sleep(step.after)
			synctest.Wait()
			if got := int(log.Load()); got != step.want {
				t.Errorf("after %v more it was said %d times, want %d", step.after, got, step.want)
			}
		}
		cancel()
		synctest.Wait()
	})
}

// TestWhatANetworkTakes: beyond loopback a node needs all of TLS, gossip keys and tokens, and each
// that is missing is named.
func TestWhatANetworkTakes(t *testing.T) {
	whole := Config{
		Listen: "0.0.0.0:7400", TLS: certs.Files{Cert: "c", Key: "k", CA: "a"}, GossipKeys: "g", RootTokens: "r",
	}
	for want, change := range map[string]func(cfg *Config){
		"": func(*Config) {}, "TLS": func(cfg *Config) {
			cfg.TLS = certs.Files{}
		}, "gossip keys": func(cfg *Config) { cfg.GossipKeys = "" },
		"tokens": func(cfg *Config) { cfg.RootTokens = "" },
	} {
		cfg := whole
		change(&cfg)
		err := checkListen(&cfg)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), "for want of "+want)) {
			t.Errorf("without %s: %v", want, err)
		}
	}
	alone := whole
	alone.GossipKeys, alone.Alone = "", true
	if err := checkListen(&alone); err != nil {
		t.Errorf("a node that is alone: %v", err)
	}
}
