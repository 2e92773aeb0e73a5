package main

import (
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// answerKeys has three keys on two pages, and does what is asked to a key.
func answerKeys(r proto.Message) (proto.Message, error) {
	switch r := r.(type) {
	case *belfryv1.ListKeysRequest:
		if r.PageToken != "" {
			return &belfryv1.ListKeysResponse{Searched: 9, Keys: []*belfryv1.Key{{
				Key: "idle", Counts: &belfryv1.JobCounts{}, Paused: true, Blocked: belfryv1.KeyBlock_KEY_BLOCK_NOT_BLOCKED,
			}}}, nil
		}
		return &belfryv1.ListKeysResponse{NextPageToken: "more", StoppedEarly: true, Searched: 1234567, Keys: []*belfryv1.Key{
			{Key: "customer-7", Counts: &belfryv1.JobCounts{Ready: 1200, Reserved: 1},
				Blocked: belfryv1.KeyBlock_KEY_BLOCK_LIMIT},
			{Key: "b\tc", Counts: &belfryv1.JobCounts{Ready: 1, Delayed: 2, Dead: 3},
				Blocked: belfryv1.KeyBlock_KEY_BLOCK_NOT_BLOCKED},
		}}, nil
	case *belfryv1.PauseKeyRequest:
		return &belfryv1.PauseKeyResponse{}, nil
	case *belfryv1.ResumeKeyRequest:
		return &belfryv1.ResumeKeyResponse{}, nil
	case *belfryv1.PurgeKeyRequest:
		return &belfryv1.PurgeKeyResponse{Purged: 1234}, nil
	default:
		return nil, connect.NewError(connect.CodeInternal, nil)
	}
}

// TestKeysCommands: what each verb says, and what it asks the server for.
func TestKeysCommands(t *testing.T) {
	const warning = "belfry: warning: there are too many keys: only 1,234,567 were looked at\n"
	for _, test := range []struct {
		args, typed string
		want        clitest.Outcome
		asked       []proto.Message
	}{
		{"keys list orders customer --state ready --sort name -n 3", "", clitest.Left(0, ""+
			"KEY         READY  DELAYED  RESERVED  DEAD  BLOCKED  NEXT DUE  NEXT TOKEN\n"+
			"customer-7  1,200  0        1         0     limit              \n"+
			"b·c         1      2        0         3                        \n"+
			"idle        0      0        0         0     paused             \n", warning),
			[]proto.Message{
				&belfryv1.ListKeysRequest{Queue: "orders", Prefix: "customer", State: belfryv1.JobState_JOB_STATE_READY,
					Order: belfryv1.KeyOrder_KEY_ORDER_NAME, PageSize: 3},
				&belfryv1.ListKeysRequest{Queue: "orders", Prefix: "customer", State: belfryv1.JobState_JOB_STATE_READY,
					Order: belfryv1.KeyOrder_KEY_ORDER_NAME, PageSize: 1, PageToken: "more"},
			}},
		{"keys list orders --max 2", "", clitest.Left(0, ""+
			"KEY         READY  DELAYED  RESERVED  DEAD  BLOCKED  NEXT DUE  NEXT TOKEN\n"+
			"customer-7  1,200  0        1         0     limit              \n"+
			"b·c         1      2        0         3                        \n"+
			"there are more; --max shows them\n", warning),
			[]proto.Message{&belfryv1.ListKeysRequest{
				Queue: "orders", Order: belfryv1.KeyOrder_KEY_ORDER_BACKLOG, PageSize: 2,
			}}},
		{"keys pause orders k --request-id r", "", clitest.Left(0, "k is paused\n", ""),
			[]proto.Message{&belfryv1.PauseKeyRequest{Queue: "orders", Key: "k", RequestId: "r"}}},
		{"keys resume orders k --request-id r", "", clitest.Left(0, "k is not paused\n", ""),
			[]proto.Message{&belfryv1.ResumeKeyRequest{Queue: "orders", Key: "k", RequestId: "r"}}},
		{"keys purge orders k --yes -s dead -n 5 --request-id r", "", clitest.Left(0, "1,234 jobs purged\n",
			"This removes jobs of the key k of orders (dead).\n"),
			[]proto.Message{&belfryv1.PurgeKeyRequest{Queue: "orders", Key: "k", Max: 5, RequestId: "r",
				States: []belfryv1.JobState{belfryv1.JobState_JOB_STATE_DEAD}}}},
		{"keys purge orders k", "no\n", clitest.Left(cli.CodeError, "",
			"This removes jobs of the key k of orders (delayed, ready, dead).\nGo on? Type yes: belfry: nothing was removed\n"),
			nil},
	} {
		h := newHarness(t, answerKeys)
		h.System.In, h.System.InTerminal = strings.NewReader(test.typed), true
		if diff := cmp.Diff(test.want, h.Run(strings.Fields(test.args)...)); diff != "" {
			t.Errorf("%s: outcome (-want +got):\n%s", test.args, diff)
		}
		if diff := cmp.Diff(test.asked, sentOfKeys(h), protocmp.Transform()); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", test.args, diff)
		}
	}
	h := newHarness(t, answerKeys)
	if got := h.Run("keys", "list", "orders", "--max", "0", "--output", "json"); got.Code != 0 ||
		!strings.Contains(got.Out, `"key":"idle"`) || !strings.Contains(got.Out, `"blocked":"LIMIT"`) {
		t.Errorf("as JSON: %+v", got)
	}
}

// TestTextThatIsNotUTF8: the message names the flag or the field, and nothing is sent.
func TestTextThatIsNotUTF8(t *testing.T) {
	for want, args := range map[string][]string{
		"--key":    {"put", "orders", "--key", "\xff", "x"},
		"--header": {"put", "orders", "--header", "a=\xff", "x"},
		"--id":     {"put", "orders", "--id", "\xff", "x"},
		"queue":    {"put", "\xff", "x"},
		"prefix":   {"keys", "list", "orders", "\xff"},
		"key":      {"keys", "pause", "orders", "\xff"},
		"name":     {"schedule", "put", "orders", "\xff", "x", "--every", "1m"},
	} {
		h := newHarness(t, answerKeys)
		got := h.Run(args...)
		if len(h.Requests) > 0 || got.Code != cli.CodeUsage || got.Err != "belfry: INVALID: "+want+": not valid UTF-8\n" {
			t.Errorf("%q: %+v, want %s named", args, got, want)
		}
	}
}

// sentOfKeys returns the requests that concern keys.
func sentOfKeys(h *clitest.Harness) (all []proto.Message) {
	for _, r := range clitest.Sent[*belfryv1.ListKeysRequest](h) {
		all = append(all, r)
	}
	for _, r := range clitest.Sent[*belfryv1.PauseKeyRequest](h) {
		all = append(all, r)
	}
	for _, r := range clitest.Sent[*belfryv1.ResumeKeyRequest](h) {
		all = append(all, r)
	}
	for _, r := range clitest.Sent[*belfryv1.PurgeKeyRequest](h) {
		all = append(all, r)
	}
	return all
}
