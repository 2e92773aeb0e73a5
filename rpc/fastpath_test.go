package rpc

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// givingUp is a node that gives every second call up, and holds its request for ever, as node.Node
// may.
type givingUp struct {
	*backendtest.Node
	calls   int
	held    []*fsm.Request
	encoded [][]byte
}

func (n *givingUp) Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error) {
	if n.calls++; n.calls%2 == 0 {
		return n.Node.Do(ctx, shard, req)
	}
	n.held, n.encoded = append(n.held, req), append(n.encoded, codec.AppendRequest(nil, req))
	return node.Reply{}, fmt.Errorf("%w: given up", node.ErrUnknownOutcome)
}

// TestGivenUpBatchesAreLeftAlone: what a node may still hold of a call that it gave up is not
// written over by later calls.
func TestGivenUpBatchesAreLeftAlone(t *testing.T) {
	n := &givingUp{Node: backendtest.NewNode(1)}
	s := serve(t, func(cfg *Config) { cfg.Node = n })
	for i := range 20 {
		puts, acks := &belfryv1.PutBatchRequest{}, &belfryv1.AckBatchRequest{}
		for k := range 10 {
			text := strconv.Itoa(i) + "-" + strings.Repeat("x", k)
			puts.Jobs = append(puts.Jobs, &belfryv1.PutRequest{
				Queue: "q" + strconv.Itoa(i), Id: "i" + text, Body: &belfryv1.PutRequest_Data{Data: []byte(text)},
			})
			acks.Leases = append(acks.Leases, wire.FormatLease(fsm.Ref{
				Queue: "q" + strconv.Itoa(i), Serial: uint64(k), Fence: uint64(i),
			}))
		}
		for range 2 {
			s.postBinary("PutBatch", encode(t, puts))
		}
		for range 2 {
			s.postBinary("AckBatch", encode(t, acks))
		}
	}
	if len(n.held) != 40 {
		t.Fatalf("%d requests were given up", len(n.held))
	}
	for i, req := range n.held {
		if !bytes.Equal(codec.AppendRequest(nil, req), n.encoded[i]) {
			t.Errorf("request %d, which was given up, has changed since", i)
		}
	}
}

// postBinary calls a method of the queue service with the bytes of a message.
func (s *served) postBinary(method string, body []byte, header ...string) answered {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/belfry.v1.QueueService/"+method,
		bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/proto")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil || res.Body.Close() != nil {
		s.t.Fatal(err)
	}
	return answered{status: res.StatusCode, header: res.Header, body: string(text)}
}

// TestUnreadableBytesAreRefusedAsElsewhere: what is no message has the same words, and all else, as
// in a method of which Connect reads the messages.
func TestUnreadableBytesAreRefusedAsElsewhere(t *testing.T) {
	s := serve(t)
	for _, body := range [][]byte{{0xff}, {0x0a, 0x05}} {
		want := s.postBinary("Put", body)
		for method, request := range map[string]string{
			"PutBatch": "PutBatchRequest", "AckBatch": "AckBatchRequest", "Reserve": "ReserveRequest",
		} {
			for _, header := range [][]string{nil, {requestIDHeader, "r"}} {
				got := s.postBinary(method, body, header...)
				if got.status != want.status || !sameRefusal(got.body, want.body, request) {
					t.Errorf("%s of %x: %d %s\nwant %d %s", method, body, got.status, got.body, want.status, want.body)
				}
			}
		}
	}
}

// sameRefusal compares two errors, of which the second names PutRequest where the first names
// another type. What protobuf says is not always spelt the same, nor are details in binary.
func sameRefusal(got, want, request string) bool {
	text, _, _ := strings.Cut(strings.ReplaceAll(got, request, "PutRequest"), "proto:")
	wantText, _, _ := strings.Cut(want, "proto:")
	_, details, _ := strings.Cut(got, `"debug":`)
	_, wantDetails, _ := strings.Cut(want, `"debug":`)
	return text == wantText && details == wantDetails && details != ""
}

