package client

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/client/internal/placement"
	"github.com/belfrydb/belfry/client/internal/routes"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestBatchesGoToOneLeader: single calls about queues of several leaders share batches by leader, so
// that no server has to forward a part of one.
func TestBatchesGoToOneLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaders := []string{"a:1", "b:2"}
		h, c := newHosts(t, func(_ string, m *belfryv1.GetRoutingResponse) { m.Leaders = leaders })
		h.all["a:1"].leaseOf = leaseOf
		var queues []string
		for i := range 8 {
			queues = append(queues, fmt.Sprint("q", i))
		}
		h.each(t, c, queues) // the client asks who leads
		pause := time.NewTimer(routes.Gap + time.Second)
		<-pause.C
		h.each(t, c, queues)
		synctest.Wait()
		h.mu.Lock()
		for _, m := range h.all {
			m.batches = nil
		}
		h.mu.Unlock()
		h.each(t, c, queues)
		for address, m := range h.all {
			if len(m.batches) < 2 {
				t.Errorf("%s had %d batches, want some of puts and some of acks", address, len(m.batches))
			}
			for _, queue := range slices.Concat(m.batches...) {
				if led := leaders[placement.ShardOf(queue, 0, len(leaders))]; led != address {
					t.Errorf("a batch to %s has a call about queue %s, which %s leads", address, queue, led)
				}
			}
		}
	})
}

// each puts a job into each queue, and acks it, all at once.
func (h *hosts) each(t *testing.T, c *Client, queues []string) {
	t.Helper()
	var all sync.WaitGroup
	for _, queue := range queues {
		all.Go(func() {
			if _, err := c.Put(t.Context(), queue, []byte("x")); err != nil {
				t.Error(err)
				return
			}
			jobs, err := c.Reserve(t.Context(), ReserveOptions{Queues: []string{queue}})
			if err != nil || len(jobs) != 1 {
				t.Errorf("%d jobs, %v", len(jobs), err)
				return
			}
			if err := jobs[0].Ack(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// PutBatch notes the queues of a batch.
func (m *mapped) PutBatch(ctx context.Context, req *belfryv1.PutBatchRequest) (*belfryv1.PutBatchResponse, error) {
	var queues []string
	for _, put := range req.GetJobs() {
		queues = append(queues, put.GetQueue())
	}
	m.note(queues)
	return m.Fake.PutBatch(ctx, req)
}

// AckBatch notes the queues of a batch.
func (m *mapped) AckBatch(ctx context.Context, req *belfryv1.AckBatchRequest) (*belfryv1.AckBatchResponse, error) {
	var queues []string
	for _, lease := range req.GetLeases() {
		queues = append(queues, placement.OfLease(lease).Queue)
	}
	m.note(queues)
	return m.Fake.AckBatch(ctx, req)
}

// note records a batch.
func (m *mapped) note(queues []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.batches = append(m.batches, queues)
}

// leaseOf returns a lease as servers write it, apart from the checksum.
func leaseOf(queue string, serial, fence uint64) string {
	b := binary.AppendUvarint([]byte{1}, uint64(len(queue)))
	b = append(b, queue...)
	b = append(b, 0) // the partition
	return base64.RawURLEncoding.EncodeToString(binary.AppendUvarint(binary.AppendUvarint(b, serial), fence))
}

// TestCallsByLeaderAreBounded: a client that hears of ever more servers keeps no batches for each.
func TestCallsByLeaderAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newHosts(t, func(string, *belfryv1.GetRoutingResponse) {})
		for range 2 * leadersMax {
			leader := &endpoint{}
			if puts := c.puts.to(leader); c.puts.to(leader) != puts || puts == c.puts.to(nil) {
				t.Error("the puts to a leader do not gather with earlier ones, or gather with others")
			}
			if n := len(c.puts.byLeader); n > leadersMax+1 {
				t.Errorf("puts gather apart for %d leaders", n)
			}
		}
	})
}
