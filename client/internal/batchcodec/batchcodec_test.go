package batchcodec

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/belfrydb/belfry/client/internal/coalesce"
	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/wire"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// drawPut draws a put with the fields that are encoded by hand, and often with another one.
func drawPut(t *rapid.T) *belfryv1.PutRequest {
	put := &belfryv1.PutRequest{
		Queue: rapid.StringN(0, 40, 100).Draw(t, "queue"), Id: rapid.StringN(0, 200, 300).Draw(t, "id"),
		Body: &belfryv1.PutRequest_Data{Data: rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "data")},
	}
	seconds, nanos := rapid.Int64().Draw(t, "seconds"), rapid.Int32().Draw(t, "nanos")
	switch rapid.IntRange(0, 4).Draw(t, "when") {
	case 1:
		put.When = &belfryv1.PutRequest_Delay{Delay: &durationpb.Duration{Seconds: seconds, Nanos: nanos}}
	case 2:
		put.When = &belfryv1.PutRequest_DueAt{DueAt: &timestamppb.Timestamp{Seconds: seconds, Nanos: nanos}}
	case 3:
		put.When = &belfryv1.PutRequest_Delay{Delay: &durationpb.Duration{}}
	case 4:
		put.When = &belfryv1.PutRequest_DueAt{DueAt: &timestamppb.Timestamp{}}
	}
	if rapid.Bool().Draw(t, "keyed") {
		put.Key = rapid.StringN(0, 40, 100).Draw(t, "key")
	}
	switch rapid.IntRange(0, 15).Draw(t, "rare") {
	case 1:
		put.Ttr = durationpb.New(0)
	case 2:
		put.Priority = new(rapid.Int64().Draw(t, "priority"))
	case 3:
		put.Headers = map[string]string{"k": "v"}
	case 4:
		put.MaxAttempts = new(uint32)
	case 5:
		put.RetryDelays = []*durationpb.Duration{durationpb.New(time.Second)}
	case 6:
		put.Ttl = durationpb.New(0)
	case 7:
		put.RequestId = "r"
	case 8:
		put.Again = true
	case 9:
		put.Body = &belfryv1.PutRequest_Text{Text: "text"}
	case 10:
		put.Body = nil
	case 11:
		put.OnExisting = belfryv1.OnExisting_ON_EXISTING_REPLACE
	case 12:
		put.MaxWait = durationpb.New(time.Second)
	case 13:
		put.IfVersion = rapid.Uint64().Draw(t, "version")
	}
	return put
}

// TestBatchesAreReadByTheGeneratedCode: a batch means what its puts or leases, and its id, say.
func TestBatchesAreReadByTheGeneratedCode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringN(0, 40, 100).Draw(t, "request id")
		wantPuts, gotPuts := &belfryv1.PutBatchRequest{RequestId: id}, &belfryv1.PutBatchRequest{}
		wantAcks, gotAcks := &belfryv1.AckBatchRequest{RequestId: id}, &belfryv1.AckBatchRequest{}
		var puts, acks []byte
		for range rapid.IntRange(0, 3).Draw(t, "entries") {
			put, lease := drawPut(t), rapid.StringN(0, 200, 300).Draw(t, "lease")
			one, err := AppendPut([]byte("before"), put)
			if err != nil || !bytes.HasPrefix(one, []byte("before")) {
				t.Fatalf("%q: %v", one, err)
			}
			puts, acks = AppendEntry(puts, one[len("before"):]), AppendEntry(acks, lease)
			wantPuts.Jobs, wantAcks.Leases = append(wantPuts.Jobs, put), append(wantAcks.Leases, lease)
		}
		if err := errors.Join(proto.Unmarshal(AppendRequestID(puts, id), gotPuts),
			proto.Unmarshal(AppendRequestID(acks, id), gotAcks)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wantPuts, gotPuts, protocmp.Transform()); diff != "" {
			t.Fatalf("puts (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(wantAcks, gotAcks, protocmp.Transform()); diff != "" {
			t.Fatalf("acks (-want +got):\n%s", diff)
		}
	})
}

// A success is what set was called with.
type success struct {
	id   string
	left int
}

func keepID(r *success, data []byte, left int) error {
	var m belfryv1.PutResponse
	err := proto.Unmarshal(data, &m)
	r.id, r.left = m.GetId(), left
	return err
}

// marshal encodes messages one after the other.
func marshal(t *testing.T, all ...proto.Message) (data []byte) {
	t.Helper()
	for _, m := range all {
		var err error
		if data, err = (proto.MarshalOptions{}).MarshalAppend(data, m); err != nil {
			t.Fatal(err)
		}
	}
	return data
}

// TestReplies: each entry has its result, the last one if there are several.
func TestReplies(t *testing.T) {
	full := &belfryv1.EntryError{
		Code: "resource_exhausted", Reason: belfryv1.Reason_REASON_QUEUE_FULL,
		Outcome: belfryv1.Outcome_OUTCOME_NOT_APPLIED,
	}
	put := &belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Put{Put: &belfryv1.PutResponse{Id: "a"}}}
	failed := &belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Error{Error: full}}
	other := &belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Put{Put: &belfryv1.PutResponse{Id: "b"}}}
	var data []byte
	for _, entry := range [][]byte{
		marshal(t, put), marshal(t, failed), nil, marshal(t, failed, other), marshal(t, put, failed),
	} {
		data = AppendEntry(data, entry) // as field 1, which results have too
		// and a field of a later version
		data = protowire.AppendVarint(protowire.AppendTag(data, 9, protowire.VarintType), 1)
	}
	want := []coalesce.Reply[success]{
		{Result: success{"a", 5}}, {Err: failure.OfEntry(full)}, {Err: failure.MissingResult()}, {Result: success{"b", 2}},
		{Result: success{"a", 1}, Err: failure.OfEntry(full)},
	}
	got, err := DecodeReplies(data, keepID)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(success{})); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if none, err := DecodeReplies(nil, keepID); err != nil || len(none) != 0 {
		t.Errorf("an empty answer: %v, %v", none, err)
	}
}

// TestDamagedReplies are errors, wherever the damage is.
func TestDamagedReplies(t *testing.T) {
	broken := errors.New("broken")
	refuse := func(*success, []byte, int) error { return broken }
	for name, c := range map[string]struct {
		data []byte
		set  func(*success, []byte, int) error
		want error
	}{
		"the answer":   {[]byte{1<<3 | 2, 5, 0}, keepID, wire.ErrTruncated},
		"an entry":     {AppendEntry(nil, []byte{1<<3 | 2, 5, 0}), keepID, wire.ErrTruncated},
		"a success":    {AppendEntry(nil, AppendEntry(nil, "x")), refuse, broken},
		"another tail": {append(AppendEntry(nil, AppendEntry(nil, "")), 1<<3|2), keepID, wire.ErrTruncated},
	} {
		if _, err := DecodeReplies(c.data, c.set); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	entry := protowire.AppendBytes(protowire.AppendTag(nil, fieldError, protowire.BytesType), []byte{0xff})
	_, err := DecodeReplies(AppendEntry(nil, entry), keepID)
	if err == nil || !strings.Contains(err.Error(), "decoding the error of an entry") {
		t.Errorf("an error: %v", err)
	}
}
