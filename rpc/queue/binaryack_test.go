package queue

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/wire"
)

// reserved puts jobs of all kinds into both services, takes them, and returns their leases.
func (p *pair) reserved() (leases []string) {
	p.Helper()
	queues := []string{"mail:orders", "orders", "other"}
	p.same("PutBatch", encode(p, &belfryv1.PutBatchRequest{Jobs: append(plainPuts(), rarePuts()...)}))
	var none *belfryv1.ReserveResponse
	for _, req := range []*belfryv1.ReserveRequest{
		{
			Queues: queues, MaxJobs: 2, Ttr: durationpb.New(time.Hour),
		}, {Queues: queues, MaxJobs: 1000, RequestId: "r"}, {Queues: queues, MaxJobs: 1000, RequestId: "r"},
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

// TestAckBatchBytes acks the same as the generated code.
func TestAckBatchBytes(t *testing.T) {
	for name, data := range map[string]func(leases []string) []byte{
		"nothing": func([]string) []byte { return nil },
		"leases":  func(l []string) []byte { return encode(t, &belfryv1.AckBatchRequest{Leases: l, RequestId: "a"}) },
		"leases, and what are none": func(l []string) []byte {
			return encode(t, &belfryv1.AckBatchRequest{Leases: append(l, "", "x", l[0], l[1]+"\n", strings.Repeat("A", 421))})
		},
		"queues in turn": func(l []string) []byte {
			return encode(t, &belfryv1.AckBatchRequest{Leases: []string{l[0], l[len(l)-1], "", l[1],
				wire.FormatLease(fsm.Ref{Partition: 2})}})
		},
		"too many": func(l []string) []byte {
			return bytes.Repeat(bytesField(nil, 1, []byte(l[0])), 1001)
		},
		"an unknown field": func(l []string) []byte {
			return bytesField(bytesField(nil, 1, []byte(l[0])), 3, nil)
		},
		"leases of another type": func([]string) []byte { return varintField(nil, 1, 0) },
		"a lease that is no text": func(l []string) []byte {
			return bytesField(bytesField(nil, 1, []byte(l[0])), 1, []byte{0xff})
		},
		"a request id that is no text": func(l []string) []byte {
			return bytesField(bytesField(nil, 1, []byte(l[0])), 2, []byte{0xff})
		},
		"a request id too long": func(l []string) []byte {
			return bytesField(bytesField(nil, 1, []byte(l[0])), 2, make([]byte, 65))
		},
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

// TestAcksGoToTheirShards: the batch has neighbours of one queue in different partitions, and
// neighbours of different queues in one partition.
func TestAcksGoToTheirShards(t *testing.T) {
	s := newPair(t).fast
	acks, shards := &belfryv1.AckBatchRequest{}, []uint32{}
	for _, ref := range []fsm.Ref{
		{Queue: "wide"},
		{Queue: "wide", Partition: 1},
		{Queue: "wide", Partition: 1},
		{Queue: "a", Partition: 1},
		{Queue: "b", Partition: 1},
		{Queue: "wide"},
	} {
		acks.Leases, shards = append(acks.Leases, wire.FormatLease(ref)),
			append(shards, s.router.Shard(ref.Queue, ref.Partition))
	}
	data, err := s.AckBatchBytes(t.Context(), encode(t, acks), nil)
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

// TestReserveBytes: both paths refuse alike. The helper reserved compares how they hand out jobs of
// all kinds.
func TestReserveBytes(t *testing.T) {
	p := newPair(t)
	leases := p.reserved()
	for _, s := range []*Service{p.fast, p.plain} {
		if _, err := s.Nack(t.Context(), &belfryv1.NackRequest{Lease: leases[0], Error: "smtp 421"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, req := range []proto.Message{
		&belfryv1.ReserveRequest{}, &belfryv1.ReserveRequest{Queues: []string{"a", "a"}}, &belfryv1.ReserveRequest{
			Queues: []string{"a"}, MaxJobs: 1001,
		},
		&belfryv1.ReserveRequest{Queues: []string{"mail:orders", "orders"}, MaxJobs: 5},
	} {
		p.same("Reserve", encode(t, req))
	}
	p.same("Reserve", []byte{0xff})
	fields := (&belfryv1.Job{}).ProtoReflect().Descriptor().Fields()
	// Of endedAt and the fields after it, only key and version are of jobs that are handed out.
	if got, want := fields.Len(), 31; got != want {
		t.Errorf("a job has %d fields, of which this code knows %d", got, want)
	}
}
