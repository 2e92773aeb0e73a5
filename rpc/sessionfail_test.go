package rpc

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/stream"
)

// errorOfStatus makes of a failure what a client by Connect gets.
func errorOfStatus(t testing.TB, said *status.Status) error {
	t.Helper()
	err := connect.NewWireError(connect.Code(said.GetCode()), errors.New(said.GetMessage()))
	for _, detail := range said.GetDetails() {
		message, bad := detail.UnmarshalNew()
		if bad != nil {
			t.Fatal(bad)
		}
		d, bad := connect.NewErrorDetail(message)
		if bad != nil {
			t.Fatal(bad)
		}
		err.AddDetail(d)
	}
	return err
}

// A failing is a call that fails.
type failing struct {
	method  stream.Method
	path    string
	payload []byte
	fail    func(shard uint32) error
}

func bytesOf(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestFailuresAreThoseOfConnect: code, words and details are the same, whoever made them.
func TestFailuresAreThoseOfConnect(t *testing.T) {
	flood := &belfryv1.PutBatchRequest{}
	for range 1001 {
		flood.Jobs = append(flood.Jobs, &belfryv1.PutRequest{Queue: "q"})
	}
	reserve, batch, acks := "/belfry.v1.QueueService/Reserve", "/belfry.v1.QueueService/PutBatch",
		"/belfry.v1.QueueService/AckBatch"
	for name, c := range map[string]failing{
		"no queue":  {stream.Reserve, reserve, bytesOf(t, &belfryv1.ReserveRequest{}), nil},
		"malformed": {stream.PutBatch, batch, []byte("\xff\xff\xff"), nil},
		"not UTF-8": {stream.PutBatch, batch, append([]byte{0x12, 2, 'x', 0xff}, bytesOf(t, putIn("q"))...), nil},
		"flood":     {stream.PutBatch, batch, bytesOf(t, flood), nil},
		"bounds":    {stream.PutBatch, batch, bytes.Repeat([]byte{0x0a, 0}, 10_000), nil},
		"acks":      {stream.AckBatch, acks, bytesOf(t, &belfryv1.AckBatchRequest{}), nil},
		"no leader": {stream.Reserve, reserve, bytesOf(t, pollOf("q", 0)), func(uint32) error { return nodeNoLeader() }},
		"unknown":   {stream.Reserve, reserve, bytesOf(t, pollOf("q", 0)), func(uint32) error { return nodeUnknown() }},
		"inside": {stream.Reserve, reserve, bytesOf(t, pollOf("q", 0)), func(uint32) error {
			return errors.New("secret insides")
		}},
		"panic":        {stream.Reserve, reserve, bytesOf(t, pollOf("q", 0)), func(uint32) error { panic("secret insides") }},
		"8 MiB and so": {stream.PutBatch, batch, make([]byte, 8<<20+1), nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newTalk(t)
				k.node.Fail = c.fail
				for id := range uint32(2) { // the session goes on
					k.write(rawFrame(stream.Header{
						Kind: stream.Call, Method: c.method, ID: id, Size: uint32(len(c.payload)),
					}, c.payload))
					got, want := k.failure(id), k.byConnect(c)
					if name == "8 MiB and so" {
						want.Message = got.GetMessage() // which knows the size
					}
					if diff := cmp.Diff(detailed(t, want), detailed(t, got), protocmp.Transform()); diff != "" {
						t.Errorf("(-Connect +session):\n%s", diff)
					}
					if strings.Contains(got.String(), "secret") || len(got.GetDetails()) == 0 {
						t.Errorf("%v", got)
					}
				}
				if name == "panic" && !strings.Contains(k.log.String(), "secret insides") {
					t.Error("the log does not say what happened")
				}
				synctest.Wait()
				if held := k.server.handler.bodyBytesInFlight.Load(); held != 0 {
					t.Errorf("%d bytes are still counted", held)
				}
			})
		})
	}
}

// detailed gives a failure and its details in one list.
func detailed(t testing.TB, said *status.Status) []proto.Message {
	t.Helper()
	all := []proto.Message{&status.Status{Code: said.GetCode(), Message: said.GetMessage()}}
	for _, detail := range said.GetDetails() {
		m, err := detail.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// byConnect makes the call by Connect and gives its error in the form of a failure.
func (k *talk) byConnect(c failing) *status.Status {
	k.t.Helper()
	req, err := http.NewRequestWithContext(k.t.Context(), http.MethodPost, c.path, bytes.NewReader(c.payload))
	if err != nil {
		k.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/proto")
	res := &memoryResponse{header: http.Header{}}
	k.server.Handler().ServeHTTP(res, req)
	var wire struct {
		Code, Message string
		Details       []struct{ Type, Value string }
	}
	if err := json.Unmarshal(res.body.Bytes(), &wire); err != nil {
		k.t.Fatalf("%q: %v", res.body.String(), err)
	}
	var code connect.Code
	if err := code.UnmarshalText([]byte(wire.Code)); err != nil {
		k.t.Fatal(err)
	}
	failed := connect.NewError(code, errors.New(wire.Message))
	said := statusOfError(failed)
	for _, d := range wire.Details {
		value, err := base64.RawStdEncoding.DecodeString(d.Value)
		if err != nil {
			k.t.Fatal(err)
		}
		said.Details = append(said.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + d.Type, Value: value})
	}
	return said
}
