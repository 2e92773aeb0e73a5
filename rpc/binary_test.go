package rpc

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// fullPut has every field that is read by hand, and alternatives the first of each kind.
func fullPut() *belfryv1.PutRequest {
	return &belfryv1.PutRequest{
		Queue: "mail/orders", Id: "order-ä", When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(90*time.Second + 1)},
		Ttr: durationpb.New(time.Minute), Priority: proto.Int32(-3), Body: &belfryv1.PutRequest_Data{Data: []byte{0xff, 0}},
	}
}

// plainPuts are jobs that are read by hand.
func plainPuts() []*belfryv1.PutRequest {
	return []*belfryv1.PutRequest{
		fullPut(),
		{},
		{Queue: "orders", Body: &belfryv1.PutRequest_Data{Data: []byte("one")}},
		{Queue: "orders", Body: &belfryv1.PutRequest_Data{}},
		{Queue: "orders", Body: &belfryv1.PutRequest_Text{Text: "zwei €"}, When: &belfryv1.PutRequest_DueAt{DueAt: timestamppb.New(time.Unix(-5, 7))}},
		{Queue: "other", Body: &belfryv1.PutRequest_Text{}, When: &belfryv1.PutRequest_Delay{Delay: &durationpb.Duration{Seconds: -1, Nanos: -9}}},
		{Queue: "orders", Id: "b", Priority: proto.Int32(0), When: &belfryv1.PutRequest_DueAt{DueAt: &timestamppb.Timestamp{}}},
	}
}

// rarePuts are jobs with fields that are not read by hand.
func rarePuts() []*belfryv1.PutRequest {
	return []*belfryv1.PutRequest{
		{Queue: "orders", Headers: map[string]string{"a": "b"}},
		{Queue: "orders", MaxAttempts: proto.Uint32(0)},
		{Queue: "orders", RetryDelays: []*durationpb.Duration{durationpb.New(1), durationpb.New(2)}},
		{Queue: "orders", Ttl: durationpb.New(time.Hour)},
		{Queue: "orders", RequestId: "r"},
		{Queue: "orders", Again: true},
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

// bytesField appends a field of bytes.
func bytesField(dst []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, number, protowire.BytesType), value)
}

// varintField appends a field of kind varint.
func varintField(dst []byte, field protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.VarintType), value)
}

// sameRequest fails unless both decoders agree about data, in the message and in the error.
func sameRequest(t *testing.T, data []byte) {
	t.Helper()
	want, got := &belfryv1.PutBatchRequest{}, &belfryv1.PutBatchRequest{RequestId: "of the message that was there before"}
	wantErr := proto.Unmarshal(data, want)
	buffer := slices.Clone(data)
	err := binaryCodec{}.Unmarshal(buffer, got)
	for i := range buffer {
		buffer[i] = 0xa5 // as when Connect uses its buffer again
	}
	if (err == nil) != (wantErr == nil) || err != nil && err.Error() != "unmarshal into *belfryv1.PutBatchRequest: "+wantErr.Error() {
		t.Fatalf("%x: the error is %v, that of the generated code %v", data, err, wantErr)
	}
	if err == nil && !proto.Equal(want, got) {
		t.Fatalf("%x (-generated +by hand):\n%s", data, cmp.Diff(want, got, protocmp.Transform()))
	}
}

