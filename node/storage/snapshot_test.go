package storage_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// bigData spans several blocks.
func bigData(n int) []byte {
	r := rand.New(rand.NewPCG(uint64(n), 9))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func snapshotFiles(d *diskfault.Disk) []string {
	var names []string
	for _, name := range d.Files() {
		if strings.Contains(name, ".snap") {
			names = append(names, name)
		}
	}
	return names
}

func TestSnapshotSizes(t *testing.T) {
	const block = 256 << 10
	for _, n := range []int{0, 1, block - 1, block, block + 1, 3 * block, 3*block + 77} {
		d := newDisk()
		s := openOn(t, d)
		setTerm(t, s, 2)
		mustSnapshot(t, s, 10, 2, bigData(n))
		closeStores(t, s)
		s = openOn(t, d)
		index, data, err := readSnapshot(s.Snapshots)
		if err != nil || index != 10 || !bytes.Equal(data, bigData(n)) {
			t.Errorf("%d bytes came back as %d at index %d: %v", n, len(data), index, err)
		}
		closeStores(t, s)
	}
}

func TestSnapshotKeepsMetaAndDigest(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	setTerm(t, s, 3)
	conf := raft.Configuration{Servers: []raft.Server{
		{Suffrage: raft.Voter, ID: "a.1", Address: "a.1"}, {Suffrage: raft.Nonvoter, ID: "b.2", Address: "b.2"},
	}}
	sink, err := s.Snapshots.Create(1, 77, 3, conf, 12, nil)
	must(t, err)
	_, err = sink.Write([]byte("state"))
	must(t, err)
	sink.(storage.DigestSetter).SetDigest(0xfeed)
	must(t, sink.Close())
	want := raft.SnapshotMeta{
		Version: 1, ID: sink.ID(), Index: 77, Term: 3, Configuration: conf, ConfigurationIndex: 12, Size: 5,
	}
	for range 2 { // in the running store and after opening it again
		newest, ok := s.Snapshots.Newest()
		list, err := s.Snapshots.List()
		if diff := cmp.Diff([]*raft.SnapshotMeta{&want}, list); diff != "" || err != nil || !ok {
			t.Errorf("%v, %v (-want +got):\n%s", err, ok, diff)
		}
		if diff := cmp.Diff(want, newest); diff != "" {
			t.Errorf("newest (-want +got):\n%s", diff)
		}
		if digest, ok, err := s.Snapshots.Digest(sink.ID()); digest != 0xfeed || !ok || err != nil {
			t.Errorf("digest %x, %v, %v", digest, ok, err)
		}
		closeStores(t, s)
		s = openOn(t, d)
	}
	mustSnapshot(t, s, 78, 3, nil)
	list, _ := s.Snapshots.List()
	if _, ok, err := s.Snapshots.Digest(list[0].ID); ok || err != nil {
		t.Errorf("a digest nobody gave: %v, %v", ok, err)
	}
	closeStores(t, s)
}

func TestSnapshotRetention(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	defer closeStores(t, s)
	setTerm(t, s, 2)
	for _, index := range []uint64{10, 20, 20, 30} {
		mustSnapshot(t, s, index, 2, snapshotData(index))
		if index, _, err := readSnapshot(s.Snapshots); err != nil || index < 10 {
			t.Fatal(index, err)
		}
	}
	s.Tidy(nil)
	if files := snapshotFiles(d); len(files) != 2 || !strings.Contains(files[0], "14-") ||
		!strings.Contains(files[1], "1e-") {
		t.Errorf("kept %v, want 20 and 30", files)
	}
	// Raft is shown the newest only: it would fall back to the other, silently.
	if list, err := s.Snapshots.List(); len(list) != 1 || err != nil {
		t.Errorf("listed %d, %v", len(list), err)
	}
	if got := s.Stats().Snapshot; got.Written != 4 || got.NewestIndex != 30 || got.NewestBytes != 700 {
		t.Errorf("stats %+v", got)
	}
}

func TestSnapshotMayNotGoBack(t *testing.T) {
	s := openOn(t, newDisk())
	defer closeStores(t, s)
	setTerm(t, s, 2)
	mustSnapshot(t, s, 30, 2, nil)
	if err := takeSnapshot(s.Snapshots, 29, 2, nil); !errors.Is(err, storage.ErrSnapshotOlder) {
		t.Errorf("older index: %v", err)
	}
	if _, err := s.Snapshots.Create(0, 31, 2, configuration(), 1, nil); err == nil {
		t.Error("version 0 was accepted")
	}
}

// While the node writes a snapshot with pauses, newer ones may be installed.
func TestSnapshotThatIsOvertakenIsGivenUp(t *testing.T) {
	for what, end := range map[string]func(raft.SnapshotSink) error{
		"while it is written": func(sink raft.SnapshotSink) error {
			_, err := sink.Write(bigData(300 << 10))
			return errors.Join(err, sink.Cancel())
		},
		"before it is closed": raft.SnapshotSink.Close,
	} {
		d := newDisk()
		s := openOn(t, d)
		setTerm(t, s, 2)
		sink, err := s.Snapshots.Create(1, 10, 2, configuration(), 1, nil)
		must(t, err)
		for _, index := range []uint64{50, 60} {
			mustSnapshot(t, s, index, 2, snapshotData(index))
		}
		if err := end(sink); !errors.Is(err, storage.ErrSnapshotOlder) {
			t.Errorf("%s: %v", what, err)
		}
		s.Tidy(nil)
		if index, _, err := readSnapshot(s.Snapshots); index != 60 || err != nil || len(snapshotFiles(d)) != 2 ||
			s.Err() != nil {
			t.Errorf("%s: newest %d, %v, of %v, state %v", what, index, err, snapshotFiles(d), s.Err())
		}
		closeStores(t, s)
	}
}

// Two that end at the same time come one after the other.
func TestSnapshotsArePublishedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		s := openOn(t, d)
		setTerm(t, s, 2)
		older, err := s.Snapshots.Create(1, 10, 2, configuration(), 1, nil)
		must(t, err)
		goOn := make(chan struct{})
		d.SetHook(func(o diskfault.Op) error {
			if o.Kind == diskfault.OpRename && strings.Contains(o.Path, "000a-") {
				<-goOn
			}
			return nil
		})
		ended := make(chan error, 2)
		go func() { ended <- older.Close() }()
		synctest.Wait()
		go func() { ended <- takeSnapshot(s.Snapshots, 50, 2, nil) }()
		synctest.Wait()
		close(goOn)
		must(t, errors.Join(<-ended, <-ended))
		if newest, _ := s.Snapshots.Newest(); newest.Index != 50 {
			t.Errorf("the newest is %d", newest.Index)
		}
		closeStores(t, s)
	})
}

