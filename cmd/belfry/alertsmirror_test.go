package main

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/belfrydb/belfry/cmd/belfry/bridge"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/server"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// mirrorMetrics is what a mirror shows that has done nothing yet.
func mirrorMetrics(t *testing.T) []sample {
	t.Helper()
	registry := prometheus.NewRegistry()
	if err := registry.Register(bridge.NewMeters("orders")); err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(&pageWriter{&page},
		&http.Request{Header: http.Header{}})
	return samplesOf(t, page.String())
}

// pageWriter is an answer of which only the body counts.
type pageWriter struct{ *bytes.Buffer }

func (*pageWriter) Header() http.Header { return http.Header{} }
func (*pageWriter) WriteHeader(int)     {}

// mirroring is a node that bridges the queue orders of a Redis to its own queue shop/orders.
type mirroring struct {
	*testing.T
	server *server.Server
	log    *lockedBuffer
}

// mirroringFrom starts a node, which is stopped when the test ends.
func mirroringFrom(t *testing.T, url string) *mirroring {
	t.Helper()
	host, meters, log := testHost(), bridge.NewMeters(), &lockedBuffer{}
	cfg := host.OwnServer(t.TempDir())
	cfg.NodeID, cfg.Collectors = "n1", []prometheus.Collector{meters}
	s, err := server.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	settings := &bridge.Settings{Redis: url, Queues: []string{"orders=shop/orders"}}
	bridges, err := settings.Bridges()
	if err != nil {
		t.Fatal(err)
	}
	stop, err := bridge.Start(t.Context(), settings, s, bridges, meters, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return &mirroring{t, s, log}
}

// look is a scrape of the node.
func (m *mirroring) look() scrape {
	m.Helper()
	return scrapeOf(m.T, map[string]*server.Server{"n1": m.server})
}

// says waits until the log has a text.
func (m *mirroring) says(text string) {
	m.Helper()
	await(m.T, "the log to say "+text, func() bool { return strings.Contains(m.log.String(), text) })
}

// sees waits until the bridge has looked again, twice, since what is looked at is whole seconds.
func (m *mirroring) sees() {
	m.Helper()
	for range 2 {
		before := sum(m.look(), "belfry_mirror_looked_timestamp_seconds")
		awaitEvery(m.T, 50*time.Millisecond, "another look at Redis", func() bool {
			return sum(m.look(), "belfry_mirror_looked_timestamp_seconds") > before
		})
	}
}

// judge says whether the alert fires if all stays as it is, looks at Redis going on or not.
func (m *mirroring) judge(goesOn, firing bool) {
	m.Helper()
	seen := m.look()
	(&drill{before: seen, after: seen, moving: goesOn}).expect(m.T, firing, "BelfryMirrorLag")
}

// TestAlertsOfTheMirrorFire when Redis ceases to answer, never did or refuses to, and when Belfry
// does not take what is due. A mirror that has nothing to do is quiet, and so is one whose jobs a
// rollback took back.
func TestAlertsOfTheMirrorFire(t *testing.T) {
	t.Parallel()
	for name, happens := range map[string]func(t *testing.T, r *redistest.Server){
		"Redis is killed": func(t *testing.T, r *redistest.Server) {
			m := mirroringFrom(t, r.URL())
			m.sees()
			m.judge(true, false)
			r.Kill()
			m.says("no Redis answers")
			m.judge(false, true)
			r.Restart()
			m.sees()
			m.judge(true, false)
		},
		"Redis was never there": func(t *testing.T, r *redistest.Server) {
			r.Kill()
			m := mirroringFrom(t, r.URL())
			m.says("no Redis answers")
			m.judge(false, true)
		},
		"Redis lets nobody in": func(t *testing.T, r *redistest.Server) {
			m := mirroringFrom(t, r.User("mirror"))
			m.says("mirror: ended")
			(&drill{after: m.look()}).expect(t, true, "BelfryMirrorLag", "BelfryMirrorEnds")
		},
		"a full namespace": func(t *testing.T, r *redistest.Server) {
			m := mirroringFrom(t, r.URL())
			m.sees()
			call(t, m.server, "v1/set-namespace", `{"name":"shop","maxJobs":1}`)
			await(t, "the quota in the metrics", func() bool { return sum(m.look(), "belfry_namespace_limit") == 1 })
			call(t, m.server, "v1/put", `{"queue":"shop/other","text":"x"}`)
			if err := redissontest.New(r.Client(), "orders", redissontest.NewGeneration, time.Now).Offer(t.Context(),
				[]byte("order 1"), time.Now()); err != nil {
				t.Fatal(err)
			}
			m.says("QUOTA")
			m.judge(false, true)
			call(t, m.server, "v1/set-namespace", `{"name":"shop","maxJobs":10}`)
			m.sees()
			m.judge(true, false)
		},
		"a rollback": func(t *testing.T, r *redistest.Server) {
			m := mirroringFrom(t, r.URL())
			m.sees()
			s := cli.NewSystem()
			s.In, s.Out, s.Err = strings.NewReader(""), m.log, m.log
			args := []string{"mirror", "rollback", r.URL(), "--queue", "orders", "--belfry-queue", "shop/orders",
				"--redisson-format", "new", "--server", m.server.URL()}
			if code := run(t.Context(), s, args); code != 0 {
				t.Fatalf("%q ended with %d: %s", args, code, m.log)
			}
			await(t, "the bridge to wait", func() bool { return sum(m.look(), "belfry_mirror_taken_back") == 1 })
			m.judge(false, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			happens(t, redistest.Start(t))
		})
	}
}
