package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// splitNode is a node whose shard 1 is led elsewhere. It has a replica of it all the same, and
// knows the address.
type splitNode struct{ *backendtest.Node }

func (n splitNode) ClientAddr(shard uint32) string {
	return map[uint32]string{1: "10.0.0.1:7400"}[shard]
}

func (n splitNode) Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error) {
	if shard == 1 {
		return node.Reply{}, fmt.Errorf("shard 1: %w", node.ErrNotLeader)
	}
	return n.Node.Do(ctx, shard, req)
}

func (n splitNode) Query(ctx context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
	if shard == 1 {
		return fsm.Reading{}, node.Witness{}, nodeNoLeader()
	}
	return n.Node.Query(ctx, shard, q)
}

// serveSplit serves such a node, and returns the names of queues in shards 0 and 1.
func serveSplit(t *testing.T) (s *served, here, there string) {
	t.Helper()
	n := backendtest.NewNode(3)
	s = serve(t, func(c *Config) { c.Node = splitNode{n} })
	s.node = n
	return s, s.queueIn(0, "here"), s.queueIn(1, "there")
}

func TestGetRouting(t *testing.T) {
	s, here, there := serveSplit(t)
	if _, err := s.catalog.CreateQueue(t.Context(), here, 3, fsm.Settings{}); err != nil {
		t.Fatal(err)
	}
	q, _ := s.bothClients()
	got, err := q.GetRouting(t.Context(), &belfryv1.GetRoutingRequest{Queues: []string{here, there}})
	want := &belfryv1.GetRoutingResponse{
		HashVersion: 1, Shards: 3, Leaders: []string{"", "10.0.0.1:7400", ""}, Partitions: map[string]uint32{here: 3},
		ClusterId: "c1",
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, body := range []string{`{"queues":["a b"]}`,
		`{"queues":["` + strings.Repeat(`a","`, 64) + `a"]}`} {
		if got := s.post("/v1/get-routing", body); got.status != http.StatusBadRequest ||
			!strings.Contains(got.body, "queues") {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
}

// TestFaultNamesTheLeader: a client that asked the wrong node is told the right one.
func TestFaultNamesTheLeader(t *testing.T) {
	s, _, there := serveSplit(t)
	q, _ := s.bothClients()
	_, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: there})
	f, ok := fault.FromConnect(err)
	if !ok || f.Reason != belfryv1.Reason_REASON_NOT_LEADER || f.Leader != "10.0.0.1:7400" {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestStaleReads are answered without a leader, and labelled; others are not answered.
func TestStaleReads(t *testing.T) {
	s, _, there := serveSplit(t)
	for range 3 {
		if _, err := s.node.Do(t.Context(), 1, &fsm.Request{Commands: []fsm.Command{&fsm.Put{
			Queue: there, Partitions: 1, ID: "x",
		}}}); err != nil {
			t.Fatal(err)
		}
	}
	for path, body := range map[string]string{
		"/v1/get": `"id":"x"`, "/v1/list": `"state":"READY"`, "/v1/get-queue": "", "/v1/list-queues": "",
	} {
		fields := `{"queue":"` + there + `"`
		if path == "/v1/list-queues" {
			fields = `{"prefix":"there"`
		}
		if body != "" {
			fields += "," + body
		}
		if got := s.post(path, fields+`}`); got.status != http.StatusServiceUnavailable ||
			!strings.Contains(got.body, "NO_LEADER") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
		got := s.post(path, fields+`,"stale":true}`)
		if got.status != 200 || !strings.Contains(got.body, there) || !strings.Contains(got.body, `"stale":true`) ||
			!strings.Contains(got.body, `"asOf":"`) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	q, _ := s.bothClients()
	got, err := q.Get(t.Context(), &belfryv1.GetRequest{Queue: there, Id: "x", Stale: true})
	if err != nil || got.GetWitness().GetIndex() != 3 ||
		!got.GetAsOf().AsTime().Equal(got.GetWitness().GetTime().AsTime()) && got.GetAsOf() == nil {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := q.Get(t.Context(), &belfryv1.GetRequest{
		Queue: there, Id: "y", Stale: true,
	}); err == nil || errors.Is(err, node.ErrNoLeader) {
		t.Errorf("a job that is not there: %v", err)
	}
}