func TestSnapshotCancel(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	defer closeStores(t, s)
	setTerm(t, s, 2)
	mustSnapshot(t, s, 10, 2, snapshotData(10))
	sink, err := s.Snapshots.Create(1, 20, 2, configuration(), 1, nil)
	must(t, err)
	_, err = sink.Write(bigData(600 << 10))
	must(t, err)
	must(t, sink.Cancel())
	must(t, sink.Cancel())
	if _, err := sink.Write([]byte("more")); err == nil {
		t.Error("a cancelled sink took a write")
	}
	if err := sink.Close(); err == nil {
		t.Error("a cancelled sink was closed")
	}
	if files := snapshotFiles(d); len(files) != 2 {
		t.Errorf("%v: what may be large is removed by Tidy", files)
	}
	sink, err = s.Snapshots.Create(1, 20, 2, configuration(), 1, nil)
	must(t, err)
	if files := snapshotFiles(d); len(files) != 2 {
		t.Errorf("%v: what the first attempt left is not removed by the second", files)
	}
	must(t, sink.Cancel())
	s.Tidy(nil)
	if files := snapshotFiles(d); len(files) != 1 {
		t.Errorf("left %v", files)
	}
	if index, _, err := readSnapshot(s.Snapshots); index != 10 || err != nil {
		t.Error(index, err)
	}
}

// A failure at any step of a snapshot leaves the one before, no temporary, and a store that goes
// on.
func TestSnapshotFailureAtEachStep(t *testing.T) {
	for _, fail := range []func(diskfault.Op) error{diskfault.Full, diskfault.Broken} {
		cause := errors.Unwrap(fail(diskfault.Op{}))
		for n := 0; ; n++ {
			d := newDisk()
			s := openOn(t, d)
			setTerm(t, s, 2)
			mustSnapshot(t, s, 10, 2, snapshotData(10))
			left := n
			d.SetHook(func(o diskfault.Op) error {
				reopened := o.Kind == diskfault.OpOpen && strings.HasSuffix(o.Path, ".tmp")
				if !o.Mutates() && !reopened || !strings.Contains(o.Path, "snapshots") {
					return nil
				}
				if left--; left == -1 {
					return fail(o)
				}
				return nil
			})
			err := takeSnapshot(s.Snapshots, 20, 2, bigData(2500<<10))
			d.SetHook(nil)
			want := uint64(10)
			if err == nil {
				want = 20
			}
			if index, _, err := readSnapshot(s.Snapshots); index != want || err != nil {
				t.Fatalf("step %d: newest %d, %v, want %d", n, index, err, want)
			}
			if err != nil {
				s.Tidy(nil)
				if !errors.Is(err, cause) || s.Err() != nil || s.Stats().Snapshot.Failed != 1 || len(snapshotFiles(d)) != 1 {
					t.Fatalf("step %d: %v, %v, %+v, %v", n, err, s.Err(), s.Stats().Snapshot, snapshotFiles(d))
				}
				mustSnapshot(t, s, 21, 2, nil)
			}
			closeStores(t, s)
			if err == nil {
				if n < 7 {
					t.Fatalf("only %d steps", n)
				}
				break
			}
		}
	}
}

