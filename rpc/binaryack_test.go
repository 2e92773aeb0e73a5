package rpc

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// reserved puts jobs of all kinds into both services, takes them, and returns their leases.
func (p *pair) reserved() (leases []string) {
	p.Helper()
	queues := []string{"mail:orders", "orders", "other"}
	p.same("PutBatch", encode(p, &belfryv1.PutBatchRequest{Jobs: append(plainPuts(), rarePuts()...)}))
	var none *belfryv1.ReserveResponse
	for _, req := range []*belfryv1.ReserveRequest{
		{Queues: queues, MaxJobs: 2, Ttr: durationpb.New(time.Hour)}, {Queues: queues, MaxJobs: 1000, RequestId: "r"}, {Queues: queues, MaxJobs: 1000, RequestId: "r"},
	} {
		res, _ := p.same("Reserve", encode(p, req)).(*belfryv1.ReserveResponse)
		for _, job := range res.GetJobs() {
			leases = append(leases, job.GetLease())
		}
	}
	none, _ = p.same("Reserve", encode(p, &belfryv1.ReserveRequest{Queues: queues})).(*belfryv1.ReserveResponse)
	if len(leases) < 8 || len(none.GetJobs()) != 0 || len(none.GetWitnesses()) == 0 {
		p.Fatalf("%d leases, then %v", len(leases), none)
	}
	return leases
}

// TestAckBatchBytes acks what the generated code acks.
func TestAckBatchBytes(t *testing.T) {
	for name, data := range map[string]func(leases []string) []byte{
		"nothing": func([]string) []byte { return nil },
		"leases":  func(l []string) []byte { return encode(t, &belfryv1.AckBatchRequest{Leases: l, RequestId: "a"}) },
		"leases, and what are none": func(l []string) []byte {
			return encode(t, &belfryv1.AckBatchRequest{Leases: append(l, "", "x", l[0], l[1]+"\n", strings.Repeat("A", 421))})
		},
		"queues in turn": func(l []string) []byte {
			return encode(t, &belfryv1.AckBatchRequest{Leases: []string{l[0], l[len(l)-1], "", l[1], formatLease(fsm.Ref{Partition: 2})}})
		},
		"too many":                     func(l []string) []byte { return bytes.Repeat(bytesField(nil, 1, []byte(l[0])), 1001) },
		"an unknown field":             func(l []string) []byte { return bytesField(bytesField(nil, 1, []byte(l[0])), 3, nil) },
		"leases of another type":       func([]string) []byte { return varintField(nil, 1, 0) },
		"a lease that is no text":      func(l []string) []byte { return bytesField(bytesField(nil, 1, []byte(l[0])), 1, []byte{0xff}) },
		"a request id that is no text": func(l []string) []byte { return bytesField(bytesField(nil, 1, []byte(l[0])), 2, []byte{0xff}) },
		"a request id too long":        func(l []string) []byte { return bytesField(bytesField(nil, 1, []byte(l[0])), 2, make([]byte, 65)) },
		"two request ids": func(l []string) []byte {
			return bytesField(bytesField(bytesField(nil, 1, []byte(l[0])), 2, []byte("a")), 2, []byte("b"))
		},
		"cut": func(l []string) []byte { return bytesField(nil, 1, []byte(l[0]))[:9] },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			leases := p.reserved()
			p.same("AckBatch", data(leases))
			p.same("AckBatch", data(leases))
			p.same("AckBatch", encode(t, &belfryv1.AckBatchRequest{Leases: leases}))
		})
	}
}

// TestAcksGoToTheirShards: neighbours of one queue are of different partitions, and of one partition of different queues.
func TestAcksGoToTheirShards(t *testing.T) {
	s := newPair(t).fast
	acks, shards := &belfryv1.AckBatchRequest{}, []uint32{}
	for _, ref := range []fsm.Ref{{Queue: "wide"}, {Queue: "wide", Partition: 1}, {Queue: "wide", Partition: 1}, {Queue: "a", Partition: 1}, {Queue: "b", Partition: 1}, {Queue: "wide"}} {
		acks.Leases, shards = append(acks.Leases, formatLease(ref)), append(shards, s.shard(ref.Queue, ref.Partition))
	}
	data, err := s.ackBatchBytes(t.Context(), encode(t, acks), nil)
	res := &belfryv1.AckBatchResponse{}
	if err != nil || proto.Unmarshal(data, res) != nil || len(res.GetResults()) != len(shards) {
		t.Fatal(res, err)
	}
	for i, r := range res.GetResults() {
		if r.GetError().GetReason() != belfryv1.Reason_REASON_STALE_LEASE || r.GetError().GetShard() != shards[i] {
			t.Errorf("ack %d is for shard %d: %v", i, shards[i], r)
		}
	}
}

