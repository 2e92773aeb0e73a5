package machine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/backup"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/fsmtest"
	"github.com/google/go-cmp/cmp"
)

const backupMagic = "BELFBK\x00"

func everyQueue(*fsm.QueueRecord) bool { return true }

// backupBytes returns a backup of the machines, each as a shard.
func backupBytes(t testing.TB, machines ...*Machine) []byte {
	t.Helper()
	return backupIn(t, fsm.FirstFormat, machines...)
}

// backupIn is backupBytes in a format.
func backupIn(t testing.TB, format fsm.Format, machines ...*Machine) []byte {
	t.Helper()
	var out bytes.Buffer
	w := backup.NewWriter(&out, &backup.Header{
		ID: [16]byte{7, 8, 9}, ClusterID: "c1", Format: format, Time: 1_800_000_002_400_000_000,
		Shards: uint32(len(machines)),
		Parts:  uint32(len(machines)),
	})
	if err := w.Append(backup.CatalogRecord(&backup.CatalogQueue{
		Name: "parts", Partitions: 4, Settings: fsmtest.EverySetting(),
	})); err != nil {
		t.Fatal(err)
	}
	for i, m := range machines {
		s := m.Snapshot()
		if err := s.Export(uint32(i), everyQueue, w.Append); err != nil {
			t.Fatal(err)
		}
		m.Release(s)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// readBackup reads a backup to its end.
func readBackup(raw []byte) (records []fsm.BackupRecord, totals backup.Totals, err error) {
	r, err := backup.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, backup.Totals{}, err
	}
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return records, r.Totals(), nil
		}
		if err != nil {
			return nil, backup.Totals{}, err
		}
		records = append(records, fsm.BackupRecord{Kind: record.Kind, Data: bytes.Clone(record.Data)})
	}
}

func TestGoldenBackup(t *testing.T) {
	m := populated(t)
	raw := backupBytes(t, m)
	golden(t, "backup", raw)
	records, totals, err := readBackup(raw)
	if err != nil {
		t.Fatal(err)
	}
	stats := m.Stats()
	want := backup.Totals{
		Shards: 1, Queues: uint64(stats.Queues), Jobs: uint64(stats.Jobs), Tombstones: uint64(stats.Tombstones),
		Serial: m.scalars.Serial,
	}
	if diff := cmp.Diff(want, totals); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	q, err := backup.ParseCatalog(&records[0])
	if diff := cmp.Diff(backup.CatalogQueue{
		Name: "parts", Partitions: 4, Settings: fsmtest.EverySetting(),
	}, q); err != nil || diff != "" {
		t.Errorf("catalog: %v (-want +got):\n%s", err, diff)
	}
}

// TestGoldenBackupOfKeys: the backup of the golden log of format 4 has its paused key, and is the same
// bytes for ever.
func TestGoldenBackupOfKeys(t *testing.T) {
	m := New(fsm.Config{Seed: 7})
	replay(t, m, fsmtest.GoldenBytes(t, "log_4"))
	raw := backupIn(t, fsm.KeysFormat, m)
	golden(t, "backup_4", raw)
	records, totals, err := readBackup(raw)
	if err != nil {
		t.Fatal(err)
	}
	want := backup.KeyRecord("keys", "k3")
	if i := slices.IndexFunc(records, func(r fsm.BackupRecord) bool { return r.Kind == fsm.BackupKey }); i < 0 ||
		!bytes.Equal(records[i].Data, want.Data) || totals.Keys != 1 {
		t.Errorf("the backup has %+v and no record of the paused key", totals)
	}
	i := slices.IndexFunc(records, func(r fsm.BackupRecord) bool { return r.Kind == fsm.BackupSchedule })
	if i < 0 || totals.Schedules != 1 {
		t.Fatalf("the backup has %+v and no record of the schedule", totals)
	}
	if s, err := backup.ParseSchedule(&records[i]); err != nil || s.Queue != "cron" || s.Name != "report" || !s.Paused {
		t.Errorf("the schedule is %+v, %v", s, err)
	}
}