// TestRequestIDOfHeader: a batch in binary takes its request id from the header, as all calls do.
func TestRequestIDOfHeader(t *testing.T) {
	s := serve(t)
	put := func(id, header string) (*belfryv1.PutBatchResponse, answered) {
		batch := &belfryv1.PutBatchRequest{Jobs: []*belfryv1.PutRequest{{Queue: "orders"}}, RequestId: id}
		got := s.postBinary("PutBatch", encode(t, batch), requestIDHeader, header)
		res := &belfryv1.PutBatchResponse{}
		if got.status == http.StatusOK && proto.Unmarshal([]byte(got.body), res) != nil {
			t.Fatalf("%x", got.body)
		}
		return res, got
	}
	first, _ := put("", "r")
	again, _ := put("r", "r")
	other, _ := put("", "s")
	ids := make([]string, 0, 3)
	for _, res := range []*belfryv1.PutBatchResponse{first, again, other} {
		for _, r := range res.GetResults() {
			ids = append(ids, r.GetPut().GetId())
		}
	}
	if len(ids) != 3 || ids[0] == "" || ids[0] != ids[1] || ids[0] == ids[2] {
		t.Errorf("the ids of a put, its repeat and another put: %q", ids)
	}
	if _, got := put("r", "s"); got.status != http.StatusBadRequest ||
		!strings.Contains(got.body, "requestId: it differs from the header") {
		t.Errorf("two request ids: %d %s", got.status, got.body)
	}
}

// panicking is a node that breaks.
type panicking struct{ *backendtest.Node }

func (panicking) Do(context.Context, uint32, *fsm.Request) (node.Reply, error) { panic("broken") }

func (panicking) Reserve(context.Context, uint32, *fsm.Request, node.Wait) (node.Reply, error) {
	panic("broken")
}

// TestBytesInEveryProtocol makes the same calls in binary and JSON, by Connect, gRPC and gRPC-Web,
// and compressed; and a panic is INTERNAL in all of them.
func TestBytesInEveryProtocol(t *testing.T) {
	s, broken := serve(t), serve(t, func(cfg *Config) { cfg.Node = panicking{backendtest.NewNode(3)} })
	for name, options := range map[string][]connect.ClientOption{
		"Connect": nil, "JSON": {connect.WithProtoJSON()}, "gRPC-Web": {connect.WithGRPCWeb()},
		"compressed": {connect.WithSendGzip()}, "gRPC-Web, compressed": {connect.WithGRPCWeb(), connect.WithSendGzip()},
	} {
		t.Run(name, func(t *testing.T) {
			c := belfryv1connect.NewQueueServiceClient(http.DefaultClient, s.url, options...)
			batch := &belfryv1.PutBatchRequest{Jobs: []*belfryv1.PutRequest{
				{Queue: "orders", Body: &belfryv1.PutRequest_Data{Data: []byte{0xff, 0}}, Priority: proto.Int64(-3)},
				{}, // refused: it names no queue
				{Queue: "other", Body: &belfryv1.PutRequest_Text{Text: "zwei €"}},
				{Queue: "orders", Ttr: durationpb.New(time.Minute)},
				{Queue: "orders", Headers: map[string]string{"a": "b"}}, // read by the generated code
				{Queue: "orders", RetryDelays: []*durationpb.Duration{durationpb.New(1), durationpb.New(2)}},
			}}
			put, err := c.PutBatch(t.Context(), batch)
			if err != nil || len(put.GetResults()) != len(batch.GetJobs()) || put.GetResults()[0].GetPut().GetId() == "" ||
				put.GetResults()[1].GetError() == nil {
				t.Fatal(put, err)
			}
			taken, err := c.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: []string{"orders"}, MaxJobs: 100})
			if err != nil || len(taken.GetJobs()) < 3 {
				t.Fatal(taken, err)
			}
			acks := &belfryv1.AckBatchRequest{Leases: []string{"x"}}
			for _, job := range taken.GetJobs() {
				acks.Leases = append(acks.Leases, job.GetLease())
			}
			acked, err := c.AckBatch(t.Context(), acks)
			good := func(r *belfryv1.AckBatchResult) bool { return r.GetAck().GetWitness().GetIndex() > 0 }
			if err != nil || len(acked.GetResults()) != len(acks.GetLeases()) ||
				slices.IndexFunc(acked.GetResults(), good) != 1 {
				t.Fatal(acked, err)
			}
			c = belfryv1connect.NewQueueServiceClient(http.DefaultClient, broken.url, options...)
			_, putErr := c.PutBatch(t.Context(), batch)
			_, ackErr := c.AckBatch(t.Context(), acks)
			_, reserveErr := c.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: []string{"orders"}})
			for _, err := range []error{putErr, ackErr, reserveErr} {
				if f, ok := fault.FromConnect(err); !ok || f.Reason != belfryv1.Reason_REASON_INTERNAL {
					t.Errorf("a panic is answered %v", err)
				}
			}
		})
	}
}
