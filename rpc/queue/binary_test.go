package queue

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// fullPut has every field that is decoded by hand, and of alternative fields the first.
func fullPut() *belfryv1.PutRequest {
	return &belfryv1.PutRequest{
		Queue: "mail:orders", Id: "order-ä", When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(90*time.Second + 1)},
		Ttr: durationpb.New(time.Minute), Priority: proto.Int64(-3), Body: &belfryv1.PutRequest_Data{Data: []byte{0xff, 0}},
		Key: "customer-ü",
	}
}

// plainPuts are jobs that are decoded by hand.
func plainPuts() []*belfryv1.PutRequest {
	return []*belfryv1.PutRequest{
		fullPut(),
		{},
		{Queue: "orders", Body: &belfryv1.PutRequest_Data{Data: []byte("one")}},
		{Queue: "orders", Body: &belfryv1.PutRequest_Data{}},
		{
			Queue: "orders", Body: &belfryv1.PutRequest_Text{Text: "zwei €"},
			When: &belfryv1.PutRequest_DueAt{DueAt: timestamppb.New(time.Unix(-5, 7))},
		},
		{
			Queue: "other", Body: &belfryv1.PutRequest_Text{},
			When: &belfryv1.PutRequest_Delay{Delay: &durationpb.Duration{Seconds: -1, Nanos: -9}},
		},
		{
			Queue: "orders", Id: "b", Priority: proto.Int64(0),
			When: &belfryv1.PutRequest_DueAt{DueAt: &timestamppb.Timestamp{}},
		},
	}
}

// rarePuts are jobs with fields that are not decoded by hand.
func rarePuts() []*belfryv1.PutRequest {
	return []*belfryv1.PutRequest{
		{Queue: "orders", Headers: map[string]string{"a": "b"}},
		{Queue: "orders", MaxAttempts: proto.Uint32(0)},
		{Queue: "orders", RetryDelays: []*durationpb.Duration{durationpb.New(1), durationpb.New(2)}},
		{Queue: "orders", Ttl: durationpb.New(time.Hour)},
		{Queue: "orders", RequestId: "r"},
		{Queue: "orders", Again: true},
		{Queue: "orders", Id: "k", OnExisting: belfryv1.OnExisting_ON_EXISTING_KEEP},
		{Queue: "orders", Id: "r", OnExisting: belfryv1.OnExisting_ON_EXISTING_REPLACE, Key: "c"},
		{
			Queue: "orders", Id: "r", OnExisting: belfryv1.OnExisting_ON_EXISTING_NEXT, MaxWait: durationpb.New(time.Minute),
			IfVersion: 2, Key: "c",
		},
		{Queue: "orders", Id: "r", OnExisting: belfryv1.OnExisting_ON_EXISTING_REPLACE, IfVersion: 7, Key: "c"},
	}
}

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// bytesField appends a field of type bytes.
func bytesField(dst []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, number, protowire.BytesType), value)
}

// varintField appends a field of type varint.
func varintField(dst []byte, field protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.VarintType), value)
}

// pair is two services that get the same calls. One uses the fast path, the other the slow path.
type pair struct {
	testing.TB
	fast, plain *Service
}

// newPair returns a pair whose clocks stand still.
func newPair(t testing.TB) *pair {
	t.Helper()
	limits := check.DefaultLimits()
	return pairOf(t, codec.NewBounds(&limits))
}

// pairOf is newPair with the given bounds.
func pairOf(t testing.TB, b codec.Bounds) *pair {
	t.Helper()
	service := func() *Service {
		n, now := backendtest.NewNode(3), func() time.Time { return time.Unix(1900000000, 123456789) }
		n.Now, n.Format = now, fsm.KeysFormat
		s := newService(t, n, func(cfg *Config) { cfg.Rules.Now, cfg.Codec = now, codec.Binary{Bounds: b} })
		s.router.PartsAtOnce = 1 // so that both work in the same order
		return s
	}
	return &pair{t, service(), service()}
}

// fastPathMethod is a method with both of its paths.
type fastPathMethod struct {
	answer proto.Message
	fast   func(s *Service, request []byte) ([]byte, error)
	plain  func(s *Service, request []byte) ([]byte, error)
}

