package node

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/outcome"
)

// free is the free space of a disk in MiB, which a test sets.
type free struct{ atomic.Uint64 }

func (f *free) bytes(string) (uint64, error) { return f.Load() << 20, nil }

// set changes the free space, and waits until s takes note.
func (f *free) set(t *testing.T, n *Node, mib uint64) {
	t.Helper()
	f.Store(mib)
	if err := n.space.Check(); err != nil {
		t.Fatal(err)
	}
}

// openOnDisk opens a node on a disk whose free space the test sets. Nothing must be read from the
// real one.
func openOnDisk(t *testing.T, dir string) (*Node, *free) {
	t.Helper()
	f := &free{}
	f.Store(260) // no room for the reserve
	cfg := testConfig(t, dir)
	cfg.diskFree = f.bytes
	return openNode(t, cfg), f
}

func TestWhatAFullDiskRefuses(t *testing.T) {
	n, f := openOnDisk(t, t.TempDir())
	do(t, n, 0, put("orders", "x", 0), put("orders", "y", 0))
	g := reserve(t, n, 0, "orders", 0)[0]
	passes := []fsm.Command{
		&fsm.Cancel{Queue: "orders", ID: "none"}, &fsm.Purge{Queue: "none"}, &fsm.DeleteQueue{Queue: "none"}, &fsm.Expire{},
		&fsm.Lead{}, &fsm.Ack{Ref: refOf(g)},
	}
	adds := []fsm.Command{put("orders", "z", 0), &fsm.Open{Queue: "other", Partitions: 1}}
	others := []fsm.Command{
		&fsm.Reserve{Queues: []string{"none"}, Max: 1}, &fsm.Nack{Ref: refOf(g)}, &fsm.Release{Ref: refOf(g)},
		&fsm.Extend{Ref: refOf(g)},
		&fsm.Reschedule{Queue: "orders", ID: "none"}, &fsm.Redrive{Queue: "none"},
		&fsm.Configure{Queue: "none", Partitions: 1},
	}
	refused := uint64(0)
	check := func(free string, want error, commands ...fsm.Command) {
		t.Helper()
		for _, c := range commands {
			_, err := n.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{&fsm.Cancel{Queue: "orders", ID: "none"}, c}})
			if !errors.Is(err, want) {
				t.Errorf("%s: %T ended with %v, want %v", free, c, err, want)
			}
			if want != nil {
				refused++
			}
		}
	}
	f.set(t, n, 255)
	check("low", outcome.ErrDiskFull, adds...)
	check("low", nil, others...)
	f.set(t, n, 32)
	check("without the reserve", outcome.ErrDiskFull, adds...)
	check("without the reserve", nil, others...)
	f.set(t, n, 31)
	check("scarce", outcome.ErrDiskFull, adds...)
	check("scarce", outcome.ErrDiskFull, others...)
	check("scarce", nil, passes...)
	f.set(t, n, 15)
	check("exhausted", outcome.ErrDiskFull, slices.Concat(adds, others, passes)...)
	if st := n.Status(); !st.DiskFull || n.Stats().Shards[0].DiskFull != refused {
		t.Errorf("status says %+v, %d requests were counted, want %d", st, n.Stats().Shards[0].DiskFull, refused)
	}
	f.set(t, n, 1000)
	check("enough", nil, adds...)
}

func TestReservationsOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n, f := openOnDisk(t, dir)
		do(t, n, 0, put("orders", "x", time.Second))
		poll := startPoll(t, n, time.Hour, 1, "orders")
		before := lastIndex(n)
		f.set(t, n, 31)
		time.Sleep(10 * time.Second)
		if !poll.running() {
			t.Fatalf("the poll ended with %+v, %v", poll.reply, poll.err)
		}
		expectEntries(t, n, before, 1) // the Expire that makes the job ready
		for _, wait := range []time.Duration{0, time.Minute} {
			if late := startPoll(t, n, wait, 1, "orders"); late.running() || !errors.Is(late.err, outcome.ErrDiskFull) {
				t.Errorf("a poll of %v ended with %v", wait, late.err)
			}
		}
		f.set(t, n, 200)
		start := time.Now()
		if got := poll.grants(t); len(got) != 1 || poll.at.Sub(start) > admit.ScarcePause {
			t.Errorf("granted %+v after %v", got, poll.at.Sub(start))
		}
	})
}

func TestReserveIsGivenUpWhenAWriteFindsTheDiskFull(t *testing.T) {
	for _, tt := range []struct {
		err  error
		held bool
	}{{fmt.Errorf("writing: %w", syscall.ENOSPC), false}, {syscall.EIO, true}} {
		f := &free{}
		f.Store(10_000)
		cfg := testConfig(t, t.TempDir())
		cfg.diskFree = f.bytes
		var gaveUp error
		cfg.Fatal = func(err error) { gaveUp = err }
		n := openNode(t, cfg)
		n.diskFailed(tt.err)
		if st := n.space.Stats(); (st.ReserveBytes > 0) != tt.held || !errors.Is(gaveUp, tt.err) {
			t.Errorf("%v: %+v, the process ended with %v", tt.err, st, gaveUp)
		}
	}
}

func TestRoomIsKeptForTheNextSnapshot(t *testing.T) {
	cfg := testConfig(t, t.TempDir())
	n := openNode(t, cfg)
	do(t, n, 1, put("orders", "x", time.Hour))
	if err := n.Snapshot(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	size := n.Stats().Shards[1].Snapshot.Bytes
	check := func() {
		t.Helper()
		if got := n.space.Stats().LowWaterBytes; size == 0 || got != defaultDiskLowBytes+uint64(size) {
			t.Errorf("the mark is %d with a snapshot of %d bytes", got, size)
		}
	}
	check()
	closeNode(t, n)
	n = openNode(t, cfg)
	n.planSpace() // as the snapshots' goroutine does at its start
	check()
}
