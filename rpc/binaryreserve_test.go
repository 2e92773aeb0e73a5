package rpc

import (
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func plainWitness() *belfryv1.Witness {
	return &belfryv1.Witness{Shard: 3, Term: 2, Index: 1 << 40, Entry: 7, Time: timestamppb.New(time.Unix(1900000000, 1))}
}

// fullJob has every field that is written by hand.
func fullJob() *belfryv1.Job {
	at := func(seconds int64) *timestamppb.Timestamp { return timestamppb.New(time.Unix(1900000000+seconds, 5e8)) }
	return &belfryv1.Job{
		Queue: "mail/orders", Id: "order-ä", Lease: "AQZvcmRlcnM", Fence: math.MaxUint64, Attempt: 3, DueAt: at(1), LeaseUntil: at(2),
		Body: &belfryv1.Job_Data{Data: make([]byte, 300)}, State: belfryv1.JobState_JOB_STATE_RESERVED, Priority: -128,
		Ttr: durationpb.New(90*time.Second + 1), MaxAttempts: 16, ExpiresAt: at(3), LastError: "smtp 421", CreatedAt: at(4), FirstDueAt: at(5),
		BodyBytes: 300, Witness: plainWitness(),
	}
}

// plainJobs are jobs that are written by hand.
func plainJobs() []*belfryv1.Job {
	return []*belfryv1.Job{
		fullJob(),
		{Body: &belfryv1.Job_Data{}},
		{Body: &belfryv1.Job_Data{Data: []byte("x")}, State: -1, Ttr: &durationpb.Duration{Seconds: -1, Nanos: -1}, Witness: &belfryv1.Witness{}},
		{Body: &belfryv1.Job_Data{Data: []byte{}}, DueAt: &timestamppb.Timestamp{Seconds: -1, Nanos: -1}, CreatedAt: &timestamppb.Timestamp{}},
	}
}

// TestAppendReserve writes answers as the generated code does.
func TestAppendReserve(t *testing.T) {
	jobs := func(jobs ...*belfryv1.Job) *belfryv1.ReserveResponse { return &belfryv1.ReserveResponse{Jobs: jobs} }
	with := func(change func(*belfryv1.Job)) *belfryv1.ReserveResponse {
		job := fullJob()
		change(job)
		return jobs(fullJob(), job, fullJob())
	}
	unknown := func(m proto.Message) { m.ProtoReflect().SetUnknown(varintField(nil, 99, 1)) }
	ofAnswer := jobs(fullJob())
	unknown(ofAnswer)
	ofWitness := &belfryv1.ReserveResponse{Witnesses: []*belfryv1.Witness{plainWitness()}}
	unknown(ofWitness.Witnesses[0])
	for name, m := range map[string]*belfryv1.ReserveResponse{
		"nil":                         nil,
		"empty":                       {},
		"plain":                       {Jobs: plainJobs(), Witnesses: []*belfryv1.Witness{plainWitness(), {}}},
		"nil job":                     jobs(fullJob(), nil),
		"empty job":                   jobs(&belfryv1.Job{}),
		"nil witness":                 {Jobs: plainJobs(), Witnesses: []*belfryv1.Witness{nil}},
		"text":                        with(func(j *belfryv1.Job) { j.Body = &belfryv1.Job_Text{Text: "x"} }),
		"no body":                     with(func(j *belfryv1.Job) { j.Body = nil }),
		"nil alternative":             with(func(j *belfryv1.Job) { j.Body = (*belfryv1.Job_Data)(nil) }),
		"headers":                     with(func(j *belfryv1.Job) { j.Headers = map[string]string{"a": "b"} }),
		"retry delays":                with(func(j *belfryv1.Job) { j.RetryDelays = []*durationpb.Duration{durationpb.New(1), nil} }),
		"a queue that is no text":     with(func(j *belfryv1.Job) { j.Queue = "\xff" }),
		"an id that is no text":       with(func(j *belfryv1.Job) { j.Id = "\xff" }),
		"a lease that is no text":     with(func(j *belfryv1.Job) { j.Lease = "\xff" }),
		"an error that is no text":    with(func(j *belfryv1.Job) { j.LastError = "\xff" }),
		"unknown field of the answer": ofAnswer,
		"unknown field of a witness":  ofWitness,
		"unknown field of a job":      with(func(j *belfryv1.Job) { unknown(j) }),
		"unknown field of its due":    with(func(j *belfryv1.Job) { unknown(j.DueAt) }),
		"unknown field of its until":  with(func(j *belfryv1.Job) { unknown(j.LeaseUntil) }),
		"unknown field of its ttr":    with(func(j *belfryv1.Job) { unknown(j.Ttr) }),
		"unknown field of its end":    with(func(j *belfryv1.Job) { unknown(j.ExpiresAt) }),
		"unknown field of its birth":  with(func(j *belfryv1.Job) { unknown(j.CreatedAt) }),
		"unknown field of its first":  with(func(j *belfryv1.Job) { unknown(j.FirstDueAt) }),
		"unknown field of its grant":  with(func(j *belfryv1.Job) { unknown(j.Witness) }),
	} {
		t.Run(name, func(t *testing.T) { sameResponse(t, m) })
	}
	fields := (&belfryv1.Job{}).ProtoReflect().Descriptor().Fields()
	if got, want := fields.Len(), 21; got != want {
		t.Errorf("a job has %d fields, of which this code knows %d", got, want)
	}
}

// BenchmarkReserveAnswer writes an answer of 100 jobs of 100 bytes in binary, by the codec and by the generated code.
func BenchmarkReserveAnswer(b *testing.B) {
	res, witness := &belfryv1.ReserveResponse{}, plainWitness()
	for range 100 {
		job := fullJob()
		job.Witness = witness
		job.Body, job.LastError, job.ExpiresAt = &belfryv1.Job_Data{Data: make([]byte, 100)}, "", nil
		res.Jobs = append(res.Jobs, job)
	}
	var dst []byte
	for name, write := range map[string]func() ([]byte, error){
		"by hand":   func() ([]byte, error) { return binaryCodec{}.MarshalAppend(dst[:0], res) },
		"generated": func() ([]byte, error) { return proto.MarshalOptions{}.MarshalAppend(dst[:0], res) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if dst, err = write(); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(dst)))
		})
	}
}