// TestImportPausesKeys: a key is paused once, in its queue, and only from its format on.
func TestImportPausesKeys(t *testing.T) {
	for format, want := range map[fsm.Format]bool{fsm.KeysFormat - 1: false, fsm.KeysFormat: true} {
		m := New(fsm.Config{})
		if _, err := m.Apply(1, codec.AppendEntryIn(nil, format, 5, lead(format))); err != nil {
			t.Fatal(err)
		}
		q, code := m.createQueue("q", 0, 1)
		if code != fsm.OK {
			t.Fatal(code)
		}
		r := backup.KeyRecord("q", "k")
		if got := m.importRecord(&r); got != want {
			t.Errorf("in format %d: %v", format, got)
		}
		if !want {
			continue
		}
		if group := q.keys.Group("k"); group == 0 || m.keys.Paused != 1 || m.store.Keys.At(group).Memory == 0 {
			t.Errorf("%d keys are paused, group %d of them", m.keys.Paused, group)
		}
		for name, r := range map[string]fsm.BackupRecord{
			"again": r, "no key": backup.KeyRecord("q", ""), "no such queue": backup.KeyRecord("p", "k"),
		} {
			if m.importRecord(&r) {
				t.Errorf("%s: it is imported", name)
			}
		}
		m.keys.Paused = fsm.PausedKeysMax
		if r := backup.KeyRecord("q", "more"); !m.importRecord(&r) || q.keys == nil {
			t.Error("a key beyond the limit is not imported")
		}
	}
}

// TestBackupDetectsEveryFlip: a byte that is changed, missing or too many is found, wherever it is.
func TestBackupDetectsEveryFlip(t *testing.T) {
	raw := backupBytes(t, populated(t))
	for i := range raw {
		for _, bit := range []byte{1, 16, 128} {
			damaged := bytes.Clone(raw)
			damaged[i] ^= bit
			if _, _, err := readBackup(damaged); !errors.Is(err, fsm.ErrDamaged) && !errors.Is(err, fsm.ErrVersion) &&
				!errors.Is(err, backup.ErrIncomplete) {
				t.Fatalf("byte %d, bit %d: error %v", i, bit, err)
			}
		}
	}
	for cut := range raw {
		_, _, err := readBackup(raw[:cut])
		if !errors.Is(err, backup.ErrIncomplete) || !strings.Contains(err.Error(), "at byte ") {
			t.Fatalf("cut at %d: error %v", cut, err)
		}
	}
	if _, _, err := readBackup(append(bytes.Clone(raw), 0)); !errors.Is(err, fsm.ErrDamaged) {
		t.Errorf("a byte too many: error %v", err)
	}
}

// blocksOf cuts a backup into its magic and its blocks.
func blocksOf(t *testing.T, raw []byte) (blocks [][]byte) {
	t.Helper()
	blocks = append(blocks, raw[:len(backupMagic)+1])
	for raw = raw[len(backupMagic)+1:]; len(raw) > 0; {
		n := int(raw[0]) | int(raw[1])<<8 | int(raw[2])<<16 | int(raw[3])<<24
		n += 4 + 8 + 4
		blocks, raw = append(blocks, raw[:n]), raw[n:]
	}
	return blocks
}

// TestBackupOfManyBlocks: blocks that are sound by themselves are refused out of their order, and
// the error says where.
func TestBackupOfManyBlocks(t *testing.T) {
	m := New(fsm.Config{Seed: 1})
	index := uint64(0)
	for i := range 40 {
		index++
		body := bytes.Repeat([]byte{byte(i)}, 40<<10)
		if i == 20 {
			body = bytes.Repeat([]byte{1}, 1<<20) // larger than a block
		}
		put := &fsm.Put{Queue: "q", Partitions: 1, Body: body}
		if _, err := m.Apply(index,
			codec.AppendEntry(nil, 1e9,
				[][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: []fsm.Command{put}})})); err != nil {
			t.Fatal(err)
		}
	}
	raw := backupBytes(t, m)
	if _, totals, err := readBackup(raw); err != nil || totals.Jobs != 40 {
		t.Fatalf("%d jobs, error %v", totals.Jobs, err)
	}
	blocks := blocksOf(t, raw)
	if len(blocks) < 8 {
		t.Fatalf("only %d blocks", len(blocks))
	}
	at := 0
	for i := 1; i < len(blocks)-1; i++ {
		at += len(blocks[i-1])
		where := fmt.Sprintf("at byte %d:", at)
		swapped := bytes.Join(blocks, nil)
		copy(swapped[at:], blocks[i+1])
		copy(swapped[at+len(blocks[i+1]):], blocks[i])
		if _, _, err := readBackup(swapped); !errors.Is(err, fsm.ErrDamaged) || !strings.Contains(err.Error(), where) {
			t.Errorf("blocks %d and %d change places: %v, want it to be %s", i, i+1, err, where)
		}
		missing := append(append([]byte{}, raw[:at]...), raw[at+len(blocks[i]):]...)
		if _, _, err := readBackup(missing); !errors.Is(err, fsm.ErrDamaged) || !strings.Contains(err.Error(), where) {
			t.Errorf("block %d is missing: %v, want it to be %s", i, err, where)
		}
	}
}

