package rpc

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// fakeQuotas is a cluster with quotas.
type fakeQuotas struct {
	*fakeCluster
	all []backend.Namespace
}

func (f *fakeQuotas) Namespaces() []backend.Namespace { return f.all }

func (f *fakeQuotas) SetNamespace(_ context.Context, name string, set [node.Limits]bool,
	quota node.Amounts) (backend.Namespace, error) {
	f.asked = append(f.asked, fmt.Sprintf("set %s %v %v", name, set, quota))
	return backend.Namespace{Name: name, Quota: quota, Pending: []uint32{2}}, nil
}

func (f *fakeQuotas) RestoreNamespaces(_ context.Context, all []backend.Namespace) error {
	for _, n := range all {
		f.asked = append(f.asked, fmt.Sprintf("restore %s %v", n.Name, n.Quota))
	}
	return nil
}

func (f *fakeQuotas) RemoveNamespace(_ context.Context, name string) (bool, error) {
	f.asked = append(f.asked, "remove "+name)
	return slices.ContainsFunc(f.all, func(n backend.Namespace) bool { return n.Name == name }), nil
}

func TestNamespaces(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tt := range []struct{ method, body, did, want string }{
		{"set-namespace", `{"name":"a","maxJobs":10,"maxBytes":20,"maxInFlight":30,"putsPerSecond":40}`,
			"set a [true true true true] [10 20 30 40000]", `"pendingShards":[2]`},
		{"set-namespace", `{"name":"a","maxJobs":"0"}`, "set a [true false false false] [0 0 0 0]", `"maxJobs":"0"`},
		{"set-namespace", `{"name":"a"}`, "", "nothing is to be changed: name maxJobs, maxBytes, maxInFlight, putsPerSecond"},
		{"set-namespace", `{"maxJobs":1}`, "", "name: a namespace is required"},
		{"set-namespace", `{"name":"a/b","maxJobs":1}`, "", "name: want the part of a queue's name that is before the slash"},
		{"set-namespace", `{"name":"..","maxJobs":1}`, "", "name: want"},
		{"set-namespace", `{"name":"a b","maxJobs":1}`, "", "name: only letters"},
		{"set-namespace", `{"name":"` + long + `","maxJobs":1}`, "", "name: 300 bytes; the limit is 255"},
		{"set-namespace", `{"name":"a","putsPerSecond":1000000001}`, "",
			"putsPerSecond: have 1000000001, at most 1000000000"},
		{"set-namespace", `{"name":"a","maxBytes":"1152921504606846977"}`, "",
			"maxBytes: have 1152921504606846977, at most 1152921504606846976"},
		{"set-namespace", `{"name":"a","maxJobs":1,"requestId":"` + long + `"}`, "", "requestId"},
		{"list-namespaces", `{}`, "", `{"namespaces":[{"name":"held","maxJobs":"5"`},
		{"get-namespace", `{"name":"held"}`, "", `"maxJobs":"5"`},
		{"get-namespace", `{"name":"other"}`, "", `"maxJobs":"0"`},
		{"get-namespace", `{}`, "", "name: a namespace is required"},
		{"delete-namespace", `{"name":"held"}`, "remove held", `{"found":true}`},
		{"delete-namespace", `{"name":"other"}`, "remove other", `{"found":false}`},
		{"delete-namespace", `{"name":"/"}`, "", "name: want the part"},
	} {
		t.Run(tt.method+tt.body[:min(len(tt.body), 40)], func(t *testing.T) {
			f := &fakeQuotas{
				fakeCluster: &fakeCluster{}, all: []backend.Namespace{{Name: "held", Quota: node.Amounts{node.JobsLimit: 5}}},
			}
			s := serve(t, func(c *Config) { c.Cluster = f })
			got := s.post("/v1/"+tt.method, tt.body)
			if !strings.Contains(got.body, tt.want) {
				t.Errorf("answered %s, want %s", got.body, tt.want)
			}
			if did := strings.Join(f.asked, "; "); did != tt.did {
				t.Errorf("did %q, want %q", did, tt.did)
			}
		})
	}
}

// TestRequestIDsOfNamespaces makes the same calls with the same request ids for two namespaces, in
// one shard: what one did is neither the answer to the other nor in its way, and each may repeat
// its own.
func TestRequestIDsOfNamespaces(t *testing.T) {
	s := benchServer(t, backendtest.NewNode(1)).handler.queues
	leases := map[string]string{}
	for _, queue := range []string{"a/q", "b/q"} {
		for range 2 {
			put, err := s.Put(t.Context(), &belfryv1.PutRequest{Queue: queue, RequestId: "put"})
			if err != nil {
				t.Fatalf("a put into %s: %v", queue, err)
			}
			got, err := s.Reserve(t.Context(), &belfryv1.ReserveRequest{
				Queues: []string{queue}, MaxJobs: 1, RequestId: "reserve",
			})
			if err != nil || len(got.GetJobs()) != 1 || got.GetJobs()[0].GetId() != put.GetId() ||
				got.GetJobs()[0].GetQueue() != queue {
				t.Fatalf("a reserve from %s has %v, %v; want %s", queue, got, err, put.GetId())
			}
			leases[queue] = got.GetJobs()[0].GetLease()
		}
	}
	for _, queue := range []string{"a/q", "b/q"} {
		if _, err := s.Nack(t.Context(), &belfryv1.NackRequest{Lease: leases[queue], RequestId: "nack"}); err != nil {
			t.Errorf("a nack of %s: %v", queue, err)
		}
	}
}

func TestQuotaFault(t *testing.T) {
	err := fmt.Errorf("shard-1: %w", &node.QuotaError{
		Namespace: "a", Limit: node.JobsLimit, Max: 10, Used: 4, ShardMax: 4, Wait: 3,
	})
	f := fault.Of(err)
	if f.RetryAfter != 3 || fault.ReasonName(f.Reason) != "QUOTA" ||
		f.Message != `namespace "a" has a quota of 10 jobs, divided between the shards: this shard may use 4 and uses 4` {
		t.Errorf("%+v", f)
	}
	f = fault.Of(&node.QuotaError{Namespace: "a", Limit: node.JobsLimit, Max: 10, Growing: true})
	if !strings.HasSuffix(f.Message, "may use 0 and uses 0; a repeat may succeed, when other shards have given up quota "+
		"that they do not use") {
		t.Errorf("%+v", f)
	}
	f = fault.Of(&node.QuotaError{Namespace: "a", Limit: node.PutRate, Max: 2500, ShardMax: 500})
	if fault.ReasonName(f.Reason) != "RATE_LIMITED" ||
		!strings.HasSuffix(f.Message, "of 2.5 puts per second, divided between the shards: this shard may take "+
			"0.5 and does so") {
		t.Errorf("%+v", f)
	}
}
