package bench

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func putOf(id string) *belfryv1.PutBatchResult {
	return &belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Put{Put: &belfryv1.PutResponse{
		Id: id, DueAt: timestamppb.Now(),
	}}}
}

func failureOf(message string) *belfryv1.PutBatchResult {
	return &belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Error{Error: &belfryv1.EntryError{
		Code: "resource_exhausted", Reason: belfryv1.Reason_REASON_QUEUE_FULL, Message: message,
	}}}
}

func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestBatchAnswer finds in an answer what the generated code does.
func TestBatchAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		results []*belfryv1.PutBatchResult
		want    batchAnswer
	}{
		"nothing": {nil, batchAnswer{}},
		"puts": {[]*belfryv1.PutBatchResult{putOf("0-1"), putOf(""), putOf(strings.Repeat("i", 256))},
			batchAnswer{puts: 3}},
		"an error": {[]*belfryv1.PutBatchResult{failureOf("full")}, batchAnswer{failure: failureOf("full").GetError()}},
		"the first of": {[]*belfryv1.PutBatchResult{putOf("a"), failureOf("1"), putOf("b"), failureOf("2")}, batchAnswer{
			puts: 1, failure: failureOf("1").GetError(),
		}},
	} {
		var got batchAnswer
		if err := (codec{}).Unmarshal(encode(t, &belfryv1.PutBatchResponse{Results: c.results}), &got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(batchAnswer{}), protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestNoBatchAnswer counts nothing that is not sure to be a put.
func TestNoBatchAnswer(t *testing.T) {
	bytesField := func(dst []byte, field protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(dst, field, protowire.BytesType), value)
	}
	put := encode(t, putOf("a"))
	whole := bytesField(nil, 1, put)
	for name, data := range map[string][]byte{
		"cut":                  whole[:len(whole)-1],
		"cut in a tag":         append(whole[:len(whole):len(whole)], 0x80),
		"another field":        bytesField(nil, 2, put),
		"another type":         protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1),
		"no result":            bytesField(nil, 1, nil),
		"two results":          bytesField(nil, 1, append(put[:len(put):len(put)], put...)),
		"an unknown result":    bytesField(nil, 1, bytesField(nil, 3, nil)),
		"an error that is cut": bytesField(nil, 1, bytesField(nil, 2, []byte{0x0a, 5})),
	} {
		if err := (codec{}).Unmarshal(data, &batchAnswer{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := (codec{}).Unmarshal(nil, "text"); err == nil {
		t.Error("a string was taken for a message")
	}
	if _, err := (codec{}).Marshal("text"); err == nil {
		t.Error("a string was written as a message")
	}
}

func FuzzBatchAnswer(f *testing.F) {
	for _, results := range [][]*belfryv1.PutBatchResult{{putOf("a"), failureOf("full")}, {putOf("b"), {}, nil}} {
		data, err := proto.Marshal(&belfryv1.PutBatchResponse{Results: results})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got batchAnswer
		want := &belfryv1.PutBatchResponse{}
		if got.read(data) != nil || proto.Unmarshal(data, want) != nil {
			return // what a put says is not looked at, so that it may be wrong
		}
		for i, result := range want.GetResults() {
			if result.GetError() != nil || i >= got.puts {
				if i != got.puts || !proto.Equal(result.GetError(), got.failure) {
					t.Fatalf("%x: entry %d is %v, read as %d puts and %v", data, i, result, got.puts, got.failure)
				}
				return
			}
		}
		if got.failure != nil || got.puts != len(want.GetResults()) {
			t.Fatalf("%x has %d puts, read as %d and %v", data, len(want.GetResults()), got.puts, got.failure)
		}
	})
}

// TestBatchRequest sends what the messages would be: as many as asked for, with the stamps of each
// call.
func TestBatchRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		delays := 0
		delay := func() *durationpb.Duration { delays++; return durationpb.New(time.Duration(delays) * time.Hour) }
		r := newRun(Config{Connections: 2, BodyBytes: 40, Queues: 2}, nil)
		for _, call := range []struct {
			worker, jobs int
			delay        func() *durationpb.Duration
		}{{0, 3, nil}, {0, 3, nil}, {0, 2, nil}, {1, 2, delay}, {1, 2, delay}, {0, 5, nil}} {
			<-time.After(time.Second)
			want := &belfryv1.PutBatchRequest{}
			for i := range call.jobs {
				put := &belfryv1.PutRequest{
					Queue: r.names[call.worker], Body: &belfryv1.PutRequest_Data{Data: stamped(filler(40), time.Now())},
				}
				if call.delay != nil {
					put.When = &belfryv1.PutRequest_Delay{Delay: durationpb.New(time.Duration(delays+i+1) * time.Hour)}
				}
				want.Jobs = append(want.Jobs, put)
			}
			request, err := r.batchOf(call.worker, call.jobs, call.delay)
			if err != nil {
				t.Fatal(err)
			}
			data, err := codec{}.Marshal(request)
			got := &belfryv1.PutBatchRequest{}
			if err != nil || proto.Unmarshal(data, got) != nil {
				t.Fatalf("%x: %v", data, err)
			}
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Errorf("%d jobs of worker %d (-want +got):\n%s", call.jobs, call.worker, diff)
			}
		}
	})
}

// TestEntriesEndARun: a put that failed, and one that was not answered, are errors of the batch.
func TestEntriesEndARun(t *testing.T) {
	for want, results := range map[string][]*belfryv1.PutBatchResult{
		"putting job 1 of 3: REASON_QUEUE_FULL: full": {putOf("a"), failureOf("full"), putOf("b")},
		"putting 3 jobs: 2 were answered":             {putOf("a"), putOf("b")},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/proto")
			w.Write(encode(t, &belfryv1.PutBatchResponse{Results: results})) //nolint:errcheck // the client sees
		}))
		t.Cleanup(server.Close)
		address, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		r := newRun(Config{URL: server.URL, Connections: 1, BodyBytes: 8, Queues: 1}, address)
		t.Cleanup(r.close)
		if _, err := r.putBatch(t.Context(), 0, 3, nil); err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
