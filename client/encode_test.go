package client

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/belfrydb/belfry/client/internal/placement"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// A capture keeps the body of the last request, and answers with nothing.
type capture struct{ body []byte }

// Do implements connect.HTTPClient.
func (c *capture) Do(req *http.Request) (*http.Response, error) {
	var err error
	c.body, err = io.ReadAll(req.Body)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/proto"}},
		Body: io.NopCloser(bytes.NewReader(nil)), Request: req,
	}, err
}

// options are generators of every option of a put, by the field that it sets.
var options = map[protoreflect.Name]func(t *rapid.T) PutOption{
	"delay": func(t *rapid.T) PutOption { return In(time.Duration(rapid.Int64().Draw(t, "delay"))) },
	"due_at": func(t *rapid.T) PutOption {
		return At(time.Unix(rapid.Int64Range(-1<<33, 1<<36).Draw(t, "at"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos")))
	},
	"id":           func(t *rapid.T) PutOption { return ID(drawText(t, "id")) },
	"ttr":          func(t *rapid.T) PutOption { return TTR(time.Duration(rapid.Int64().Draw(t, "ttr"))) },
	"priority":     func(t *rapid.T) PutOption { return Priority(rapid.Int64Range(-128, 1<<32-1).Draw(t, "priority")) },
	"max_attempts": func(t *rapid.T) PutOption { return MaxAttempts(rapid.Uint32().Draw(t, "max")) },
	"retry_delays": func(t *rapid.T) PutOption {
		var delays []time.Duration
		for range rapid.IntRange(0, 3).Draw(t, "delays") {
			delays = append(delays, time.Duration(rapid.Int64().Draw(t, "delay")))
		}
		return RetryDelays(delays...)
	},
	"ttl":     func(t *rapid.T) PutOption { return TTL(time.Duration(rapid.Int64().Draw(t, "ttl"))) },
	"headers": func(t *rapid.T) PutOption { return Header(drawText(t, "name"), drawText(t, "value")) },
	"again":   func(*rapid.T) PutOption { return Again() },
	"key":     func(t *rapid.T) PutOption { return Key(drawText(t, "key")) },
	"on_existing": func(t *rapid.T) PutOption {
		return OnExisting(Existing(rapid.Int32Range(0, 1<<30).Draw(t, "existing")))
	},
	"max_wait":   func(t *rapid.T) PutOption { return MaxWait(time.Duration(rapid.Int64().Draw(t, "wait"))) },
	"if_version": func(t *rapid.T) PutOption { return IfVersion(rapid.Uint64().Draw(t, "version")) },
	// What no option of the package sets, one of the caller's may.
	"queue": func(t *rapid.T) PutOption {
		queue := drawText(t, "queue")
		return PutOption{func(r *belfryv1.PutRequest) { r.Queue = queue }}
	},
	"text": func(t *rapid.T) PutOption {
		text := drawText(t, "text")
		return PutOption{func(r *belfryv1.PutRequest) { r.Body = &belfryv1.PutRequest_Text{Text: text} }}
	},
	"data": func(t *rapid.T) PutOption {
		data := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "data")
		return PutOption{func(r *belfryv1.PutRequest) { r.Body = &belfryv1.PutRequest_Data{Data: data} }}
	},
	"request_id": func(t *rapid.T) PutOption {
		id := drawText(t, "request id")
		return PutOption{func(r *belfryv1.PutRequest) { r.RequestId = id }}
	},
}

// TestPutsAreEncodedAsTheGeneratedCodeDoes: a batch means what its puts and their options say, and
// takes no more bytes than was estimated.
func TestPutsAreEncodedAsTheGeneratedCodeDoes(t *testing.T) {
	fields := (&belfryv1.PutRequest{}).ProtoReflect().Descriptor().Fields()
	var names []protoreflect.Name
	for i := range fields.Len() {
		names = append(names, fields.Get(i).Name())
		if options[names[i]] == nil {
			t.Fatalf("there is no option for the field %s", names[i])
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		var puts []encodedPut
		want := &belfryv1.PutBatchRequest{RequestId: rapid.SampledFrom([]string{"", "r"}).Draw(t, "id")}
		scratch := new(putScratch)
		for range rapid.IntRange(0, 4).Draw(t, "puts") {
			put := Put{Queue: drawText(t, "queue"), Body: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "body")}
			when := false // a put takes one due time only
			for range rapid.IntRange(0, 3).Draw(t, "options") {
				name := rapid.SampledFrom(names).Draw(t, "option")
				if due := name == "delay" || name == "due_at"; !due || !when {
					put.Options = append(put.Options, options[name](t))
					when = when || due
				}
			}
			plain := &belfryv1.PutRequest{Queue: put.Queue, Body: &belfryv1.PutRequest_Data{Data: put.Body}}
			for _, option := range put.Options {
				option.apply(plain)
			}
			want.Jobs = append(want.Jobs, plain)
			req, estimate, err := scratch.request(put)
			if err != nil {
				t.Fatal(err)
			}
			encoded := encodedPut{place: putPlace(req)}
			if encoded.wire, err = scratch.encode(nil, req); err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(plain.GetData(), put.Body) && plain.GetRequestId() == "" && len(encoded.wire) > estimate {
				t.Fatalf("%d bytes, estimated as %d", len(encoded.wire), estimate)
			}
			if encoded.place != (placement.Place{Queue: plain.GetQueue(), ID: plain.GetId(), Key: plain.GetKey()}) {
				t.Fatalf("%+v is the place of %v", encoded.place, plain)
			}
			puts = append(puts, encoded)
		}
		sent := &capture{}
		if _, err := sendPuts(t.Context(), newEndpoint("http://n1", sent, nil), want.GetRequestId(), puts); err != nil {
			t.Fatal(err)
		}
		got := &belfryv1.PutBatchRequest{}
		if err := proto.Unmarshal(sent.body, got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// TestAcksAreEncodedAsTheGeneratedCodeDoes: a batch has the leases that were acked.
func TestAcksAreEncodedAsTheGeneratedCodeDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &belfryv1.AckBatchRequest{Leases: rapid.SliceOfN(rapid.StringN(0, 40, 100), 0, 4).Draw(t, "leases")}
		sent := &capture{}
		if _, err := sendAcks(t.Context(), newEndpoint("http://n1", sent, nil), "", want.GetLeases()); err != nil {
			t.Fatal(err)
		}
		got := &belfryv1.AckBatchRequest{}
		if err := proto.Unmarshal(sent.body, got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreEmptyMessages()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// TestPutBatchSendsWhatWasPut: chunks share memory, and a put that is refused leaves no trace.
func TestPutBatchSendsWhatWasPut(t *testing.T) {
	fake := NewFake()
	c := serveSocket(t, fake.Handler())
	var puts []Put
	for i := range 2100 {
		put := Put{Queue: "q", Body: []byte(fmt.Sprint(i)), Options: []PutOption{ID(fmt.Sprint("id", i))}}
		switch {
		case i%10 == 3:
			put.Queue = "\xff"
		case i%7 == 0:
			put.Options = append(put.Options, Header("number", fmt.Sprint(i)))
		}
		puts = append(puts, put)
	}
	results, _ := c.PutBatch(t.Context(), puts)
	bodies := map[string]string{}
	for _, job := range fake.jobs {
		bodies[job.id] = string(job.put.GetData()) + job.put.GetHeaders()["number"]
	}
	for i, put := range puts {
		id, want := fmt.Sprint("id", i), string(put.Body)
		if len(put.Options) > 1 {
			want += want
		}
		if refused := put.Queue != "q"; (results[i].Err != nil) != refused || !refused &&
			(bodies[id] != want || results[i].ID != id) {
			t.Errorf("put %d: %+v, %q", i, results[i], bodies[id])
		}
	}
}
