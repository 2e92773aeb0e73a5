package utf8field

import (
	"context"
	"errors"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestFind: what the encoder refuses is named, and nothing else.
func TestFind(t *testing.T) {
	const bad = "a\xff"
	for name, test := range map[string]struct {
		want string
		m    proto.Message
	}{
		"a text":             {"key", &belfryv1.PutRequest{Queue: "q", Key: bad}},
		"one of a list":      {"queues[1]", &belfryv1.ReserveRequest{Queues: []string{"q", bad}}},
		"a name in a map":    {"headers", &belfryv1.PutRequest{Headers: map[string]string{"h": "v", bad: "v"}}},
		"a value in a map":   {"headers", &belfryv1.PutRequest{Headers: map[string]string{"h": bad}}},
		"a text within":      {"job.key", &belfryv1.PutScheduleRequest{Job: &belfryv1.PutRequest{Key: bad}}},
		"one of many within": {"jobs[1].id", &belfryv1.PutBatchRequest{Jobs: []*belfryv1.PutRequest{{}, {Id: bad}}}},
		"bytes":              {"", &belfryv1.PutRequest{Queue: "q", Body: &belfryv1.PutRequest_Data{Data: []byte(bad)}}},
	} {
		if got := Find(test.m); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if _, err := proto.Marshal(test.m); (err != nil) != (test.want != "") {
			t.Errorf("%s: the encoder says %v", name, err)
		}
	}
}

// TestInterceptor: a call is made if and only if its request can be encoded.
func TestInterceptor(t *testing.T) {
	refusal := errors.New("refused")
	for key, want := range map[string]error{"k": nil, "\xff": refusal} {
		called := false
		call := Interceptor(func(field string) error {
			if field != "key" {
				t.Errorf("the field is %q", field)
			}
			return refusal
		})(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
			called = true
			return nil, nil
		})
		_, err := call(t.Context(), connect.NewRequest(&belfryv1.PutRequest{Key: key}))
		if called != (want == nil) || !errors.Is(err, want) {
			t.Errorf("key %q: called %v, %v", key, called, err)
		}
	}
}
