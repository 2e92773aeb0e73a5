package client

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/belfrydb/belfry/client/internal/coalesce"
	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/session"
	"github.com/belfrydb/belfry/client/internal/wire"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Generators of the parts of answers; each may be missing.

func maybe[T any](t *rapid.T, name string, g func(t *rapid.T) *T) *T {
	if rapid.Bool().Draw(t, "has "+name) {
		return g(t)
	}
	return nil
}

func drawTime(t *rapid.T) *timestamppb.Timestamp {
	return &timestamppb.Timestamp{
		Seconds: rapid.Int64Range(-1<<33, 1<<36).Draw(t, "seconds"), Nanos: rapid.Int32Range(0, 999_999_999).Draw(t, "nanos"),
	}
}

func drawDuration(t *rapid.T) *durationpb.Duration {
	return durationpb.New(time.Duration(rapid.Int64().Draw(t, "duration")))
}

func drawText(t *rapid.T, name string) string { return rapid.StringN(0, 40, 100).Draw(t, name) }

func drawWitness(t *rapid.T) *belfryv1.Witness {
	return &belfryv1.Witness{
		Shard: rapid.Uint32().Draw(t, "shard"), Index: rapid.Uint64().Draw(t, "index"), Time: maybe(t, "time", drawTime),
	}
}

func drawJob(t *rapid.T) *belfryv1.Job {
	job := &belfryv1.Job{
		Queue: rapid.SampledFrom([]string{"", "q", "ns/q"}).Draw(t, "queue"), Id: drawText(t, "id"),
		Lease: drawText(t, "lease"),
		Fence: rapid.Uint64().Draw(t, "fence"), Attempt: rapid.Uint32().Draw(t, "attempt"), DueAt: maybe(t, "due", drawTime),
		LeaseUntil: maybe(t, "until", drawTime), State: belfryv1.JobState(rapid.Int32Range(0, 9).Draw(t, "state")),
		Priority: rapid.Int64Range(-128, 1<<32-1).Draw(t, "priority"), Ttr: maybe(t, "ttr", drawDuration),
		MaxAttempts: rapid.Uint32().Draw(t, "max"), ExpiresAt: maybe(t, "expires", drawTime), LastError: drawText(t, "error"),
		CreatedAt: maybe(t, "created", drawTime), FirstDueAt: maybe(t, "first", drawTime),
		BodyBytes: rapid.Uint32().Draw(t, "bytes"), Key: drawText(t, "key"),
		Version: rapid.Uint64().Draw(t, "version"), Witness: maybe(t, "witness", drawWitness),
	}
	switch rapid.IntRange(0, 2).Draw(t, "body") {
	case 1:
		job.Body = &belfryv1.Job_Text{Text: drawText(t, "text")}
	case 2:
		job.Body = &belfryv1.Job_Data{Data: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "data")}
	}
	if headers := rapid.MapOfN(rapid.StringN(0, 5, 10), rapid.StringN(0, 5, 10), 0, 4).Draw(t,
		"headers"); len(headers) > 0 {
		job.Headers = headers
	}
	for range rapid.IntRange(0, 5).Draw(t, "delays") {
		if rapid.Bool().Draw(t, "usual delay") { // as the job before may have, too
			job.RetryDelays = append(job.RetryDelays, durationpb.New(time.Second))
		} else {
			job.RetryDelays = append(job.RetryDelays, drawDuration(t))
		}
	}
	return job
}

// encoded encodes a message, and adds a field that a later version may have.
func encoded(t *rapid.T, m proto.Message) []byte {
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	switch rapid.IntRange(0, 3).Draw(t, "unknown field") {
	case 1:
		data = protowire.AppendBytes(protowire.AppendTag(data, 1000, protowire.BytesType), []byte("x"))
	case 2:
		data = protowire.AppendFixed64(protowire.AppendTag(data, 1, protowire.Fixed64Type), math.MaxUint64)
	case 3:
		data = protowire.AppendVarint(protowire.AppendTag(data, 1001, protowire.VarintType), 7)
	}
	return data
}

func TestJobsDecodeAsTheGeneratedCodeDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &belfryv1.ReserveResponse{}
		for range rapid.IntRange(0, 3).Draw(t, "jobs") {
			m.Jobs = append(m.Jobs, drawJob(t))
		}
		var got reserveAnswer
		if err := (session.Codec{}).Unmarshal(encoded(t, m), &got); err != nil {
			t.Fatal(err)
		}
		var want reserveAnswer
		want.jobs = []*Job{}
		for _, job := range m.GetJobs() {
			want.jobs = append(want.jobs, jobOf(nil, job, time.Time{}))
		}
		if diff := cmp.Diff(want.jobs, got.jobs, cmp.AllowUnexported(Job{})); diff != "" {
			t.Fatalf("jobs (-want +got):\n%s", diff)
		}
	})
}

