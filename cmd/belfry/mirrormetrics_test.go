package main

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// TestMirrorImportMetrics has an import that follows, and a cut-over, show what they do.
func TestMirrorImportMetrics(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{{"import", "--follow"}, {"cutover", "--quiet", "1h"}} {
		r, belfry := redistest.Start(t), belfrytest.Start(t)
		app := redissontest.New(r.Client(), "orders", redissontest.NewGeneration, time.Now)
		if err := app.Offer(t.Context(), []byte("order 1"), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		metered(t, append([]string{command[0], r.URL(), "--queue", "orders", "--server", belfry.URL}, command[1:]...),
			func(address string) {
				awaitEvery(t, 20*time.Millisecond, "metrics of one entry", func() bool {
					return strings.Contains(metricsAt(t, address), `belfry_mirror_acked_total{redis_queue="orders"} 1`)
				})
			})
	}
}

// metered runs a mirror command, which goes on until it is interrupted, while work is done with the
// address of its metrics.
func metered(t *testing.T, command []string, work func(address string)) {
	t.Helper()
	s, said := cli.NewSystem(), &lockedBuffer{}
	s.In, s.Out, s.Err = strings.NewReader(""), said, said
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, s, append(append([]string{"mirror"}, command...), "--metrics-listen", "127.0.0.1:0"))
	}()
	var address []string
	await(t, "an address", func() bool {
		address = regexp.MustCompile(`http://(127\.0\.0\.1:\d+)/metrics`).FindStringSubmatch(said.String())
		return address != nil
	})
	work(address[1])
	stop()
	if code := <-ended; code == 0 {
		t.Errorf("%q, interrupted, ended with %d", command, code)
	}
}

// TestMirrorLooksAreShown by every command that looks, whatever the source is. A bridge that leaves
// new entries to Redisson does not look, and does not show that it never did.
func TestMirrorLooksAreShown(t *testing.T) {
	t.Parallel()
	r, belfry := redistest.Start(t), belfrytest.Start(t)
	looked := regexp.MustCompile(`belfry_mirror_looked_timestamp_seconds\{redis_queue="[^"]+"\} (\S+)`)
	for command, looks := range map[string]bool{
		"import --queue orders --follow": true, "import --from lmstfy --queue shop/orders --follow": true,
		"run --queue others --no-in": false,
	} {
		words := strings.Fields(command)
		metered(t, append([]string{words[0], r.URL(), "--server", belfry.URL}, words[1:]...), func(address string) {
			if !looks {
				page := metricsAt(t, address)
				if looked.MatchString(page) || !strings.Contains(page, "belfry_mirror_delivered_total") {
					t.Errorf("%s shows\n%s", command, page)
				}
				return
			}
			awaitEvery(t, 20*time.Millisecond, "a look of "+command, func() bool {
				found := looked.FindStringSubmatch(metricsAt(t, address))
				return found != nil && found[1] != "0"
			})
		})
	}
}
