package belfrytest_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
)

// BenchmarkSDK puts jobs of 100 bytes, and then reserves and acks them, by 512 callers that make
// single calls. Client and server share the process, and the server syncs its disk.
func BenchmarkSDK(b *testing.B) {
	for _, inFlight := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("inflight=%d", inFlight), func(b *testing.B) {
			c := belfrytest.Start(b, belfrytest.Synced()).Client(b, client.Coalescing{InFlight: inFlight})
			body := make([]byte, 100)
			puts := byCallers(b, func() error {
				_, err := c.Put(b.Context(), "orders", body)
				return err
			})
			acks := byCallers(b, func() error {
				jobs, err := c.Reserve(b.Context(), client.ReserveOptions{Queues: []string{"orders"}, Wait: 5 * time.Second})
				if err != nil {
					return err
				}
				return jobs[0].Ack(b.Context())
			})
			b.ReportMetric(puts, "puts/s")
			b.ReportMetric(acks, "reserve+acks/s")
		})
	}
}

// byCallers makes b.N calls by 512 callers and gives how many a second there were.
func byCallers(b *testing.B, call func() error) float64 {
	const callers = 512
	began := time.Now()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for n := i; n < b.N; n += callers {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return float64(b.N) / time.Since(began).Seconds()
}
