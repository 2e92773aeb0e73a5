//go:build fuse

package disk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// putters put at a time, one job after the other.
	putters = 32
	// cutAt is the sync of a log segment on one of the nodes before which the power goes: what was
	// just written is not durable there.
	cutAt = 150
	queue = "cut"
)

// TestPowerCutOfAll: all three disks of a cluster lose what was not synced, at one moment under
// load, and every job that was acknowledged is there afterwards. With disks that lie about syncs
// the same test must miss jobs; otherwise it would prove nothing.
func TestPowerCutOfAll(t *testing.T) {
	program := program(t)
	for i, tc := range []struct {
		name string
		disk Hook
		lies bool
	}{
		{"honest disks", Chain(), false},
		{"disks that lie about syncs", LieSyncs(), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			servers := newServers(t, program, 3, 3*i)
			startAll(t, servers)
			awaitHealthy(t, servers)
			acked, lost := putUntilCut(t, servers, tc.disk)
			if len(acked) == 0 || lost.Bytes == 0 {
				t.Fatalf("%d jobs were acknowledged and %+v was lost: nothing was tested", len(acked), lost)
			}
			startAll(t, servers)
			awaitHealthy(t, servers)
			missing := find(t, servers, acked)
			t.Logf("%d jobs acknowledged, %d bytes and %d names lost, %d jobs missing", len(acked), lost.Bytes, lost.Names,
				len(missing))
			if !tc.lies && len(missing) > 0 {
				t.Errorf("%d of %d acknowledged jobs are lost, such as %s", len(missing), len(acked), missing[0])
			}
			if tc.lies && len(missing) == 0 {
				t.Error("syncs were lies, and no job is missing: the disk keeps what was not synced")
			}
		})
	}
}

// putUntilCut puts jobs through all servers until the power goes, and returns those that were
// acknowledged and what the disks lost.
func putUntilCut(t *testing.T, servers []*server, honest Hook) (acked []string, lost Losses) {
	t.Helper()
	at := slices.IndexFunc(Sites(), func(s Site) bool { return s.Name == "before-sync-segment" })
	var killed sync.Once
	for _, s := range servers {
		kill := s.disk.KillAt(Sites()[at], cutAt, func() {
			killed.Do(func() {
				for _, s := range servers {
					s.disk.Stop()
				}
				for _, s := range servers {
					s.kill()
				}
			})
		})
		s.disk.SetHook(Chain(kill, honest))
	}
	var mu sync.Mutex
	var putting sync.WaitGroup
	for p := range putters {
		putting.Go(func() {
			for n := 0; ; n++ {
				id := fmt.Sprintf("job-%d-%d", p, n)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				_, err := servers[p%len(servers)].queues.Put(ctx, &belfryv1.PutRequest{Queue: queue, Id: id})
				cancel()
				if err != nil {
					return // the power is gone
				}
				mu.Lock()
				acked = append(acked, id)
				mu.Unlock()
			}
		})
	}
	putting.Wait()
	for _, s := range servers {
		s.wait()
		l, err := s.disk.Crash(LoseAll, LoseNames)
		must(t, err)
		lost.Bytes += l.Bytes
		lost.Names += l.Names
	}
	return acked, lost
}

// find asks for each job and returns those that are not there.
func find(t *testing.T, servers []*server, ids []string) (missing []string) {
	t.Helper()
	var mu sync.Mutex
	var finding sync.WaitGroup
	for part := range slices.Chunk(ids, len(ids)/putters+1) {
		finding.Go(func() {
			for i, id := range part {
				if !isThere(t, servers[i%len(servers)], id) {
					mu.Lock()
					missing = append(missing, id)
					mu.Unlock()
				}
			}
		})
	}
	finding.Wait()
	return missing
}

// isThere asks for a job until there is a definite answer.
func isThere(t *testing.T, s *server, id string) (there bool) {
	t.Helper()
	err := await(t, "an answer about a job", func(ctx context.Context) error {
		_, err := s.queues.Get(ctx, &belfryv1.GetRequest{Queue: queue, Id: id})
		if there = err == nil; there {
			return nil
		}
		if refused := (*connect.Error)(nil); errors.As(err, &refused) && refused.Code() == connect.CodeNotFound {
			return nil
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return there
}