// Blocks of the same file in another order, twice, or from another snapshot break the chain of
// sums.
func TestSnapshotBlocksMoved(t *testing.T) {
	const block = 256<<10 + 8
	d := newDisk()
	s := openOn(t, d)
	setTerm(t, s, 2)
	mustSnapshot(t, s, 10, 2, bigData(4*256<<10))
	closeStores(t, s)
	name := snapshotFiles(d)[0]
	whole := d.Contents(name)
	start := bytes.Index(whole, bigData(4 * 256 << 10)[:64]) - 8
	swap := func(b []byte, i, j int) {
		x, y := b[start+i*block:start+(i+1)*block], b[start+j*block:start+(j+1)*block]
		tmp := bytes.Clone(x)
		copy(x, y)
		copy(y, tmp)
	}
	trailer := len(whole) - 41
	d.SetContents(name, slices.Concat(whole[:trailer], make([]byte, 8), whole[trailer:]))
	_, err := storage.Open(groupDir, testConfig(d, storage.EngineWAL))
	wantCorrupt(t, err, ".snap")
	for what, change := range map[string]func([]byte){
		"swapped":          func(b []byte) { swap(b, 1, 2) },
		"doubled":          func(b []byte) { copy(b[start+2*block:], b[start+block:start+2*block]) },
		"last block early": func(b []byte) { copy(b[start+2*block:], b[start+4*block:start+4*block+8]) },
	} {
		b := bytes.Clone(whole)
		change(b)
		d.SetContents(name, b)
		_, err := storage.Open(groupDir, testConfig(d, storage.EngineWAL))
		if corrupt := corruptIn(t, err, ".snap"); corrupt.Offset < int64(start) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A digest that rotted, or is gone, would let another state be restored.
func TestSnapshotTrailerIsChecked(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	setTerm(t, s, 2)
	sink, err := s.Snapshots.Create(1, 10, 2, configuration(), 1, nil)
	must(t, err)
	sink.(storage.DigestSetter).SetDigest(0xfeed)
	must(t, sink.Close())
	closeStores(t, s)
	name := snapshotFiles(d)[0]
	const trailer = 41
	for at := len(d.Contents(name)) - trailer; at < len(d.Contents(name)); at++ {
		rotten := d.Clone()
		rotten.Flip(name, int64(at), 0)
		s, err := storage.Open(groupDir, testConfig(rotten, storage.EngineWAL))
		if err == nil {
			closeStores(t, s)
		}
		wantCorrupt(t, err, ".snap")
	}
}

// Rot found while a snapshot is read ends the stream with the error, never with io.EOF.
func TestSnapshotStreamEndsWithTheError(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	defer closeStores(t, s)
	setTerm(t, s, 2)
	mustSnapshot(t, s, 10, 2, bigData(600<<10))
	list, err := s.Snapshots.List()
	must(t, err)
	_, r, err := s.Snapshots.Open(list[0].ID)
	must(t, err)
	d.Flip(snapshotFiles(d)[0], 400<<10, 0)
	got, err := io.ReadAll(r)
	wantCorrupt(t, err, ".snap")
	if len(got) != 256<<10 || !bytes.Equal(got, bigData(600 << 10)[:256<<10]) {
		t.Errorf("%d bytes were handed out before the damage", len(got))
	}
	if _, again := r.Read(make([]byte, 1)); !errors.Is(again, err) {
		t.Errorf("next read: %v", again)
	}
	must(t, r.Close())
}

// An old snapshot that cannot be removed does not make the new one fail.
func TestSnapshotThatCannotBeRemoved(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	defer closeStores(t, s)
	setTerm(t, s, 2)
	for _, index := range []uint64{10, 20} {
		mustSnapshot(t, s, index, 2, nil)
	}
	d.SetHook(func(o diskfault.Op) error {
		if o.Kind == diskfault.OpRemove {
			return diskfault.Broken(o)
		}
		return nil
	})
	mustSnapshot(t, s, 30, 2, nil)
	s.Tidy(nil)
	if files := snapshotFiles(d); len(files) != 3 {
		t.Errorf("kept %v, although nothing can be removed", files)
	}
	d.SetHook(nil)
	mustSnapshot(t, s, 40, 2, nil)
	s.Tidy(nil)
	if files := snapshotFiles(d); len(files) != 2 || s.Err() != nil {
		t.Errorf("kept %v, state %v", files, s.Err())
	}
}

// A snapshot removed between List and Open, because a newer one came, is no damage; the newest
// missing is.
func TestSnapshotGoneBeforeOpen(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	defer closeStores(t, s)
	setTerm(t, s, 2)
	mustSnapshot(t, s, 10, 2, nil)
	list, err := s.Snapshots.List()
	must(t, err)
	for _, index := range []uint64{20, 30} {
		mustSnapshot(t, s, index, 2, nil)
	}
	if _, _, err := s.Snapshots.Open(list[0].ID); err == nil || s.Err() != nil {
		t.Errorf("open: %v, state %v", err, s.Err())
	}
	newest, _ := s.Snapshots.Newest()
	d.SetContents(groupDir+"/snapshots/"+newest.ID+".snap", nil)
	_, _, err = s.Snapshots.Open(newest.ID)
	wantCorrupt(t, err, newest.ID)
	if !errors.Is(s.Err(), disk.ErrFailed) {
		t.Errorf("state %v", s.Err())
	}
}

// A large snapshot is synced on the way, so that no single sync is long.
func TestSnapshotSyncsOnTheWay(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	defer closeStores(t, s)
	setTerm(t, s, 2)
	syncs := 0
	d.SetHook(func(o diskfault.Op) error {
		if o.Kind == diskfault.OpSync && strings.Contains(o.Path, ".snap") {
			syncs++
		}
		return nil
	})
	mustSnapshot(t, s, 10, 2, make([]byte, 50<<20))
	if syncs != 4 {
		t.Errorf("%d syncs for 50 MiB, want one in 16 MiB and the last", syncs)
	}
}

// Damage in the ends of a snapshot fails the group, whichever call finds it.
func TestSnapshotDamagedEnds(t *testing.T) {
	for what, read := range map[string]func(*storage.SnapshotStore, string) error{
		"List":   func(s *storage.SnapshotStore, _ string) error { _, err := s.List(); return err },
		"Open":   func(s *storage.SnapshotStore, id string) error { _, _, err := s.Open(id); return err },
		"Digest": func(s *storage.SnapshotStore, id string) error { _, _, err := s.Digest(id); return err },
	} {
		d := newDisk()
		s := openOn(t, d)
		setTerm(t, s, 2)
		mustSnapshot(t, s, 10, 2, []byte("state"))
		newest, _ := s.Snapshots.Newest()
		d.Flip(snapshotFiles(d)[0], 20, 1)
		err := read(s.Snapshots, newest.ID)
		wantCorrupt(t, err, newest.ID)
		if !errors.Is(s.Err(), disk.ErrFailed) {
			t.Errorf("%s: state %v", what, s.Err())
		}
		closeStores(t, s)
	}
}

// leakyFS is a disk that cannot close snapshots that were written and synced; the file is closed
// all the same.
type leakyFS struct {
	disk.FS
	cause error
}

func (f *leakyFS) OpenFile(name string, flag int) (disk.File, error) {
	file, err := f.FS.OpenFile(name, flag)
	if err != nil || !strings.HasSuffix(name, ".tmp") || !strings.Contains(name, "snapshots") {
		return file, err
	}
	return &leakyFile{File: file, fs: f}, nil
}

type leakyFile struct {
	disk.File
	fs     *leakyFS
	synced bool
}

func (f *leakyFile) Sync() error {
	f.synced = true
	return f.File.Sync()
}

func (f *leakyFile) Close() error {
	if err := f.File.Close(); err != nil || !f.synced {
		return err
	}
	return f.fs.cause
}

// A snapshot whose file cannot be closed has failed: there is none under its name.
func TestSnapshotThatCannotBeClosed(t *testing.T) {
	d := newDisk()
	leaky := &leakyFS{FS: d}
	s, err := storage.Open(groupDir, testConfig(leaky, storage.EngineWAL))
	if err != nil {
		t.Fatal(err)
	}
	defer closeStores(t, s)
	setTerm(t, s, 2)
	mustSnapshot(t, s, 10, 2, snapshotData(10))
	leaky.cause = errors.New("input/output error")
	if err := takeSnapshot(s.Snapshots, 20, 2, bigData(1<<10)); !errors.Is(err, leaky.cause) {
		t.Errorf("it ended with %v", err)
	}
	leaky.cause = nil
	s.Tidy(nil)
	if index, _, err := readSnapshot(s.Snapshots); index != 10 || err != nil || len(snapshotFiles(d)) != 1 {
		t.Errorf("the newest is %d, %v; the files are %v", index, err, snapshotFiles(d))
	}
	mustSnapshot(t, s, 21, 2, nil)
}
