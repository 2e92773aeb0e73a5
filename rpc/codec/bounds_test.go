package codec

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// codecsWith returns both codecs as a server has them.
func codecsWith(limits check.Limits) map[string]connect.Codec {
	b := NewBounds(&limits)
	return map[string]connect.Codec{"JSON": NewJSON(NameJSON, b), "binary": Binary{Bounds: b}}
}

// TestValidFloodsAreRead: no valid request has too many elements, and an entry of a batch with a
// list that is too long does not take the others with it.
func TestValidFloodsAreRead(t *testing.T) {
	headers := map[string]string{}
	for i := range 3000 {
		headers[fmt.Sprintf("%05x", i)] = ""
	}
	jobs := make([]*belfryv1.PutRequest, 1000)
	for i := range jobs {
		jobs[i] = &belfryv1.PutRequest{RetryDelays: slices.Repeat([]*durationpb.Duration{durationpb.New(time.Second)}, 63)}
	}
	jobs[0].RetryDelays = slices.Repeat(jobs[0].RetryDelays, 10)
	jobs[1].Headers = headers
	lease := wire.FormatLease(fsm.Ref{Queue: "nothing", Serial: 1, Fence: 1})
	for _, m := range []proto.Message{
		&belfryv1.PutBatchRequest{Jobs: jobs},
		&belfryv1.PutRequest{Headers: headers},
		&belfryv1.AckBatchRequest{Leases: slices.Repeat([]string{lease}, 1000)},
		&belfryv1.WorkRequest{Acks: slices.Repeat([]*belfryv1.AckRequest{{Lease: lease}}, 20_000)},
	} {
		for kind, c := range codecsWith(check.DefaultLimits()) {
			data, err := c.Marshal(m)
			if err != nil || len(data) < countedBytesMin {
				t.Fatalf("%d bytes (%v)", len(data), err)
			}
			got := m.ProtoReflect().New().Interface()
			if err := c.Unmarshal(data, got); err != nil || !proto.Equal(m, got) {
				t.Errorf("%T in %s: %v", m, kind, err)
			}
		}
	}
}

// TestEveryListIsBounded: a list or map that is added to a request is found, at any depth.
func TestEveryListIsBounded(t *testing.T) {
	limits := check.DefaultLimits()
	b := NewBounds(&limits)
	found := 0
	var walk func(desc protoreflect.MessageDescriptor, s *shape, path string)
	walk = func(desc protoreflect.MessageDescriptor, s *shape, path string) {
		for i := range desc.Fields().Len() {
			field := desc.Fields().Get(i)
			var at *bound
			if s != nil {
				at = s.numbered(field.Number())
			}
			if field.Cardinality() == protoreflect.Repeated {
				if found++; at == nil || at.most <= 0 {
					t.Fatalf("%s.%s has no bound", path, field.Name())
				}
			}
			if field.Message() != nil && !field.IsMap() {
				var inner *shape
				if at != nil {
					inner = at.inner
				}
				walk(field.Message(), inner, path+"."+string(field.Name()))
			}
		}
	}
	for _, file := range []protoreflect.FileDescriptor{belfryv1.File_belfry_v1_queue_proto,
		belfryv1.File_belfry_v1_admin_proto, belfryv1.File_belfry_v1_schedule_proto} {
		for i := range file.Services().Len() {
			for k := range file.Services().Get(i).Methods().Len() {
				input := file.Services().Get(i).Methods().Get(k).Input()
				walk(input, b[input.FullName()], string(input.Name()))
			}
		}
	}
	if found < 16 {
		t.Errorf("only %d lists were found", found)
	}
}

