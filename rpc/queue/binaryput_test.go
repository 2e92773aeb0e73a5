package queue

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/shardcall"
)

// wrongPuts are jobs with an error, or with a value at a limit.
func wrongPuts() []*belfryv1.PutRequest {
	limits := check.DefaultLimits()
	delay := func(d *durationpb.Duration) *belfryv1.PutRequest {
		return &belfryv1.PutRequest{Queue: "orders", When: &belfryv1.PutRequest_Delay{Delay: d}}
	}
	due := func(seconds int64, nanos int32) *belfryv1.PutRequest {
		return &belfryv1.PutRequest{
			Queue: "orders", When: &belfryv1.PutRequest_DueAt{DueAt: &timestamppb.Timestamp{Seconds: seconds, Nanos: nanos}},
		}
	}
	replace := func(r *belfryv1.PutRequest) *belfryv1.PutRequest {
		r.Queue, r.Id, r.OnExisting = "orders", "x", belfryv1.OnExisting_ON_EXISTING_REPLACE
		return r
	}
	end := time.Unix(1900000000, 123456789).Add(limits.DelayMax).Unix()
	puts := []*belfryv1.PutRequest{
		{}, {Queue: "a//b"}, {Queue: strings.Repeat("q", limits.QueueBytesMax)},
		{Queue: strings.Repeat("q", limits.QueueBytesMax+1)},
		{
			Queue: "orders", Id: "1-1",
		}, {Queue: "orders", Id: "1-x"}, {Queue: "orders", Id: "i" + strings.Repeat("ä", limits.IDBytesMax/2)},
		{Queue: "orders", Id: strings.Repeat("i", limits.IDBytesMax)},
		{Queue: "orders", Body: &belfryv1.PutRequest_Data{Data: make([]byte, limits.BodyBytesMax)}},
		{Queue: "orders", Body: &belfryv1.PutRequest_Text{Text: strings.Repeat("x", limits.BodyBytesMax+1)}},
		{
			Queue: "orders", Priority: proto.Int64(1 << 32),
		}, {Queue: "orders", Priority: proto.Int64(1<<32 - 1)}, {Queue: "orders", Priority: proto.Int64(-129)},
		{
			Queue: "orders", RequestId: "own",
		}, {Queue: "orders", Again: true}, {Queue: "orders", MaxAttempts: proto.Uint32(limits.AttemptsMax + 1)},
		{Queue: "orders", Key: strings.Repeat("k", limits.KeyBytesMax)},
		{Queue: "orders", Key: strings.Repeat("k", limits.KeyBytesMax+1)},
		{Queue: "orders", OnExisting: belfryv1.OnExisting_ON_EXISTING_KEEP}, {Queue: "orders", Id: "x", OnExisting: 9},
		{Queue: "orders", Id: "x", MaxWait: durationpb.New(time.Second)}, {Queue: "orders", Id: "x", IfVersion: 1},
		replace(&belfryv1.PutRequest{MaxWait: &durationpb.Duration{}}), replace(&belfryv1.PutRequest{IfVersion: 1}),
		replace(&belfryv1.PutRequest{MaxWait: durationpb.New(limits.DelayMax + 1)}),
		due(end, 0), due(end, 123456789), due(end, 123456790), due(end+1, 0), due(0, 0), due(0, 1), due(0, 1e9), due(-1, 0),
		due(1, -1), due(1<<62, 0), due(1<<63-1, 0),
		delay(&durationpb.Duration{}), delay(&durationpb.Duration{Nanos: 1}), delay(&durationpb.Duration{Nanos: -1}),
		delay(&durationpb.Duration{Nanos: 1e9}),
		delay(durationpb.New(limits.DelayMax)), delay(durationpb.New(limits.DelayMax + 1)),
		delay(&durationpb.Duration{Seconds: 1 << 62}),
	}
	for _, ttr := range []time.Duration{0, limits.TTRMin - 1, limits.TTRMin, limits.TTRMax, limits.TTRMax + 1} {
		puts = append(puts, &belfryv1.PutRequest{Queue: "orders", Ttr: durationpb.New(ttr)})
	}
	return puts
}

