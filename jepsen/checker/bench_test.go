package checker

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// manyCalls is the length of the history of BenchmarkCheck.
const manyCalls = 1_000_000

// steady makes a history of puts, reserves and acks, a hundred or so of them in an entry, as a
// cluster under load logs them.
func steady(b *testing.B, calls int) *Run {
	l := newLab(b, 4, 1)
	var held []string
	for n := 0; l.history.Len() < calls; {
		for range 100 {
			n++
			queue := fmt.Sprintf("q%d", n%16)
			req := &belfryv1.PutRequest{Queue: queue,
				Body: &belfryv1.PutRequest_Text{Text: fmt.Sprintf("the body of job %d", n)}}
			if n%2 == 0 {
				req.Id = fmt.Sprintf("job-%d", n)
			} else {
				req.RequestId = fmt.Sprintf("request-%d", n)
			}
			l.put(req, answered)
			l.reserve(&belfryv1.ReserveRequest{Queues: []string{queue}}, answered, func(j *belfryv1.Job) {
				held = append(held, j.GetLease())
			})
		}
		for _, token := range held {
			l.ack(&belfryv1.AckRequest{Lease: token}, answered)
		}
		held = nil
		l.commit()
		l.wait(time.Millisecond)
	}
	return l.run()
}

// busy is the time that the processors have spent on this process.
func busy() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCheck checks a history of a million calls in memory.
func BenchmarkCheck(b *testing.B) {
	run := steady(b, manyCalls)
	b.ReportAllocs()
	before := busy()
	for b.Loop() {
		v := Check(run)
		if !v.Valid() {
			b.Fatal(v.Violations[0])
		}
	}
	b.ReportMetric((busy()-before).Seconds()/float64(b.N)*1e6/float64(run.History.Len()), "cpu-s/Mcalls")
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)*1e6/float64(run.History.Len()), "s/Mcalls")
}