// TestReadPutBatch reads batches as the generated code does, and by hand where that is what makes them cheap.
func TestReadPutBatch(t *testing.T) {
	put := encode(t, fullPut())
	batch := bytesField(nil, 1, put)
	// Values of other types are empty, since those could be taken for values of the right one.
	for _, c := range []struct {
		name   string
		data   []byte
		byHand bool
	}{
		{"nothing", nil, true},
		{"plain jobs", encode(t, &belfryv1.PutBatchRequest{Jobs: plainPuts(), RequestId: "r"}), true},
		{"plain and rare jobs", encode(t, &belfryv1.PutBatchRequest{Jobs: append(plainPuts(), rarePuts()...)}), true},
		{"the request id between jobs", append(bytesField(bytes.Clone(batch), 2, []byte("r")), batch...), true},
		{"two request ids", bytesField(bytesField(bytes.Clone(batch), 2, []byte("r")), 2, []byte("s")), false},
		{"a request id that is no text", bytesField(bytes.Clone(batch), 2, []byte{0xff}), false},
		{"an unknown field", bytesField(bytes.Clone(batch), 3, []byte("x")), false},
		{"jobs of another type", varintField(bytes.Clone(batch), 1, 0), false},
		{"cut in a tag", append(bytes.Clone(batch), 0x80), false},
		{"cut in a length", append(bytes.Clone(batch), 0x0a, 0x80), false},
		{"cut in a job", batch[:len(batch)-1], false},
		{"field 0", append(bytes.Clone(batch), 2, 0), false},
		{"a queue twice", bytesField(nil, 1, bytesField(bytes.Clone(put), 1, []byte("b"))), true},
		{"a queue that is no text", bytesField(nil, 1, bytesField(nil, 1, []byte{0xff})), false},
		{"an id that is no text", bytesField(nil, 1, bytesField(nil, 2, []byte{0xff})), false},
		{"a text that is no text", bytesField(nil, 1, bytesField(nil, 7, []byte{0xff})), false},
		{"a delay in two parts", bytesField(nil, 1, bytesField(bytes.Clone(put), 3, varintField(nil, 1, 8))), true},
		{"delay, then due time", bytesField(nil, 1, bytesField(bytes.Clone(put), 4, varintField(nil, 1, 8))), true},
		{"data, then text", bytesField(nil, 1, bytesField(bytes.Clone(put), 7, []byte("b"))), true},
		{"an unknown field of a job", bytesField(nil, 1, bytesField(bytes.Clone(put), 99, []byte("b"))), true},
		{"an unknown field of a delay", bytesField(nil, 1, bytesField(nil, 3, bytesField(nil, 99, []byte("b")))), true},
		{"seconds twice", bytesField(nil, 1, bytesField(nil, 5, varintField(varintField(nil, 1, 8), 1, 9))), true},
		{"seconds of another type", bytesField(nil, 1, bytesField(nil, 5, bytesField(nil, 1, nil))), true},
		{"seconds cut", bytesField(nil, 1, bytesField(nil, 5, []byte{8, 0x80})), false},
		{"a priority of 64 bits", bytesField(nil, 1, varintField(nil, 6, 1<<40|5)), true},
		{"a priority of another type", bytesField(nil, 1, bytesField(nil, 6, nil)), true},
		{"a priority cut", bytesField(nil, 1, []byte{0x30, 0x80}), false},
		{"a queue of another type", bytesField(nil, 1, varintField(nil, 1, 0)), true},
		{"a long tag", bytesField(nil, 1, append([]byte{0x8a, 0x00}, 1, 'q')), true},
		{"a group", bytesField(nil, 1, []byte{0x0b, 0x0c}), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			sameRequest(t, c.data)
			if got := readPutBatch(c.data, &belfryv1.PutBatchRequest{}); got != c.byHand {
				t.Errorf("by hand: %v, want %v", got, c.byHand)
			}
		})
	}
}

// TestReadJobByHand says which jobs the generated code has to read.
func TestReadJobByHand(t *testing.T) {
	for wantRead, puts := range map[bool][]*belfryv1.PutRequest{true: plainPuts(), false: rarePuts()} {
		for _, put := range puts {
			r := putReader{size: 100, ahead: 1}
			if got := r.read(encode(t, put), &belfryv1.PutRequest{}); got != wantRead {
				t.Errorf("%v: by hand: %v, want %v", put, got, wantRead)
			}
		}
	}
}

// TestReadPutBatchMemory: bodies that are appended to must not run into their neighbours, and queues must not hold a batch.
func TestReadPutBatchMemory(t *testing.T) {
	data := encode(t, &belfryv1.PutBatchRequest{Jobs: []*belfryv1.PutRequest{
		{Queue: "orders", Body: &belfryv1.PutRequest_Data{Data: []byte("one")}},
		{Queue: "orders", Body: &belfryv1.PutRequest_Data{Data: []byte("two")}},
	}})
	batch := &belfryv1.PutBatchRequest{}
	if !readPutBatch(data, batch) {
		t.Fatal("not read by hand")
	}
	_ = append(batch.Jobs[0].GetData(), "xxx"...)
	if got := string(batch.Jobs[1].GetData()); got != "two" {
		t.Errorf("the second body is %q", got)
	}
	for range 200 {
		batch.Jobs = append(batch.Jobs, batch.Jobs[1])
	}
	data = encode(t, batch)
	// One message, its list, its jobs, bodies in one piece, wrappers in two slabs, and the name of the queue.
	if got := testing.AllocsPerRun(10, func() { readPutBatch(data, &belfryv1.PutBatchRequest{}) }); got > 7 {
		t.Errorf("%v allocations for 202 jobs", got)
	}
}

