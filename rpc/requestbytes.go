package rpc

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// requestBytes measures the requests that carry anything, by what they take on the wire: a batch
// that is compressed is small. The messages of a stream count one by one.
type requestBytes struct {
	sizes *prometheus.HistogramVec
	// known has the series by procedure: to find one by its label costs more than to count a request.
	known sync.Map
}

// newRequestBytes registers the measure.
func newRequestBytes(registry prometheus.Registerer) (*requestBytes, error) {
	const first, factor, buckets = 64, 4, 9 // 4 MiB is the last, which is the limit of a request
	b := &requestBytes{sizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "belfry_request_bytes",
		Help:    "Size of a request or of a message of a stream as it was sent, by procedure; \"/q/\" is the raw route.",
		Buckets: prometheus.ExponentialBuckets(first, factor, buckets),
	}, []string{"procedure"})}
	if err := registry.Register(b.sizes); err != nil {
		return nil, fmt.Errorf("registering the metrics of the sizes of requests: %w", err)
	}
	return b, nil
}

// observe notes one request of a procedure that there is.
func (b *requestBytes) observe(procedure string, bytes int64) {
	if bytes <= 0 {
		return
	}
	series, ok := b.known.Load(procedure)
	if !ok {
		series, _ = b.known.LoadOrStore(procedure, b.sizes.WithLabelValues(procedure))
	}
	series.(prometheus.Observer).Observe(float64(bytes)) //nolint:forcetypeassert // only observers are stored
}
