package rpc

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
)

// TestListQueuesOfUnevenShards: pages of every size have all queues once, in order and with the jobs of all
// shards, also if one shard holds most of the queues.
func TestListQueuesOfUnevenShards(t *testing.T) {
	const shards = 7
	s := serve(t, func(cfg *Config) { cfg.Node = backendtest.NewNode(shards) })
	call := func(path, body string) string {
		t.Helper()
		got := s.post("/v1/"+path, body)
		if got.status != http.StatusOK {
			t.Fatalf("%s %s: %d %s", path, body, got.status, got.body)
		}
		return got.body
	}
	want := map[string]uint32{}
	for i := range 40 {
		name := fmt.Sprintf("spread-%02d", i)
		call("create-queue", fmt.Sprintf(`{"queue":%q,"partitions":%d}`, name, 1+i%shards))
		want[name] = 0
	}
	for i := 0; len(want) < 300; i++ {
		if name := fmt.Sprintf("one-%04d", i); node.ShardOf(name, 0, shards) == 3 {
			want[name] = 0
		}
	}
	for name := range want {
		for range 2 + len(want)%3 {
			call("put", fmt.Sprintf(`{"queue":%q,"delay":"1h"}`, name))
			want[name]++
		}
	}
	for _, size := range []int{1, 2, 39, 100, 299, 300, 301, 1000} {
		got := map[string]uint32{}
		var names []string
		for token := ""; ; {
			var page struct {
				Queues []struct {
					Name   string
					Counts struct{ Delayed uint32 }
				}
				NextPageToken string
			}
			body := call("list-queues", fmt.Sprintf(`{"pageSize":%d,"pageToken":%q}`, size, token))
			if err := json.Unmarshal([]byte(body), &page); err != nil {
				t.Fatal(err)
			}
			if len(page.Queues) > size || len(page.Queues) < size && page.NextPageToken != "" {
				t.Fatalf("a page of %d has %d queues, and then %q", size, len(page.Queues), page.NextPageToken)
			}
			for _, q := range page.Queues {
				names, got[q.Name] = append(names, q.Name), q.Counts.Delayed
			}
			if token = page.NextPageToken; token == "" {
				break
			}
		}
		if len(names) != len(want) || !slices.IsSorted(names) {
			t.Errorf("pages of %d have %d queues, want %d in order", size, len(names), len(want))
		}
		for name, jobs := range want {
			if got[name] != jobs {
				t.Errorf("pages of %d: %s has %d jobs, want %d", size, name, got[name], jobs)
			}
		}
	}
}
