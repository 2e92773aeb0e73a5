package migration

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
)

// replicasFlag adds the flag of what brings jobs to Redis.
func replicasFlag(c *cobra.Command, replicas *int) {
	c.Flags().IntVar(replicas, flag.Replicas, 0,
		"how many replicas of Redis must have a job before it leaves Belfry; without it a failover of Redis may lose what "+
			"was just written")
}

// serveMetrics serves metrics at an address until stop is called; nowhere if the address is empty.
// It says where on standard error.
func (a verbs) serveMetrics(ctx context.Context, address string,
	c prometheus.Collector) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(c); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, cli.Usagef("--metrics-listen: %s", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: metricsWait, WriteTimeout: metricsWait}
	var group sync.WaitGroup
	group.Go(func() { _ = s.Serve(listener) }) // that it was closed
	whom := ""
	if !cli.OnLoopback(listener.Addr().String()) {
		whom = ", for whoever reaches it"
	}
	fmt.Fprintf(a.Err, "belfry: metrics at http://%s/metrics%s\n", listener.Addr(), whom)
	return func() {
		_ = s.Close() // nothing is lost by it
		group.Wait()
	}, nil
}

// metricsWait is how long a reader of metrics may take.
const metricsWait = 10 * time.Second
