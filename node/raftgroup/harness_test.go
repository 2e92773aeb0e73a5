package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/belfrydb/belfry/node/histogram"
	"github.com/belfrydb/belfry/node/peer"
	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// counter is a machine that counts its entries and can be made to fail.
type counter struct {
	count     uint64
	writeErr  error
	released  *int
	refuse    string
	badDigest bool
	applying  func() // runs before each entry, if it is not nil
}

func (c *counter) Apply(_ uint64, entry []byte) (any, error) {
	if string(entry) == c.refuse {
		return nil, fmt.Errorf("what is %q?", entry)
	}
	if c.applying != nil {
		c.applying()
	}
	c.count++
	return c.count, nil
}

func (c *counter) Snapshot() MachineSnapshot {
	s := *c
	return &s
}

func (c *counter) WriteTo(w io.Writer) (int64, error) {
	if c.writeErr != nil {
		return 0, c.writeErr
	}
	n, err := fmt.Fprint(w, c.count)
	return int64(n), err
}

func (c *counter) Release() {
	if c.released != nil {
		*c.released++
	}
}

func (c *counter) Restore(r io.Reader) (Machine, error) {
	restored := *c
	if _, err := fmt.Fscan(r, &restored.count); err != nil {
		return nil, err
	}
	if c.badDigest {
		restored.count++
	}
	return &restored, nil
}

func (c *counter) Digest() uint64 { return c.count }

const self = "n1.1"

// testConfig returns the configuration of a group with one voter, as a node would give it. Files
// are removed when they are no longer needed, as by a node.
func testConfig(t testing.TB, dir string, m Machine) Config {
	t.Helper()
	logger := testLogger(t)
	mux := peer.New(peer.Config{
		ClusterID: "c1", Self: self, Shards: 1, Room: func() uint64 { return 1 << 40 }, Full: func() bool { return false },
		Resolve: func(string) ([]string, error) { return nil, errors.New("no address is known") },
		Logger:  logger, RaftLogger: NewLogger(logger),
	})
	t.Cleanup(mux.Close)
	return Config{
		Name: "counter", Dir: dir, ClusterID: "c1", Self: self, Engine: storage.EngineWAL, FS: disk.OSFS{},
		Watchdog:   disk.NewWatchdog(0, func(op string, _ time.Duration) { t.Errorf("the disk hangs in %q", op) }),
		DiskFailed: func(err error) { t.Errorf("the disk failed: %v", err) }, SnapshotBytes: 64 << 20,
		TrailingBytes: 64 << 20, Throttle: NewThrottle(func() bool { return false }), Grown: func() {},
		SnapshotEnded: func(error) {}, Logger: logger, Transport: func() *peer.Transport { return mux.Transport("counter") },
		FirstVoters: []string{self}, Known: func() bool { return false }, SetAside: func() bool { return false },
		Fatal: func(err error) { t.Errorf("the group gave up: %v", err) }, Machine: m,
		ApplySeconds: histogram.Seconds(), Lead: func(ctx context.Context, _ *Leadership) { <-ctx.Done() },
	}
}

// testLogger returns a logger that writes to the test's output when the test is verbose.
func testLogger(t testing.TB) *slog.Logger {
	t.Helper()
	if !testing.Verbose() || os.Getenv("BELFRY_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// openCounter starts a group with a counter, and waits until it serves.
func openCounter(t testing.TB, c *counter) *Group {
	t.Helper()
	return openGroup(t, testConfig(t, t.TempDir(), c))
}

// openGroup starts a group that is stopped with the test, and waits until it serves. cfg.Lead runs
// once it does.
func openGroup(t testing.TB, cfg Config) *Group {
	t.Helper()
	var g *Group
	led, duties := make(chan struct{}, 100), cfg.Lead
	cfg.Lead = func(ctx context.Context, l *Leadership) {
		if g.Serve(l) {
			led <- struct{}{}
			duties(ctx, l)
		}
	}
	g = New(cfg)
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeGroup(t, g) })
	<-led
	return g
}

// closeGroup stops a group; it may be stopped already.
func closeGroup(t testing.TB, g *Group) {
	t.Helper()
	if err := g.Stop(); err != nil {
		t.Errorf("stopping the group: %v", err)
	}
}

// propose logs an entry and fails the test unless it is applied.
func propose(t testing.TB, g *Group, entry string) Reply {
	t.Helper()
	reply, err := g.Propose(t.Context(), []byte(entry), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}