// TestPutBatchBytes: both paths put the same jobs, and give the same answers and refusals.
func TestPutBatchBytes(t *testing.T) {
	put := encode(t, fullPut())
	batch := bytesField(nil, 1, put)
	many := func(n int) []byte {
		return bytes.Repeat(bytesField(nil, 1, encode(t, &belfryv1.PutRequest{Queue: "orders"})), n)
	}
	big := bytesField(nil, 1, encode(t, &belfryv1.PutRequest{
		Queue: "orders", Body: &belfryv1.PutRequest_Data{Data: make([]byte, 1<<20-100)},
	}))
	// Values of other types are empty, since others could look like values of the right type.
	for _, c := range []struct {
		name string
		data []byte
	}{
		{"nothing", nil},
		{"plain jobs", encode(t, &belfryv1.PutBatchRequest{Jobs: plainPuts(), RequestId: "r"})},
		// The jobs of several namespaces in one shard are logged in any order, so the pair would differ.
		{"jobs of a namespace", bytes.Repeat(bytesField(nil, 1, encode(t, &belfryv1.PutRequest{Queue: "mail/orders"})), 3)},
		{"plain and rare jobs", encode(t, &belfryv1.PutBatchRequest{Jobs: append(plainPuts(), rarePuts()...)})},
		{"wrong jobs", encode(t, &belfryv1.PutBatchRequest{Jobs: append(wrongPuts(), plainPuts()...)})},
		{"a request id without jobs", bytesField(nil, 2, []byte("r"))},
		{"a request id that is too long", bytesField(bytes.Clone(batch), 2, make([]byte, 65))},
		{"the request id between jobs", append(bytesField(bytes.Clone(batch), 2, []byte("r")), batch...)},
		{"two request ids", bytesField(bytesField(bytes.Clone(batch), 2, []byte("r")), 2, []byte("s"))},
		{"a request id that is no text", bytesField(bytes.Clone(batch), 2, []byte{0xff})},
		{"as many jobs as there may be", many(1000)},
		{"too many jobs", many(1001)},
		{"too many jobs of little", bytes.Repeat([]byte{10, 0}, 10000)},
		{"too much", bytes.Repeat(big, 5)},
		{"too much, and not well formed", append(bytes.Repeat(big, 5), 0xff)},
		{"a flood of retry delays", bytesField(many(10), 1, bytes.Repeat(bytesField(nil, 11, nil), 1<<20))},
		{"an unknown field", bytesField(bytes.Clone(batch), 3, []byte("x"))},
		{"jobs of another type", varintField(bytes.Clone(batch), 1, 0)},
		{"cut in a tag", append(bytes.Clone(batch), 0x80)},
		{"cut in a length", append(bytes.Clone(batch), 0x0a, 0x80)},
		{"cut in a job", batch[:len(batch)-1]},
		{"field 0", append(bytes.Clone(batch), 2, 0)},
		{"a queue twice", bytesField(nil, 1, bytesField(bytes.Clone(put), 1, []byte("b")))},
		{"a queue that is no text", bytesField(nil, 1, bytesField(nil, 1, []byte{0xff}))},
		{"an id that is no text", bytesField(nil, 1, bytesField(nil, 2, []byte{0xff}))},
		{"a key that is no text", bytesField(nil, 1, bytesField(bytesField(nil, 1, []byte("q")), 15, []byte{0xff}))},
		{"a key twice", bytesField(nil, 1, bytesField(bytes.Clone(put), 15, []byte("b")))},
		{"a text that is no text", bytesField(nil, 1, bytesField(nil, 7, []byte{0xff}))},
		{"a delay in two parts", bytesField(nil, 1, bytesField(bytes.Clone(put), 3, varintField(nil, 1, 8)))},
		{"delay, then due time", bytesField(nil, 1, bytesField(bytes.Clone(put), 4, varintField(nil, 1, 1900000008)))},
		{"a wrong delay, then due time",
			bytesField(nil, 1, bytesField(bytesField(bytes.Clone(put[:14]), 3, varintField(nil, 1, 1<<62)), 4,
				varintField(nil, 1, 8)))},
		{"data, then text", bytesField(nil, 1, bytesField(bytes.Clone(put), 7, []byte("b")))},
		{"an unknown field of a job", bytesField(nil, 1, bytesField(bytes.Clone(put), 99, []byte("b")))},
		{"an unknown field of a delay",
			bytesField(nil, 1, bytesField(bytesField(nil, 1, []byte("q")), 3, bytesField(nil, 99, []byte("b"))))},
		{"seconds twice", bytesField(nil, 1,
			bytesField(bytesField(nil, 1, []byte("q")), 5, varintField(varintField(nil, 1, 8), 1, 9)))},
		{"seconds of another type",
			bytesField(nil, 1, bytesField(bytesField(nil, 1, []byte("q")), 5, bytesField(nil, 1, nil)))},
		{"seconds cut", bytesField(nil, 1, bytesField(bytesField(nil, 1, []byte("q")), 5, []byte{8, 0x80}))},
		{"a priority of 64 bits", bytesField(nil, 1, varintField(bytesField(nil, 1, []byte("q")), 6, 1<<40|5))},
		{"a priority of another type", bytesField(nil, 1, bytesField(bytesField(nil, 1, []byte("q")), 6, nil))},
		{"a priority cut", bytesField(nil, 1, []byte{0x30, 0x80})},
		{"a queue of another type", bytesField(nil, 1, varintField(nil, 1, 0))},
		{"a long tag", bytesField(nil, 1, append([]byte{0x8a, 0x00}, 1, 'q'))},
		{"a group", bytesField(nil, 1, []byte{0x0b, 0x0c})},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t)
			p.same("PutBatch", c.data)
			p.same("PutBatch", c.data)
		})
	}
}