// plainResults are answers that are written by hand.
func plainResults() []*belfryv1.PutBatchResult {
	var results []*belfryv1.PutBatchResult
	for _, put := range []*belfryv1.PutResponse{
		{},
		{Id: "0-1", DueAt: timestamppb.New(time.Unix(1900000000, 5e8)), Created: true, State: belfryv1.JobState_JOB_STATE_DELAYED, Witness: &belfryv1.Witness{
			Shard: 3, Term: 2, Index: 1 << 40, Entry: 7, Time: timestamppb.New(time.Unix(1900000000, 1)),
		}},
		{Id: string(bytes.Repeat([]byte("i"), 256)), DueAt: &timestamppb.Timestamp{}, Witness: &belfryv1.Witness{Time: &timestamppb.Timestamp{}}},
		{DueAt: &timestamppb.Timestamp{Seconds: -1, Nanos: -1}, State: -1, Witness: &belfryv1.Witness{
			Shard: 1<<32 - 1, Term: 1<<64 - 1, Index: 1<<64 - 1, Entry: 1<<32 - 1, Time: &timestamppb.Timestamp{Seconds: -1, Nanos: -1},
		}},
	} {
		results = append(results, &belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Put{Put: put}})
	}
	return results
}

// plainAcks are the same for acks.
func plainAcks() []*belfryv1.AckBatchResult {
	var results []*belfryv1.AckBatchResult
	for _, put := range plainResults() {
		results = append(results, ackResult(&belfryv1.AckResponse{Witness: put.GetPut().GetWitness()}))
	}
	return results
}

func ackResult(ack *belfryv1.AckResponse) *belfryv1.AckBatchResult {
	return &belfryv1.AckBatchResult{Result: &belfryv1.AckBatchResult_Ack{Ack: ack}}
}

// sameResponse fails unless an answer that was written by hand is what the generated code writes.
func sameResponse(t *testing.T, m proto.Message) {
	t.Helper()
	want, wantErr := proto.Marshal(m)
	data, err := binaryCodec{}.MarshalAppend([]byte("before"), m)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%v: the error is %v, that of the generated code %v", m, err, wantErr)
	}
	if err != nil {
		return
	}
	data, ok := bytes.CutPrefix(data, []byte("before"))
	got, again := m.ProtoReflect().New().Interface(), m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(data, got); err != nil || !ok {
		t.Fatalf("%v is written as %x: %v", m, data, err)
	}
	if err := proto.Unmarshal(want, again); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(again, got) || len(data) != len(want) {
		t.Fatalf("%d bytes, the generated code writes %d (-generated +by hand):\n%s", len(data), len(want), cmp.Diff(again, got, protocmp.Transform()))
	}
}

// TestAppendPutBatch writes answers as the generated code does.
func TestAppendPutBatch(t *testing.T) {
	unknown := func(m proto.Message) { m.ProtoReflect().SetUnknown(varintField(nil, 99, 1)) }
	result := func(put *belfryv1.PutResponse) []*belfryv1.PutBatchResult {
		return []*belfryv1.PutBatchResult{{Result: &belfryv1.PutBatchResult_Put{Put: put}}}
	}
	newer := func() *belfryv1.PutResponse {
		return &belfryv1.PutResponse{DueAt: &timestamppb.Timestamp{}, Witness: &belfryv1.Witness{Time: &timestamppb.Timestamp{}}}
	}
	ofResponse, ofDue, ofWitness, ofTime := newer(), newer(), newer(), newer()
	unknown(ofResponse)
	unknown(ofDue.DueAt)
	unknown(ofWitness.Witness)
	unknown(ofTime.Witness.Time)
	ofResult := result(newer())
	unknown(ofResult[0])
	ofBatch := &belfryv1.PutBatchResponse{Results: plainResults()}
	unknown(ofBatch)
	failed := &belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Error{Error: &belfryv1.EntryError{Code: "x", Message: "y"}}}
	for name, m := range map[string]*belfryv1.PutBatchResponse{
		"nil":                         nil,
		"empty":                       {},
		"plain":                       {Results: plainResults()},
		"an error":                    {Results: append(plainResults(), failed)},
		"no result":                   {Results: []*belfryv1.PutBatchResult{{}}},
		"nil result":                  {Results: []*belfryv1.PutBatchResult{nil}},
		"nil put":                     {Results: result(nil)},
		"nil alternative":             {Results: []*belfryv1.PutBatchResult{{Result: (*belfryv1.PutBatchResult_Put)(nil)}}},
		"an id that is no text":       {Results: result(&belfryv1.PutResponse{Id: "\xff"})},
		"unknown field of the answer": ofBatch,
		"unknown field of a result":   {Results: ofResult},
		"unknown field of a put":      {Results: result(ofResponse)},
		"unknown field of a due time": {Results: result(ofDue)},
		"unknown field of a witness":  {Results: result(ofWitness)},
		"unknown field of its time":   {Results: result(ofTime)},
	} {
		t.Run(name, func(t *testing.T) { sameResponse(t, m) })
	}
}

