package mirror_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redisson"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// before sends requests on after a function has looked at them.
type before func(*http.Request)

func (b before) Do(req *http.Request) (*http.Response, error) {
	b(req)
	return http.DefaultClient.Do(req)
}

// TestExportJobThatComesBack: a job that a consumer held while an export listed the others, and
// gave back before the export asked how many are held, goes along.
func TestExportJobThatComesBack(t *testing.T) {
	r, server := redistest.Start(t).Client(), belfrytest.Start(t)
	c := server.Client(t)
	if _, err := c.Put(t.Context(), "orders", []byte("x"), client.TTR(time.Hour)); err != nil {
		t.Fatal(err)
	}
	jobs, err := c.Reserve(t.Context(), client.ReserveOptions{Queues: []string{"orders"}, Wait: 20 * time.Second})
	if err != nil || len(jobs) != 1 {
		t.Fatalf("reserving: %d jobs, %v", len(jobs), err)
	}
	var lists atomic.Int64 // one for each state
	watched, err := client.New(server.URL, client.WithHTTPClient(before(func(req *http.Request) {
		switch {
		case strings.HasSuffix(req.URL.Path, "/List"):
			lists.Add(1)
		case strings.HasSuffix(req.URL.Path, "/GetQueue") && lists.Load() == 2:
			if _, _, err := c.Release(t.Context(), jobs[0].Lease, time.Hour); err != nil {
				t.Error(err)
			}
		}
	})))
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Close()
	counts, err := mirror.Export(t.Context(), r, watched, mirror.ExportOptions{RedisQueue: "orders",
		Format: redisson.New, Codec: redisson.Bytes})
	if err != nil || counts.Returned != 1 {
		t.Errorf("the export counted %+v, error %v", counts, err)
	}
	if left := entries(t, r, "orders"); len(left) != 1 {
		t.Errorf("Redis has %d entries", len(left))
	}
}