// TestJobsByHand: plain jobs are decoded by hand; the generated code decodes the others.
func TestJobsByHand(t *testing.T) {
	s := newPair(t).fast
	for byHand, puts := range map[bool][]*belfryv1.PutRequest{
		true: slices.Delete(plainPuts(), 1, 2), false: append(rarePuts(), &belfryv1.PutRequest{}),
	} {
		for _, put := range puts {
			r := putReader{batch: &putBatch{}, check: s.rules.Request(t.Context(), tokens.Put)}
			if put.GetWhen() != nil && put.GetDelay().GetSeconds() < 0 || put.GetDueAt().GetSeconds() < 0 {
				continue // has an error, or a time before 1970
			}
			if _, got := r.plain(encode(t, put), &fsm.Put{}); got != byHand {
				t.Errorf("%v: by hand: %v, want %v", put, got, byHand)
			}
		}
	}
}

// TestPutBatchBytesOfPartitions: puts are routed one by one, refused if the queue is being deleted,
// and offered to other partitions.
func TestPutBatchBytesOfPartitions(t *testing.T) {
	p := newPair(t)
	for _, s := range []*Service{p.fast, p.plain} {
		c, _ := s.router.Catalog.(*backendtest.Catalog)
		for i, queue := range []string{"wide", "going"} {
			partitions := []uint32{3, 1}[i]
			config, err := c.CreateQueue(t.Context(), queue, partitions, fsm.Settings{MaxJobs: 4})
			if err != nil {
				t.Fatal(err)
			}
			for partition := range partitions {
				answers := s.router.ProposeAll(t.Context(), s.router.Shard(queue, partition), "", []fsm.Command{
					&fsm.Open{Queue: queue, Partition: partition, Partitions: partitions},
					&fsm.Configure{
						Queue: queue, Partition: partition, Partitions: partitions, Version: config.Version, Settings: config.Settings,
					},
				})
				if shardcall.AnyFault(answers) {
					t.Fatal(answers)
				}
			}
		}
		c.MarkDeleting("going")
	}
	batch := &belfryv1.PutBatchRequest{}
	for i := range 9 {
		batch.Jobs = append(batch.Jobs, &belfryv1.PutRequest{Queue: "wide"}, &belfryv1.PutRequest{
			Queue: "wide", Id: "id" + strconv.Itoa(i),
		})
		batch.Jobs = append(batch.Jobs, &belfryv1.PutRequest{Queue: "going"},
			&belfryv1.PutRequest{Queue: "q" + strconv.Itoa(i)})
	}
	p.same("PutBatch", encode(t, batch))
	batch.RequestId = "r"
	p.same("PutBatch", encode(t, batch))
	p.same("PutBatch", encode(t, batch))
}

// TestBatchMemoryIsUsedAgain: successive batches, some of which fail, share no data. The common
// ones allocate little.
func TestBatchMemoryIsUsedAgain(t *testing.T) {
	p := newPair(t)
	bare := &belfryv1.PutRequest{Queue: "orders"}
	batches := []*belfryv1.PutBatchRequest{
		{Jobs: []*belfryv1.PutRequest{fullPut(), fullPut(), fullPut()}},
		{Jobs: []*belfryv1.PutRequest{bare, bare, bare, bare}},
		{Jobs: rarePuts()[:4]}, {Jobs: []*belfryv1.PutRequest{bare, bare, bare, bare, bare}}, {Jobs: wrongPuts()},
		{Jobs: append(rarePuts(), plainPuts()...)},
	}
	for range 3 {
		for _, batch := range batches {
			p.same("PutBatch", encode(t, batch))
		}
	}
	jobs := make([]*belfryv1.PutRequest, 200)
	for i := range jobs {
		jobs[i] = fullPut()
	}
	s, request := newService(t, backendtest.InstantNode{Node: backendtest.NewNode(1)}),
		encode(t, &belfryv1.PutBatchRequest{Jobs: jobs})
	dst := make([]byte, 0, 1<<16)
	// There is no allocation for each job. With the race detector, memory is not always reused.
	if got := testing.AllocsPerRun(10, func() {
		if _, err := s.PutBatchBytes(t.Context(), request, dst); err != nil {
			t.Fatal(err)
		}
	}); got > 100 {
		t.Errorf("%v allocations for 200 jobs", got)
	}
}