// TestAppendAckBatch writes answers as the generated code does.
func TestAppendAckBatch(t *testing.T) {
	unknown := func(m proto.Message) { m.ProtoReflect().SetUnknown(varintField(nil, 99, 1)) }
	newer := func() *belfryv1.AckResponse {
		return &belfryv1.AckResponse{Witness: &belfryv1.Witness{Index: 7, Time: &timestamppb.Timestamp{}}}
	}
	ofResult, ofAck, ofWitness, ofTime := ackResult(newer()), newer(), newer(), newer()
	unknown(ofResult)
	unknown(ofAck)
	unknown(ofWitness.Witness)
	unknown(ofTime.Witness.Time)
	ofBatch := &belfryv1.AckBatchResponse{Results: plainAcks()}
	unknown(ofBatch)
	failed := func(message string) *belfryv1.AckBatchResult {
		return &belfryv1.AckBatchResult{Result: &belfryv1.AckBatchResult_Error{Error: &belfryv1.EntryError{Message: message}}}
	}
	results := func(r ...*belfryv1.AckBatchResult) *belfryv1.AckBatchResponse {
		return &belfryv1.AckBatchResponse{Results: r}
	}
	for name, m := range map[string]*belfryv1.AckBatchResponse{
		"nil":                         nil,
		"empty":                       {},
		"plain":                       results(plainAcks()...),
		"an error":                    results(ackResult(newer()), failed("stale"), ackResult(newer())),
		"an error that is no text":    results(failed("\xff")),
		"no result":                   results(&belfryv1.AckBatchResult{}),
		"nil result":                  results(nil, nil),
		"nil ack":                     results(ackResult(nil)),
		"nil alternative":             results(&belfryv1.AckBatchResult{Result: (*belfryv1.AckBatchResult_Ack)(nil)}),
		"unknown field of the answer": ofBatch,
		"unknown field of a result":   results(ofResult),
		"unknown field of an ack":     results(ackResult(ofAck)),
		"unknown field of a witness":  results(ackResult(ofWitness)),
		"unknown field of its time":   results(ackResult(ofTime)),
	} {
		t.Run(name, func(t *testing.T) { sameResponse(t, m) })
	}
}

// TestBinaryCodec: other messages go their way, and what is no message is refused.
func TestBinaryCodec(t *testing.T) {
	put := fullPut()
	data, err := binaryCodec{}.Marshal(put)
	stable, stableErr := binaryCodec{}.MarshalStable(put)
	got := &belfryv1.PutRequest{}
	if err != nil || stableErr != nil || !bytes.Equal(data, stable) || (binaryCodec{}).Unmarshal(data, got) != nil || !proto.Equal(put, got) {
		t.Errorf("there and back: %v from %x (%v), %x (%v)", got, data, err, stable, stableErr)
	}
	_, err = binaryCodec{}.Marshal("text")
	_, stableErr = binaryCodec{}.MarshalStable("text")
	if err == nil || stableErr == nil || (binaryCodec{}).Unmarshal(nil, "text") == nil {
		t.Error("a string was taken for a message")
	}
	if !(binaryCodec{}).IsBinary() || (binaryCodec{}).Name() != "proto" {
		t.Error("Connect would not find the codec, or take its bytes for text")
	}
}

// FuzzBatchWire holds what is read and written by hand against the generated code.
func FuzzBatchWire(f *testing.F) {
	f.Add(encode(f, &belfryv1.PutBatchRequest{Jobs: plainPuts(), RequestId: "r"}))
	f.Add(encode(f, &belfryv1.PutBatchRequest{Jobs: rarePuts()}))
	f.Add(encode(f, &belfryv1.PutBatchResponse{Results: plainResults()}))
	f.Add(encode(f, &belfryv1.PutBatchResponse{Results: []*belfryv1.PutBatchResult{{Result: &belfryv1.PutBatchResult_Error{Error: &belfryv1.EntryError{Code: "x"}}}}}))
	f.Add(encode(f, &belfryv1.AckBatchResponse{Results: plainAcks()}))
	f.Add(encode(f, &belfryv1.ReserveResponse{Jobs: plainJobs(), Witnesses: []*belfryv1.Witness{{}, plainWitness()}}))
	f.Add(bytesField(nil, 1, bytesField(bytesField(nil, 3, varintField(nil, 1, 8)), 3, varintField(nil, 2, 9))))
	f.Fuzz(func(t *testing.T, data []byte) {
		sameRequest(t, data)
		for _, m := range []proto.Message{&belfryv1.PutBatchResponse{}, &belfryv1.AckBatchResponse{}, &belfryv1.ReserveResponse{}} {
			if proto.Unmarshal(data, m) == nil {
				sameResponse(t, m)
			}
		}
	})
}