func FuzzReadBackup(f *testing.F) {
	f.Add(backupBytes(f, populated(f)))
	f.Add([]byte(backupMagic + "\x01"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		records, _, err := readBackup(raw)
		if err != nil {
			return
		}
		m := New(fsm.Config{})
		commands := []fsm.Command{
			&fsm.Import{Step: fsm.ImportBegin}, &fsm.Import{
				Step: fsm.ImportRecords, Sequence: 1, Floor: 1 << 20, Records: records,
			}, &fsm.Import{Step: fsm.ImportEnd, Total: uint64(len(records))},
		}
		if _, err := m.Apply(1,
			codec.AppendEntry(nil, 5, [][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: commands})})); err != nil {
			t.Fatal(err)
		}
		if _, err := Restore(fsm.Config{}, bytes.NewReader(snapshotBytes(t, m))); err != nil {
			t.Errorf("what was imported cannot be restored from a snapshot: %v", err)
		}
	})
}

// FuzzImportRecords imports records of any bytes, as a checksum that is right by chance would let
// through.
func FuzzImportRecords(f *testing.F) {
	records, _, err := readBackup(backupBytes(f, populated(f)))
	if err != nil {
		f.Fatal(err)
	}
	var all []byte
	for i := range records {
		all = codec.AppendRecord(all, &records[i])
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := codec.Reader{B: raw}
		var records []fsm.BackupRecord
		for r.Left() > 0 {
			records = append(records, r.Record())
		}
		m := New(fsm.Config{})
		commands := []fsm.Command{&fsm.Import{Step: fsm.ImportBegin}, &fsm.Import{
			Step: fsm.ImportRecords, Sequence: 1, Floor: 1 << 20, Records: records,
		}}
		if _, err := m.Apply(1,
			codec.AppendEntry(nil, 5, [][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: commands})})); err != nil {
			t.Fatal(err)
		}
		if _, err := Restore(fsm.Config{}, bytes.NewReader(snapshotBytes(t, m))); err != nil {
			t.Errorf("what was imported cannot be restored from a snapshot: %v", err)
		}
	})
}

