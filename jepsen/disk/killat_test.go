//go:build fuse

package disk

import (
	"context"
	"fmt"
	"sync"
	"testing"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// fillers put large jobs and cancel them, so that the log grows over its segments and snapshots
	// follow each other, while the state stays small.
	fillers   = 4
	bodyBytes = 512 << 10
)

// TestKillAtEverySite: the power goes before and after every step that a server takes on its disk,
// and what is left is a data directory from which it starts and in which every acknowledged job is.
func TestKillAtEverySite(t *testing.T) {
	program := program(t)
	var mu sync.Mutex
	var lost Losses
	jobs := 0
	t.Cleanup(func() {
		t.Logf("%d sites, twice each: %d jobs acknowledged, %d bytes and %d names lost", len(Sites()), jobs,
			lost.Bytes, lost.Names)
		if !t.Failed() && (lost.Bytes == 0 || lost.Names == 0) {
			t.Error("nothing was lost that was not synced: nothing was tested")
		}
	})
	for i := range 2 * len(Sites()) {
		site, cut, fate, names := Sites()[i/2], "lost", LoseAll, LoseNames
		if i%2 == 1 { // what was not synced is torn
			cut = "torn"
			fate, names = Chance(uint64(i), 0.5)
		}
		t.Run(site.Name+"/"+cut, func(t *testing.T) {
			t.Parallel()
			s := newServers(t, program, 1, 100+i)[0]
			dead := make(chan struct{})
			s.disk.SetHook(s.disk.KillAt(site, 1, func() {
				s.kill()
				close(dead)
			}))
			var acked []string
			if err := <-s.launch(); err == nil {
				acked = s.fill(t, dead)
			}
			s.wait()
			select {
			case <-dead:
			default:
				t.Fatal("the server ended before it came to the site")
			}
			l, err := s.disk.Crash(fate, names)
			must(t, err)
			s.start()
			if missing := find(t, []*server{s}, acked); len(missing) > 0 {
				t.Errorf("%d of %d acknowledged jobs are lost, such as %s", len(missing), len(acked), missing[0])
			}
			mu.Lock()
			defer mu.Unlock()
			lost.Bytes += l.Bytes
			lost.Names += l.Names
			jobs += len(acked)
		})
	}
}

// fill puts jobs until the server is dead, and returns those that were acknowledged and stay.
func (s *server) fill(t *testing.T, dead <-chan struct{}) (acked []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	go func() {
		select {
		case <-dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	var mu sync.Mutex
	var filling sync.WaitGroup
	for p := range fillers {
		filling.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id, large := fmt.Sprintf("job-%d-%d", p, n), fmt.Sprintf("large-%d-%d", p, n)
				if _, err := s.queues.Put(ctx, &belfryv1.PutRequest{Queue: queue, Id: id}); err == nil {
					mu.Lock()
					acked = append(acked, id)
					mu.Unlock()
				}
				// What becomes of the large one is all the same.
				body := &belfryv1.PutRequest_Data{Data: make([]byte, bodyBytes)}
				_, _ = s.queues.Put(ctx, &belfryv1.PutRequest{Queue: queue, Id: large, Body: body})
				_, _ = s.queues.Cancel(ctx, &belfryv1.CancelRequest{Queue: queue, Id: large})
			}
		})
	}
	filling.Wait()
	select {
	case <-dead:
	default:
		s.kill() // it did not come to the site in time
	}
	return acked
}