func fastPathMethods(ctx context.Context) map[string]fastPathMethod {
	return map[string]fastPathMethod{
		"PutBatch": {
			&belfryv1.PutBatchResponse{},
			func(s *Service, request []byte) ([]byte, error) {
				return s.PutBatchBytes(ctx, request, []byte("before"))
			},
			func(s *Service, request []byte) ([]byte, error) {
				return codec.SlowPath(ctx, s.codec, request, nil, s.PutBatch)
			},
		},
		"AckBatch": {
			&belfryv1.AckBatchResponse{},
			func(s *Service, request []byte) ([]byte, error) {
				return s.AckBatchBytes(ctx, request, []byte("before"))
			},
			func(s *Service, request []byte) ([]byte, error) {
				return codec.SlowPath(ctx, s.codec, request, nil, s.AckBatch)
			},
		},
		"Reserve": {
			&belfryv1.ReserveResponse{},
			func(s *Service, request []byte) ([]byte, error) {
				return s.ReserveBytes(ctx, request, []byte("before"))
			},
			func(s *Service, request []byte) ([]byte, error) {
				return codec.SlowPath(ctx, s.codec, request, nil, s.Reserve)
			},
		},
	}
}

// same calls both services. It fails the test unless both give the same answer and have the same
// jobs afterwards. It returns the answer, nil after an error.
func (p *pair) same(method string, request []byte) proto.Message {
	p.Helper()
	m := fastPathMethods(p.Context())[method]
	want, wantErr := m.plain(p.plain, request)
	buffer := slices.Clone(request)
	got, err := m.fast(p.fast, buffer)
	for i := range buffer {
		buffer[i] = 0xa5 // as if the buffer were reused
	}
	if diff := cmp.Diff(faultText(wantErr), faultText(err)); diff != "" {
		p.Fatalf("%s %x: the errors differ (-slow +fast):\n%s", method, request, diff)
	}
	for i := range p.plain.router.Node.ShardCount() {
		if machineOf(p.plain, i).Digest() != machineOf(p.fast, i).Digest() {
			p.Fatalf("%s %x: shard %d holds something else", method, request, i)
		}
	}
	if err != nil {
		return nil
	}
	got, ok := bytes.CutPrefix(got, []byte("before"))
	wanted, read := m.answer.ProtoReflect().New().Interface(), m.answer.ProtoReflect().New().Interface()
	if wantErr, err := proto.Unmarshal(want, wanted), proto.Unmarshal(got, read); wantErr != nil || err != nil || !ok {
		p.Fatalf("%s %x is answered %x: %v, %v", method, request, got, wantErr, err)
	}
	if !proto.Equal(wanted, read) || len(want) != len(got) {
		p.Fatalf("%s %x: %d bytes, the generated code writes %d (-slow +fast):\n%s",
			method, request, len(got), len(want), cmp.Diff(wanted, read, protocmp.Transform()))
	}
	return read
}

func machineOf(s *Service, shard int) *machine.Machine {
	n, _ := s.router.Node.(*backendtest.Node)
	return n.Machine(uint32(shard))
}

// faultText returns all that a caller learns from an error.
func faultText(err error) string {
	if err == nil {
		return ""
	}
	f := fault.Of(err)
	return f.Code().String() + " " + f.Field + " " + f.Error() + " " + f.Outcome().String() + " " + f.RetryAfter.String()
}

// FuzzBatchWire compares the fast path with the slow path.
func FuzzBatchWire(f *testing.F) {
	f.Add(encode(f, &belfryv1.PutBatchRequest{Jobs: plainPuts(), RequestId: "r"}))
	f.Add(encode(f, &belfryv1.PutBatchRequest{Jobs: rarePuts()}))
	f.Add(encode(f, &belfryv1.AckBatchRequest{
		Leases: []string{wire.FormatLease(fsm.Ref{Queue: "orders", Serial: 1, Fence: 2}), "x"}, RequestId: "r",
	}))
	f.Add(encode(f, &belfryv1.ReserveRequest{Queues: []string{"orders"}, MaxJobs: 3, Ttr: durationpb.New(time.Minute)}))
	f.Add(bytesField(nil, 1, bytesField(bytesField(nil, 3, varintField(nil, 1, 8)), 3, varintField(nil, 2, 9))))
	b := newPair(f).fast.codec.Bounds
	f.Fuzz(func(t *testing.T, data []byte) {
		p := pairOf(t, b)
		p.same("PutBatch", data)
		p.same("AckBatch", data)
		p.same("Reserve", encode(t, &belfryv1.ReserveRequest{
			Queues: []string{"mail:orders", "orders", "other"}, MaxJobs: 1000,
		}))
		// no event would end the wait
		if req := (&belfryv1.ReserveRequest{}); proto.Unmarshal(data, req) != nil || req.GetWait() == nil {
			p.same("Reserve", data)
		}
	})
}