// TestCountJSON counts in odd but valid JSON, and comes to an end in what is none.
func TestCountJSON(t *testing.T) {
	limits := check.DefaultLimits()
	s := NewBounds(&limits)["belfry.v1.PutBatchRequest"]
	for _, c := range []struct {
		text                   string
		jobs, headers, retries int
	}{
		{``, 0, 0, 0},
		{`{}`, 0, 0, 0},
		{" {\n\t\"jobs\" :\r[ { } , {} ] } ", 2, 0, 0},
		{`{"j\u006fbs":[{},{}]}`, 2, 0, 0},
		{`{"requestId":"]}\"\\","jobs":[{"text":"[{,\\\"","retry_delays":["0s",1.5,null]},{"retryDelays":[0]}]}`, 2, 0, 4},
		{`{"jobs":[{"headers":{"a":"}","b":"","\"":"x"}}]}`, 1, 3, 0},
		{`{"jobs":null}`, 0, 0, 0},
		{`{"jobs":{"jobs":[1]}}`, 0, 0, 0},
		{`{"other":[{"jobs":[1,2,[3]]}],"jobs":[null,7]}`, 2, 0, 0},
		{`{"jobs":[{"headers":[1,2],"retryDelays":{"a":1}},{}`, 2, 0, 0},
		{`{"jobs":[{},{}}`, 2, 0, 0},
		{`{"jobs":[{},"`, 2, 0, 0},
		{`{"jobs`, 0, 0, 0},
		{`{"\`, 0, 0, 0},
		{`{"\u00":1}`, 0, 0, 0},
		{`{jobs:[1,2]}`, 0, 0, 0},
		{strings.Repeat(`{"jobs":[`, 3), 1, 0, 0},
		{`{"jobs":` + strings.Repeat(`[`, 1_000_000), 1, 0, 0},
	} {
		j := jsonCount{rest: []byte(c.text), counts: make([]int, s.slots)}
		j.message(s)
		if got, want := j.counts, []int{c.jobs, c.headers, c.retries}; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", fault.Clip(c.text, 80), got, want)
		}
	}
}

// FuzzBounds holds the counts against what the decoders make of the same bytes.
func FuzzBounds(f *testing.F) {
	batch := &belfryv1.PutBatchRequest{RequestId: "r", Jobs: []*belfryv1.PutRequest{
		{Queue: "orders", Id: "a", Body: &belfryv1.PutRequest_Text{Text: "body"}},
		{
			Queue: "orders", Headers: map[string]string{"z": "26", "a": "1", "m": ""},
			Body: &belfryv1.PutRequest_Data{Data: []byte{0xff}},
		},
		{Queue: "orders", RetryDelays: []*durationpb.Duration{durationpb.New(0), durationpb.New(time.Hour)}},
	}}
	text, err := protojson.Marshal(batch)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	data, err := proto.Marshal(batch)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"jobs":[{"headers":{"a":"\"","b\\":"]"},"retryDelays":["0s","1s"]},{}],"requestId":"\u005d"}`))
	limits := check.DefaultLimits()
	s := NewBounds(&limits)["belfry.v1.PutBatchRequest"]
	f.Fuzz(func(t *testing.T, data []byte) {
		// What was made counts also if the decoder gave up later.
		check := func(how string, counts []int, m *belfryv1.PutBatchRequest) {
			jobs, headers, retries := len(m.GetJobs()), 0, 0
			for _, job := range m.GetJobs() {
				headers, retries = headers+len(job.GetHeaders()), retries+len(job.GetRetryDelays())
			}
			if counts[0] < jobs || counts[1] < headers || counts[2] < retries {
				t.Fatalf("%s: %v is counted of %d, %d and %d in %q", how, counts, jobs, headers, retries, data)
			}
		}
		counts, m := make([]int, s.slots), &belfryv1.PutBatchRequest{}
		s.countBinary(data, counts)
		_ = proto.Unmarshal(data, m)
		check("binary", counts, m)
		j := jsonCount{rest: data, counts: make([]int, s.slots)}
		j.message(s)
		m = &belfryv1.PutBatchRequest{}
		_ = protojson.Unmarshal(data, m)
		check("JSON", j.counts, m)
		m = &belfryv1.PutBatchRequest{}
		_ = decodeJSON(data, m)
		check("relaxed JSON", j.counts, m)
	})
}

// BenchmarkBounds is what looking for floods adds to reading a batch of 1,000 jobs of 100 bytes.
func BenchmarkBounds(b *testing.B) {
	job := &belfryv1.PutRequest{Queue: "bench", Body: &belfryv1.PutRequest_Data{Data: make([]byte, 100)}}
	batch := &belfryv1.PutBatchRequest{Jobs: slices.Repeat([]*belfryv1.PutRequest{job}, 1000)}
	limits := check.DefaultLimits()
	for name, c := range map[string]connect.Codec{
		"binary": Binary{}, "binary/bounded": Binary{Bounds: NewBounds(&limits)},
		"JSON": JSON(), "JSON/bounded": NewJSON(NameJSON, NewBounds(&limits)),
	} {
		data, err := c.Marshal(batch)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.Unmarshal(data, &belfryv1.PutBatchRequest{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestAnswerIsWrittenOnce: the memory of an answer is reused after it was written.
func TestAnswerIsWrittenOnce(t *testing.T) {
	c := Binary{Buffers: &Buffers{}}
	data := []byte("answer")
	a := &bytesAnswer{binary: &data}
	if got, err := c.Marshal(a); string(got) != "answer" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := c.Marshal(a); err == nil {
		t.Errorf("written twice: %q", got)
	}
}