// TestImportOfALaterJob: a shard imports no job with fields that its format does not have: a replica of
// an earlier program would read them as something else.
func TestImportOfALaterJob(t *testing.T) {
	source := New(fsm.Config{})
	apply := func(m *Machine, format fsm.Format, commands ...fsm.Command) []fsm.Result {
		t.Helper()
		request := codec.AppendRequestIn(nil, format, &fsm.Request{Client: "w", Commands: commands})
		results, err := m.Apply(m.Index()+1, codec.AppendEntryIn(nil, format, 100*fsm.Hour, [][]byte{request}))
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	apply(source, 2, &fsm.Put{Queue: "q", Partitions: 1})
	apply(source, 3, &fsm.Reserve{Queues: []string{"q"}, Max: 1})
	var records []fsm.BackupRecord
	s := source.Snapshot()
	if err := s.Export(0, func(*fsm.QueueRecord) bool { return true }, func(r fsm.BackupRecord) error {
		if r.Kind == fsm.BackupQueue || r.Kind == fsm.BackupJob {
			records = append(records, fsm.BackupRecord{Kind: r.Kind, Data: bytes.Clone(r.Data)})
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	source.Release(s)
	for format, want := range map[fsm.Format]uint64{2: 1, 3: 2} {
		m := New(fsm.Config{})
		apply(m, format, &fsm.Import{Restore: [16]byte{1}, Step: fsm.ImportBegin})
		got := apply(m, format, &fsm.Import{
			Restore: [16]byte{1}, Step: fsm.ImportRecords, Sequence: 1, Floor: 9, Records: records,
		})
		if got[0].Serial != want {
			t.Errorf("format %d imports %d of %d records, want %d", format, got[0].Serial, len(records), want)
		}
	}
}

// TestImportOfKeysNeedsTheirFormat: a shard imports neither settings of keys nor the tombstone of a job
// with a key before its format has keys.
func TestImportOfKeysNeedsTheirFormat(t *testing.T) {
	t.Parallel()
	encoded := func(kind fsm.BackupKind, data []byte) *fsm.BackupRecord {
		return &fsm.BackupRecord{Kind: kind, Data: data}
	}
	tombstone := func(id, key string, serial byte) *fsm.BackupRecord {
		data := append(codec.AppendText(nil, "q"), serial, 0, 0, byte(fsm.Acked)) // due and ended at 0
		return encoded(fsm.BackupTombstone, append(append(codec.AppendText(data, id), make([]byte, 16)...), key...))
	}
	queue := func(name string, keys fsm.KeySettings) *fsm.BackupRecord {
		return encoded(fsm.BackupQueue, codec.AppendQueueRecord(nil, &fsm.QueueRecord{
			Name: name, Partitions: 1, Format: fsm.FirstFormat, Settings: fsm.Settings{Keys: keys},
		}))
	}
	for format, keyed := range map[fsm.Format]bool{fsm.KeysFormat - 1: false, fsm.KeysFormat: true} {
		m := New(fsm.Config{})
		m.format, m.scalars.Serial = format, 9
		for i, c := range []struct {
			record *fsm.BackupRecord
			want   bool
		}{
			{queue("q", fsm.KeySettings{}), true}, {queue("keyed", fsm.KeySettings{Fair: true}), keyed},
			{tombstone("a", "", 1), true}, {tombstone("b", "k", 2), keyed},
		} {
			if got := m.importRecord(c.record); got != c.want {
				t.Errorf("format %d: record %d is imported: %v", format, i, got)
			}
		}
	}
}

// TestRestoreKeepsVersions: a schedule goes on from its version in a restored shard, and a later one of its
// name begins above, although the shard had no serial for each. A snapshot keeps that as well.
func TestRestoreKeepsVersions(t *testing.T) {
	apply := func(m *Machine, commands ...fsm.Command) []fsm.Result {
		t.Helper()
		request := codec.AppendRequestIn(nil, fsm.KeysFormat, &fsm.Request{Commands: commands})
		results, err := m.Apply(m.Index()+1, codec.AppendEntryIn(nil, fsm.KeysFormat, fsm.Hour, [][]byte{request}))
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	put := func(m *Machine) uint64 {
		return apply(m, &fsm.PutSchedule{
			Queue: "q", Partitions: 1, Name: "s", Job: fsm.Put{Body: fmt.Append(nil, m.Index())},
		})[0].Version
	}
	drop := &fsm.DeleteSchedule{Queue: "q", Name: "s"}
	source := New(fsm.Config{})
	for want := uint64(1); want < 5; want++ {
		if got := put(source); got != want {
			t.Fatalf("version %d, want %d", got, want)
		}
	}
	records, totals, err := readBackup(backupIn(t, fsm.KeysFormat, source))
	if err != nil || totals.Serial != 4 {
		t.Fatalf("the backup has %+v, %v", totals, err)
	}
	records = slices.DeleteFunc(records, func(r fsm.BackupRecord) bool {
		return r.Kind != fsm.BackupQueue && r.Kind != fsm.BackupSchedule
	})
	for floor, want := range map[uint64]uint64{totals.Serial - 1: 1, totals.Serial: 2} {
		m := New(fsm.Config{})
		apply(m, &fsm.Import{Restore: [16]byte{1}, Step: fsm.ImportBegin})
		got := apply(m, &fsm.Import{
			Restore: [16]byte{1}, Step: fsm.ImportRecords, Sequence: 1, Floor: floor, Records: records,
		}, &fsm.Import{Restore: [16]byte{1}, Step: fsm.ImportEnd, Floor: floor, Total: want})
		if got[0].Serial != want {
			t.Errorf("%d records are imported above serial %d, want %d", got[0].Serial, floor, want)
		}
		if want == 1 {
			continue
		}
		for _, next := range []uint64{5, 6} {
			if got := put(m); got != next {
				t.Errorf("after the restore: version %d, want %d", got, next)
			}
		}
		apply(m, drop)
		back, err := Restore(fsm.Config{}, bytes.NewReader(snapshotBytes(t, m)))
		if err != nil {
			t.Fatal(err)
		}
		if got := put(back); got != 7 {
			t.Errorf("made again after a snapshot: version %d, want 7", got)
		}
	}
}
