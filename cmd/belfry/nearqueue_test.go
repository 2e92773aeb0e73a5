package main

import (
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestUnknownQueuesAreNamed: who mistypes the name of a queue is told so, and which was probably meant.
func TestUnknownQueuesAreNamed(t *testing.T) {
	answer := func(request proto.Message) (proto.Message, error) {
		switch r := request.(type) {
		case *belfryv1.GetQueueRequest:
			if r.Queue == "orders" {
				return &belfryv1.GetQueueResponse{Queue: &belfryv1.Queue{Name: "orders"}}, nil
			}
			return nil, wireError(connect.CodeNotFound, "QUEUE_NOT_FOUND", "there is no such queue")
		case *belfryv1.ListQueuesRequest:
			if r.Prefix != "" {
				return &belfryv1.ListQueuesResponse{}, nil
			}
			return &belfryv1.ListQueuesResponse{Queues: []*belfryv1.Queue{{Name: "mail"}, {Name: "orders"}}}, nil
		case *belfryv1.ListRequest:
			return &belfryv1.ListResponse{}, nil
		default:
			return &belfryv1.ReserveResponse{}, nil
		}
	}
	const meant = "; did you mean \"orders\"?\n"
	for _, test := range []struct {
		args []string
		want outcome
	}{
		{[]string{"queue", "show", "ordesr"}, outcome{codeNotFound, "", `belfry: QUEUE_NOT_FOUND: there is no queue "ordesr"` + meant}},
		{[]string{"queue", "show", "xyzzy"}, outcome{codeNotFound, "", "belfry: QUEUE_NOT_FOUND: there is no such queue\n"}},
		{[]string{"list", "ordesr"}, outcome{codeNotFound, "", `belfry: QUEUE_NOT_FOUND: there is no queue "ordesr"` + meant}},
		{[]string{"reserve", "orders", "ordesr", "xyzzy"}, outcome{codeNothing, "nothing to reserve\n",
			`belfry: warning: there is no queue "ordesr"` + meant + `belfry: warning: there is no queue "xyzzy"` + "\n"}},
		{[]string{"reserve", "orders"}, outcome{codeNothing, "nothing to reserve\n", ""}},
		{[]string{"queue", "list", "ordesr"}, outcome{codeOK, "no queues\n", `belfry: warning: no queue begins with "ordesr"` + meant}},
	} {
		h := newHarness(t, answer)
		if got := h.run(test.args...); got != test.want {
			t.Errorf("%v:\n got %+v\nwant %+v", test.args, got, test.want)
		}
	}
}