func drawEntryError(t *rapid.T) *belfryv1.EntryError {
	return &belfryv1.EntryError{
		Code: rapid.SampledFrom([]string{"", "unavailable", "not_found"}).Draw(t, "code"), Message: drawText(t, "message"),
		Reason:  belfryv1.Reason(rapid.Int32Range(1, 24).Draw(t, "reason")),
		Outcome: belfryv1.Outcome(rapid.Int32Range(1, 3).Draw(t, "outcome")),
		Shard:   maybe(t, "shard", func(t *rapid.T) *uint32 { return new(rapid.Uint32().Draw(t, "shard")) }),
	}
}

func TestBatchAnswersDecodeAsTheGeneratedCodeDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		puts, acks := &belfryv1.PutBatchResponse{}, &belfryv1.AckBatchResponse{}
		wantPuts, wantAcks := []coalesce.Reply[PutResult]{}, []coalesce.Reply[struct{}]{}
		for range rapid.IntRange(0, 4).Draw(t, "entries") {
			put, ack := &belfryv1.PutBatchResult{}, &belfryv1.AckBatchResult{}
			wantPut, wantAck := coalesce.Reply[PutResult]{}, coalesce.Reply[struct{}]{}
			switch rapid.IntRange(0, 2).Draw(t, "result") {
			case 0:
				res := &belfryv1.PutResponse{
					Id: drawText(t, "id"), DueAt: maybe(t, "due", drawTime), Created: rapid.Bool().Draw(t, "created"),
					State: belfryv1.JobState(rapid.Int32Range(0, 9).Draw(t, "state")), Witness: maybe(t, "witness", drawWitness),
					Replaced: rapid.Bool().Draw(t, "replaced"), Version: rapid.Uint64().Draw(t, "version"),
				}
				put.Result, wantPut.Result = &belfryv1.PutBatchResult_Put{Put: res}, putResult(res)
				ack.Result = &belfryv1.AckBatchResult_Ack{Ack: &belfryv1.AckResponse{Witness: maybe(t, "witness", drawWitness)}}
			case 1:
				e := drawEntryError(t)
				put.Result, wantPut.Err = &belfryv1.PutBatchResult_Error{Error: e}, failure.OfEntry(e)
				ack.Result, wantAck.Err = &belfryv1.AckBatchResult_Error{Error: e}, failure.OfEntry(e)
			case 2:
				wantPut.Err, wantAck.Err = failure.MissingResult(), failure.MissingResult()
			}
			puts.Results, acks.Results = append(puts.Results, put), append(acks.Results, ack)
			wantPuts, wantAcks = append(wantPuts, wantPut), append(wantAcks, wantAck)
		}
		var gotPuts putBatchAnswer
		var gotAcks ackBatchAnswer
		if err := errors.Join((session.Codec{}).Unmarshal(encoded(t, puts), &gotPuts),
			(session.Codec{}).Unmarshal(encoded(t, acks), &gotAcks)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wantPuts, gotPuts.replies); diff != "" {
			t.Fatalf("puts (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(wantAcks, gotAcks.replies); diff != "" {
			t.Fatalf("acks (-want +got):\n%s", diff)
		}
	})
}

func FuzzDecode(f *testing.F) {
	job := &belfryv1.Job{
		Queue: "q", Id: "i", Lease: "l", DueAt: timestamppb.Now(), Headers: map[string]string{"k": "v"},
		Ttr:     durationpb.New(1),
		Witness: &belfryv1.Witness{Time: timestamppb.Now()}, Body: &belfryv1.Job_Data{Data: []byte("body")},
	}
	seed, err := proto.Marshal(&belfryv1.ReserveResponse{Jobs: []*belfryv1.Job{job, job}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte("\x0a\x05\x0a\x03\x0a\x01x"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		for _, answer := range []session.Answer{&reserveAnswer{}, &putBatchAnswer{}, &ackBatchAnswer{}} {
			_ = answer.DecodeWire(data) // whatever came, it must not panic
		}
	})
}

func TestTruncatedAnswersAreErrors(t *testing.T) {
	data, err := proto.Marshal(&belfryv1.ReserveResponse{Jobs: []*belfryv1.Job{{Id: "id", DueAt: timestamppb.Now()}}})
	if err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut < len(data); cut++ {
		if err := (&reserveAnswer{}).DecodeWire(data[:cut]); !errors.Is(err, wire.ErrTruncated) {
			t.Errorf("%d of %d bytes: %v", cut, len(data), err)
		}
	}
}

func TestCodecRefusesWhatIsNoMessage(t *testing.T) {
	var c connect.Codec = session.Codec{}
	if _, err := c.Marshal("text"); err == nil || !strings.Contains(err.Error(), "string is no message") {
		t.Errorf("marshal: %v", err)
	}
	if err := c.Unmarshal(nil, new(int)); err == nil || !strings.Contains(err.Error(), "*int is no message") {
		t.Errorf("unmarshal: %v", err)
	}
	data, err := c.Marshal(&belfryv1.AckRequest{Lease: "l"})
	var back belfryv1.AckRequest
	if err := errors.Join(err, c.Unmarshal(data, &back)); err != nil || back.GetLease() != "l" || c.Name() != "proto" {
		t.Errorf("a message does not come back: %v, %v", &back, err)
	}
}
