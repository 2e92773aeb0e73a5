package main

import (
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestUnknownQueuesAreNamed: the error for a mistyped name of a queue says so, and which queue was
// probably meant.
func TestUnknownQueuesAreNamed(t *testing.T) {
	answer := func(request proto.Message) (proto.Message, error) {
		switch r := request.(type) {
		case *belfryv1.GetQueueRequest:
			if r.Queue == "orders" {
				return &belfryv1.GetQueueResponse{Queue: &belfryv1.Queue{Name: "orders"}}, nil
			}
			return nil, clitest.WireError(connect.CodeNotFound, "QUEUE_NOT_FOUND", "there is no such queue")
		case *belfryv1.ListQueuesRequest:
			if r.Prefix != "" {
				return &belfryv1.ListQueuesResponse{}, nil
			}
			return &belfryv1.ListQueuesResponse{Queues: []*belfryv1.Queue{{Name: "mail"}, {Name: "orders"}}}, nil
		case *belfryv1.ListRequest:
			return &belfryv1.ListResponse{}, nil
		case *belfryv1.PurgeQueueRequest, *belfryv1.DeleteQueueRequest:
			return nil, clitest.WireError(connect.CodeNotFound, "QUEUE_NOT_FOUND", "there is no such queue")
		default:
			return &belfryv1.ReserveResponse{}, nil
		}
	}
	const meant = "; did you mean \"orders\"?\n"
	for _, test := range []struct {
		args []string
		want clitest.Outcome
	}{
		{[]string{"queue", "show", "ordesr"},
			clitest.Left(cli.CodeNotFound, "", `belfry: QUEUE_NOT_FOUND: there is no queue "ordesr"`+meant)},
		{[]string{"queue", "show", "xyzzy"},
			clitest.Left(cli.CodeNotFound, "", "belfry: QUEUE_NOT_FOUND: there is no such queue\n")},
		{[]string{"list", "ordesr"},
			clitest.Left(cli.CodeNotFound, "", `belfry: QUEUE_NOT_FOUND: there is no queue "ordesr"`+meant)},
		{[]string{"reserve", "orders", "ordesr", "xyzzy"}, clitest.Left(cli.CodeNothing, "nothing to reserve\n",
			`belfry: warning: there is no queue "ordesr"`+meant+`belfry: warning: there is no queue "xyzzy"`+"\n")},
		{[]string{"queue", "purge", "ordesr", "--yes"},
			clitest.Left(cli.CodeNotFound, "", `belfry: QUEUE_NOT_FOUND: there is no queue "ordesr"`+meant)},
		{[]string{"queue", "delete", "ordesr", "--yes"},
			clitest.Left(cli.CodeNotFound, "", `belfry: QUEUE_NOT_FOUND: there is no queue "ordesr"`+meant)},
		{[]string{"reserve", "orders"}, clitest.Left(cli.CodeNothing, "nothing to reserve\n", "")},
		{[]string{"queue", "list", "ordesr"},
			clitest.Left(cli.CodeOK, "no queues\n", `belfry: warning: no queue begins with "ordesr"`+meant)},
	} {
		h := newHarness(t, answer)
		if got := h.Run(test.args...); got != test.want {
			t.Errorf("%v:\n got %+v\nwant %+v", test.args, got, test.want)
		}
	}
}
