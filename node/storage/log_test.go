package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage"
)

func TestLogKeepsEntriesAcrossReopen(t *testing.T) {
	for _, st := range stacks() {
		t.Run(st.name, func(t *testing.T) {
			fsys, dir := st.fs(), st.dir(t)
			s, err := storage.Open(dir, testConfig(fsys, st.engine))
			if err != nil {
				t.Fatal(err)
			}
			appendEntries(t, s, 1, 400, 3) // several segments
			if err := checkEntries(s, 1, 400); err != nil {
				t.Fatal(err)
			}
			closeStores(t, s)
			s, err = storage.Open(dir, testConfig(fsys, st.engine))
			if err != nil {
				t.Fatal(err)
			}
			defer closeStores(t, s)
			if err := checkEntries(s, 1, 400); err != nil {
				t.Fatal(err)
			}
			appendEntries(t, s, 401, 410, 3)
			if err := checkEntries(s, 1, 410); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestLogKeepsEveryField(t *testing.T) {
	for _, st := range stacks() {
		t.Run(st.name, func(t *testing.T) {
			s, err := storage.Open(st.dir(t), testConfig(st.fs(), st.engine))
			if err != nil {
				t.Fatal(err)
			}
			defer closeStores(t, s)
			want := []*raft.Log{
				{
					Index: 1, Term: 2, Type: raft.LogConfiguration, Data: []byte("c"), Extensions: []byte("ext"),
					AppendedAt: time.Unix(5, 7),
				},
				{Index: 2, Term: 2, Type: raft.LogNoop},
				{Index: 3, Term: 9, Type: raft.LogBarrier, Data: make([]byte, 4<<20)},
			}
			if err := s.Log.StoreLogs(want); err != nil {
				t.Fatal(err)
			}
			for _, w := range want {
				got := &raft.Log{Data: []byte("left over"), Extensions: []byte("left over")}
				if err := s.Log.GetLog(w.Index, got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(w, got, cmp.Comparer(sameBytes)); diff != "" {
					t.Errorf("entry %d (-want +got):\n%s", w.Index, diff)
				}
			}
		})
	}
}

// sameBytes is quick on large bodies, and tells nil from empty.
func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func TestLogIsMonotonic(t *testing.T) {
	for _, st := range stacks() {
		t.Run(st.name, func(t *testing.T) {
			s, err := storage.Open(st.dir(t), testConfig(st.fs(), st.engine))
			if err != nil {
				t.Fatal(err)
			}
			defer closeStores(t, s)
			if m := raft.LogStore(s.Log).(raft.MonotonicLogStore); !m.IsMonotonic() {
				t.Fatal("IsMonotonic is false")
			}
			appendEntries(t, s, 1, 20, 1)
			for _, bad := range [][]*raft.Log{
				{entry(22, 1)},               // gap
				{entry(20, 1)},               // overwrite
				{entry(0, 1)},                // no index
				{entry(21, 1), entry(23, 1)}, // gap inside a batch
				{entry(21, 1), entry(22, 1), entry(22, 1)}, // repeat inside a batch
			} {
				if err := s.Log.StoreLogs(bad); !errors.Is(err, storage.ErrGap) {
					t.Errorf("storing %d: %v, want ErrGap", bad[0].Index, err)
				}
			}
			if err := checkEntries(s, 1, 20); err != nil {
				t.Fatal("after refused appends:", err)
			}
			if err := s.Log.DeleteRange(5, 10); err == nil {
				t.Error("a hole was cut into the log")
			}
			// What Raft does after an install: all is deleted, the next append starts anywhere.
			if err := s.Log.DeleteRange(1, 20); err != nil {
				t.Fatal(err)
			}
			appendEntries(t, s, 301, 310, 2)
			if err := checkEntries(s, 301, 310); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestLogDeleteRange(t *testing.T) {
	for _, st := range stacks() {
		for _, tc := range []struct {
			first, last         uint64
			wantFirst, wantLast uint64
		}{
			{1, 0, 1, 300}, {1, 1, 2, 300}, {1, 150, 151, 300}, {0, 150, 151, 300}, {200, 300, 1, 199},
			{200, 999, 1, 199}, {300, 300, 1, 299}, {1, 300, 0, 0}, {0, 999, 0, 0}, {301, 400, 1, 300},
		} {
			t.Run(fmt.Sprintf("%s/%d-%d", st.name, tc.first, tc.last), func(t *testing.T) {
				fsys, dir := st.fs(), st.dir(t)
				s, err := storage.Open(dir, testConfig(fsys, st.engine))
				if err != nil {
					t.Fatal(err)
				}
				setTerm(t, s, 1)
				for i := uint64(1); i <= 300; i += 100 {
					must(t, s.Log.StoreLogs(entries(i, i+99, 1)))
				}
				mustSnapshot(t, s, 300, 1, []byte("so that a prefix may go"))
				if err := s.Log.DeleteRange(tc.first, tc.last); err != nil {
					t.Fatal(err)
				}
				if err := checkEntries(s, tc.wantFirst, tc.wantLast); err != nil {
					t.Fatal(err)
				}
				closeStores(t, s)
				// A suffix is only ever cut above the snapshot, so that case is cleared at open.
				if tc.wantLast < 300 {
					tc.wantFirst, tc.wantLast = 0, 0
				}
				if s, err = storage.Open(dir, testConfig(fsys, st.engine)); err != nil {
					t.Fatal(err)
				}
				defer closeStores(t, s)
				if err := checkEntries(s, tc.wantFirst, tc.wantLast); err != nil {
					t.Fatal("after reopen:", err)
				}
				appendEntries(t, s, 301, 303, 1)
			})
		}
	}
}

func TestLogReadsOutsideItsRange(t *testing.T) {
	for _, st := range stacks() {
		t.Run(st.name, func(t *testing.T) {
			s, err := storage.Open(st.dir(t), testConfig(st.fs(), st.engine))
			if err != nil {
				t.Fatal(err)
			}
			defer closeStores(t, s)
			appendEntries(t, s, 7, 9, 1)
			for _, index := range []uint64{0, 6, 10} {
				// Raft compares with ==.
				if err := s.Log.GetLog(index, &raft.Log{}); err != raft.ErrLogNotFound { //nolint:errorlint // see above
					t.Errorf("entry %d: %v, want ErrLogNotFound itself", index, err)
				}
			}
		})
	}
}

func TestLogStats(t *testing.T) {
	s := openOn(t, newDisk())
	defer closeStores(t, s)
	if err := s.Log.StoreLogs([]*raft.Log{
		{Index: 1, Data: make([]byte, 100)},
		{Index: 2, Extensions: make([]byte, 11)},
	}); err != nil {
		t.Fatal(err)
	}
	got := s.Stats().Log
	if got.Append.Count != 1 || got.Append.Sum < got.Append.Max || got.Append.Max <= 0 {
		t.Errorf("latency %+v", got.Append)
	}
	var counted uint64
	for _, n := range got.Append.Buckets {
		counted += n
	}
	got.Append = storage.Latency{}
	want := storage.LogStats{FirstIndex: 1, LastIndex: 2, EntriesAppended: 2, BytesAppended: 111}
	if diff := cmp.Diff(want, got); diff != "" || counted != 1 || s.Log.BytesAppended() != 111 {
		t.Errorf("%d in buckets, (-want +got):\n%s", counted, diff)
	}
}

// Reads beside compactions and rewrites see entries or their absence, never damage.
func TestLogReadsBesideDeletions(t *testing.T) {
	d := newDisk()
	cfg := testConfig(d, storage.EngineWAL)
	cfg.OnFatal = func(err error) { t.Error(err) }
	s, err := storage.Open(groupDir, cfg)
	must(t, err)
	must(t, s.Log.StoreLogs(entries(1, 50, 1)))
	stop, done := make(chan struct{}), make(chan error)
	for range 2 {
		go func() {
			var l raft.Log
			for i := uint64(0); ; i++ {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				last, _ := s.Log.LastIndex()
				if err := s.Log.GetLog(last-i%20, &l); err != nil && !errors.Is(err, raft.ErrLogNotFound) {
					done <- err
					return
				}
			}
		}()
	}
	for i := uint64(51); i < 1500; i += 10 {
		must(t, s.Log.StoreLogs(entries(i, i+9, 1)))
		must(t, s.Log.DeleteRange(i+5, i+9))
		must(t, s.Log.StoreLogs(entries(i+5, i+9, 1)))
		must(t, s.Log.DeleteRange(1, i-30))
	}
	close(stop)
	must(t, errors.Join(<-done, <-done))
	closeStores(t, s)
}