// TestReserveBytes: refusals are the same, and jobs of all kinds are taken in reserved.
func TestReserveBytes(t *testing.T) {
	p := newPair(t)
	leases := p.reserved()
	for _, s := range []*queueService{p.fast, p.plain} {
		if _, err := s.Nack(t.Context(), &belfryv1.NackRequest{Lease: leases[0], Error: "smtp 421"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, req := range []proto.Message{
		&belfryv1.ReserveRequest{}, &belfryv1.ReserveRequest{Queues: []string{"a", "a"}}, &belfryv1.ReserveRequest{Queues: []string{"a"}, MaxJobs: 1001},
		&belfryv1.ReserveRequest{Queues: []string{"mail:orders", "orders"}, MaxJobs: 5},
	} {
		p.same("Reserve", encode(t, req))
	}
	p.same("Reserve", []byte{0xff})
	fields := (&belfryv1.Job{}).ProtoReflect().Descriptor().Fields()
	if got, want := fields.Len(), 24; got != want { // endedAt, attemptUnknown and leaseSince are of jobs that nobody is handed
		t.Errorf("a job has %d fields, of which this code knows %d", got, want)
	}
}

// TestAppendReserveOfAll writes jobs that a machine does not make, or seldom, as the generated code writes them.
func TestAppendReserveOfAll(t *testing.T) {
	full := func() *fsm.Job {
		return &fsm.Job{
			Queue: "mail:orders", Partition: 1<<32 - 1, Serial: 1<<64 - 1, ID: "order-ä", State: fsm.Reserved, Priority: -128, Due: 1e18 + 1, FirstDue: 1e18 + 5e8,
			Created: 1e18 + 999_999, TTR: 90*time.Second + 1, MaxAttempts: 16, RetryDelays: []time.Duration{0, 1, time.Hour}, TTL: 1e18 + 7e8 + 1,
			Body: make([]byte, 300), BodyBytes: 300, Attempt: 3, Fence: 1<<64 - 1, Until: 1e18 + 3e8, LastError: "smtp 421",
		}
	}
	for name, change := range map[string]func(*fsm.Job){
		"full":                     func(*fsm.Job) {},
		"empty":                    func(j *fsm.Job) { *j = fsm.Job{} },
		"no body":                  func(j *fsm.Job) { j.Body = nil },
		"an empty body":            func(j *fsm.Job) { j.Body = []byte{} },
		"ready":                    func(j *fsm.Job) { j.State = fsm.Ready },
		"headers":                  func(j *fsm.Job) { j.Headers = []fsm.Header{{Name: "k", Value: "v"}} },
		"before 1970":              func(j *fsm.Job) { j.Created, j.Until, j.Due = -1, -1, -1 },
		"a queue that is no text":  func(j *fsm.Job) { j.Queue = "\xff" },
		"an id that is no text":    func(j *fsm.Job) { j.ID = "\xff" },
		"an error that is no text": func(j *fsm.Job) { j.LastError = "\xff" },
	} {
		t.Run(name, func(t *testing.T) {
			job := full()
			change(job)
			w := wireWitness(node.Witness{Shard: 3, Term: 2, Index: 1 << 40, Entry: 7, Time: 1e18 + 1})
			p := &poll{jobs: []leased{{full(), w}, {job, w}, {job, nil}, {full(), wireWitness(node.Witness{Shard: 3, Term: 2, Index: 1 << 40, Entry: 7, Time: 1e18 + 1})}}}
			got, err := appendReserve([]byte("before"), p)
			want, wantErr := proto.Marshal(&belfryv1.ReserveResponse{Jobs: wireLeased(p.jobs)})
			read, wanted := &belfryv1.ReserveResponse{}, &belfryv1.ReserveResponse{}
			if wantErr != nil || err != nil {
				if wantErr == nil || err == nil {
					t.Fatalf("%v, the generated code says %v", err, wantErr)
				}
				return
			}
			got, ok := bytes.CutPrefix(got, []byte("before"))
			if err := proto.Unmarshal(got, read); err != nil || proto.Unmarshal(want, wanted) != nil || !ok {
				t.Fatal(err)
			}
			if !proto.Equal(wanted, read) || len(got) != len(want) {
				t.Errorf("%d bytes, the generated code writes %d:\n%v\n%v", len(got), len(want), read, wanted)
			}
		})
	}
}
