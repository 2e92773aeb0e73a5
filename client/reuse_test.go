package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/client/internal/placement"
	"github.com/belfrydb/belfry/client/internal/session"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// TestInTakesOnePiece: the delay of a put is one piece of memory, and what durationpb makes of it.
func TestInTakesOnePiece(t *testing.T) {
	for _, d := range []time.Duration{0, 1, time.Minute + 3, -time.Second - 5} {
		var req belfryv1.PutRequest
		option := In(d)
		if n := testing.AllocsPerRun(20, func() { option.apply(&req) }); n > 1 {
			t.Errorf("%v pieces of memory for a delay", n)
		}
		if !proto.Equal(req.GetDelay(), durationpb.New(d)) {
			t.Errorf("%v became %v", d, req.GetDelay())
		}
	}
}

// TestPutBatchKeepsNothing: the memory of a call that is over refers to nothing of it, and no large
// piece is kept.
func TestPutBatchKeepsNothing(t *testing.T) {
	c := serveSocket(t, NewFake().Handler())
	for _, size := range []int{100, session.RequestBytesKept + 1} {
		s := c.scratch()
		s.chunk.client, s.chunk.results = c, make([]PutResult, 1)
		s.chunk.wire = make([]byte, size)
		s.chunk.add(0, encodedPut{wire: s.chunk.wire, place: placement.Place{Queue: "q"}}, size)
		c.free(s)
		left := s.chunk.puts[:1]
		if s.chunk.client != nil || s.chunk.results != nil || s.chunk.bytes != 0 || len(s.chunk.places) != 0 ||
			left[0].wire != nil || left[0].place != (placement.Place{}) {
			t.Errorf("it keeps %+v, %+v", s.chunk, left)
		}
		if len(s.chunk.wire) != 0 || cap(s.chunk.wire) > session.RequestBytesKept {
			t.Errorf("%d of %d bytes are kept", len(s.chunk.wire), cap(s.chunk.wire))
		}
	}
}

// TestPutBatchTwice: what a call left in memory that is used again is not in the next.
func TestPutBatchTwice(t *testing.T) {
	fake := NewFake()
	c := serveSocket(t, fake.Handler())
	var want []string
	for call, n := range []int{3, 1, 5} {
		puts := make([]Put, n)
		for i := range puts {
			puts[i] = Put{Queue: "q", Body: fmt.Append(nil, call, "/", i)}
			want = append(want, string(puts[i].Body))
		}
		if results, err := c.PutBatch(t.Context(), puts); err != nil || len(results) != n {
			t.Fatal(len(results), err)
		}
	}
	var got []string
	for _, job := range fake.jobs {
		got = append(got, string(job.put.GetData()))
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPutBatchAfterItsEnd: nothing is sent of a batch whose context has ended, and every entry says
// so.
func TestPutBatchAfterItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &sessionServer{Fake: NewFake()}
		c := startSessions(t, newPipeNet(), nil, server)
		if _, err := c.PutBatch(t.Context(), []Put{{Queue: "q"}}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		results, err := c.PutBatch(ctx, make([]Put, 3))
		if synctest.Wait(); err == nil || len(server.jobs) != 1 {
			t.Fatalf("%v, %d jobs", err, len(server.jobs))
		}
		for i, result := range results {
			if e := new(Error); !errors.As(result.Err, &e) || e.Outcome != OutcomeNotApplied || !errors.Is(e, context.Canceled) {
				t.Errorf("entry %d: %v", i, result.Err)
			}
		}
	})
}

// TestPutBatchTriesEntriesAgain: what the first attempt did not settle is tried again under the
// same request id, and an error has it.
func TestPutBatchTriesEntriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		fake.entryFault = func(queue string, attempt int) *belfryv1.EntryError {
			switch {
			case queue == "full":
				return &belfryv1.EntryError{
					Code: "resource_exhausted", Reason: belfryv1.Reason_REASON_QUEUE_FULL,
					Outcome: belfryv1.Outcome_OUTCOME_NOT_APPLIED,
				}
			case queue == "moving" && attempt < 3:
				return &belfryv1.EntryError{
					Code: "unavailable", Reason: belfryv1.Reason_REASON_NO_LEADER, Outcome: belfryv1.Outcome_OUTCOME_NOT_APPLIED,
				}
			}
			return nil
		}
		fake.failAfter(func(_ context.Context, _ string, req proto.Message) error {
			if batch, ok := req.(*belfryv1.PutBatchRequest); ok {
				fake.mu.Lock()
				defer fake.mu.Unlock()
				delete(fake.answers, batch.GetRequestId())
			}
			return nil
		})
		c := start(t, newPipeNet(), nil, fake)
		results, err := c.PutBatch(t.Context(), []Put{
			{Queue: "ok", Options: []PutOption{ID("a")}},
			{Queue: "full"},
			{Queue: "moving"},
		})
		if typed := new(Error); !errors.As(err, &typed) || typed.RequestID == "" || !errors.Is(results[1].Err, ErrQueueFull) {
			t.Errorf("%+v", typed)
		}
		if results[0].Err != nil || results[0].ID != "a" || results[2].Err != nil || results[2].ID == "" {
			t.Errorf("%+v", results)
		}
		if ids := fake.ids("PutBatch"); len(ids) != 3 || len(slices.Compact(ids)) != 1 {
			t.Errorf("request ids %v", ids)
		}
	})
}

// A shortAnswer answers batches with one result, however many puts they have.
type shortAnswer struct{ sink }

// PutBatch implements QueueService.
func (s *shortAnswer) PutBatch(ctx context.Context, req *belfryv1.PutBatchRequest) (*belfryv1.PutBatchResponse, error) {
	return s.sink.PutBatch(ctx, &belfryv1.PutBatchRequest{Jobs: req.GetJobs()[:1]})
}

// TestAnswersWithTooFewResults settle nothing.
func TestAnswersWithTooFewResults(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle(belfryv1connect.NewQueueServiceHandler(&shortAnswer{}))
	results, err := serveSocket(t, mux).PutBatch(t.Context(), make([]Put, 3))
	if err == nil {
		t.Error("no error")
	}
	for i, result := range results {
		if e := new(Error); !errors.As(result.Err, &e) || e.Outcome != OutcomeUnknown {
			t.Errorf("entry %d: %v", i, result.Err)
		}
	}
}
