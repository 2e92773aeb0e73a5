package client

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/client/internal/session"
	"github.com/belfrydb/belfry/client/internal/wire"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

var reservedAt = time.UnixMilli(1_800_000_000_123)

// delaysOf is what the retry delays of the job with that number are in reservedJobs: as a rule
// those of the job before.
func delaysOf(job int) []time.Duration {
	all := []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute,
		30 * time.Minute, time.Hour}
	return all[:len(all)-job/10%3]
}

// reservedJobs is an answer to Reserve with n jobs that have bodies of size bytes. Three neighbours
// each have the times of their own.
func reservedJobs(tb testing.TB, n, size int) []byte {
	tb.Helper()
	m := &belfryv1.ReserveResponse{}
	for i := range n {
		now := timestamppb.New(reservedAt.Add(time.Duration(i/3) * time.Second))
		m.Jobs = append(m.Jobs, &belfryv1.Job{
			Queue: "orders", Id: fmt.Sprint("0-", i), Lease: fmt.Sprint("AQZvcmRlcnMAgICAgICAgICAgICAgICAgICAgICA", i),
			DueAt: now, LeaseUntil: now, CreatedAt: now, FirstDueAt: now,
			Body:    &belfryv1.Job_Data{Data: bytes.Repeat([]byte{byte(i)}, size)},
			Witness: &belfryv1.Witness{Shard: 1, Index: 2, Time: now},
		})
		for _, d := range delaysOf(i) {
			m.Jobs[i].RetryDelays = append(m.Jobs[i].RetryDelays, durationpb.New(d))
		}
	}
	data, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// TestJobsStandApart: jobs that share memory do not share what callers may change, and nothing is
// of the answer, whose memory is used again.
func TestJobsStandApart(t *testing.T) {
	for _, size := range []int{0, 1, 100, wire.BytesAlone - 1, wire.BytesAlone, 1000} {
		data := reservedJobs(t, 30, size)
		var a reserveAnswer
		if err := a.DecodeWire(data); err != nil {
			t.Fatal(err)
		}
		clear(data)
		for i, job := range a.jobs {
			if job.Body == nil || !bytes.Equal(job.Body, bytes.Repeat([]byte{byte(i)}, size)) || job.ID != fmt.Sprint("0-", i) ||
				!strings.HasSuffix(job.Lease, fmt.Sprint("A", i)) {
				t.Fatalf("job %d is %+v", i, job)
			}
			if at := reservedAt.Add(time.Duration(i/3) * time.Second); !job.DueAt.Equal(at) || !job.LeaseUntil.Equal(at) ||
				!job.CreatedAt.Equal(at) || !job.FirstDueAt.Equal(at) {
				t.Fatalf("job %d is %+v, of %v", i, job, at)
			}
			if !slices.Equal(job.RetryDelays, delaysOf(i)) {
				t.Fatalf("the retry delays of job %d are %v, want %v", i, job.RetryDelays, delaysOf(i))
			}
			job.Body = append(job.Body, "more"...)
			job.RetryDelays[0]++
			_ = append(job.RetryDelays, 1)
		}
	}
	var d jobDecoder
	if d.next(8, jobBytesTogether+1); d.free != nil {
		t.Error("a job that is not small shares memory")
	}
}

// TestAnswersTakeFewPieces counts the pieces of memory that an answer with 96 entries is decoded
// into.
func TestAnswersTakeFewPieces(t *testing.T) {
	const entries = 96
	puts := &belfryv1.PutBatchResponse{}
	for i := range entries {
		puts.Results = append(puts.Results,
			&belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Put{Put: &belfryv1.PutResponse{Id: fmt.Sprint("0-",
				i+1000)}}})
	}
	put, err := proto.Marshal(puts)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		data   []byte
		answer session.Answer
		most   float64
	}{
		"puts": {put, &putBatchAnswer{}, 6},
		"jobs": {reservedJobs(t, entries, 100), &reserveAnswer{}, 4*entries/wire.Together + 10},
	} {
		if n := testing.AllocsPerRun(20, func() {
			err = errors.Join(err, c.answer.DecodeWire(c.data))
		}); n > c.most || err != nil {
			t.Errorf("%s: %v pieces of memory, want %v at most; %v", name, n, c.most, err)
		}
	}
}
