package queue

import (
	"bytes"
	"strconv"
	"testing"
	"time"

	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// BenchmarkCollect turns the grants of one Reserve into an answer: it reads the jobs and makes the
// messages. The jobs have 100 bytes and generated ids.
func BenchmarkCollect(b *testing.B) {
	for _, jobs := range []int{1, 100} {
		b.Run("jobs="+strconv.Itoa(jobs), func(b *testing.B) { benchmarkCollect(b, jobs) })
	}
}

func benchmarkCollect(b *testing.B, jobs int) {
	m := backendtest.NewNode(1)
	p := &poll{service: newService(b, m), queues: []string{"bench"}, jobsMax: uint32(jobs), ttr: time.Hour}
	batch := &belfryv1.PutBatchRequest{}
	for range jobs {
		batch.Jobs = append(batch.Jobs, &belfryv1.PutRequest{
			Queue: "bench", Body: &belfryv1.PutRequest_Data{Data: bytes.Repeat([]byte("x"), 100)},
		})
	}
	if _, err := p.service.PutBatch(b.Context(), batch); err != nil {
		b.Fatal(err)
	}
	reply, err := p.service.router.Node.Do(b.Context(), 0, p.request(step{queues: p.queues}))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		p.jobs, p.witnesses = nil, nil
		if err := p.collect(0, m.WithJobs(0, reply)); err != nil || len(p.jobs) != jobs {
			b.Fatal(len(p.jobs), err)
		}
	}
	b.ReportMetric(float64(jobs)*float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
