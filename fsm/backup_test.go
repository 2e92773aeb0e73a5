package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func everyImport() *Import {
	return &Import{
		Restore: [16]byte{1, 2, 3}, Step: ImportRecords, Sequence: 300, Floor: 70000, Overdue: ImportSpread, Period: time.Minute,
		Since: 1_800_000_000_000_000_000, Total: 500,
		Records: []BackupRecord{{BackupQueue, []byte("queue")}, {BackupJob, []byte("job")}, {BackupTombstone, []byte{}}},
	}
}

func everyQueue(*QueueRecord) bool { return true }

// backupBytes returns a backup of the machines, each as a shard.
func backupBytes(t testing.TB, machines ...*Machine) []byte {
	t.Helper()
	var out bytes.Buffer
	w := NewBackupWriter(&out, &BackupHeader{
		ID: [16]byte{7, 8, 9}, ClusterID: "c1", Time: 1_800_000_002_400_000_000, Shards: uint32(len(machines)), Parts: uint32(len(machines)),
	})
	if err := w.Append(CatalogRecord(&CatalogQueue{Name: "parts", Partitions: 4, Settings: everySetting()})); err != nil {
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
func readBackup(raw []byte) (records []BackupRecord, totals BackupTotals, err error) {
	r, err := NewBackupReader(bytes.NewReader(raw))
	if err != nil {
		return nil, BackupTotals{}, err
	}
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return records, r.Totals(), nil
		}
		if err != nil {
			return nil, BackupTotals{}, err
		}
		records = append(records, BackupRecord{record.Kind, bytes.Clone(record.Data)})
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
	want := BackupTotals{Shards: 1, Queues: uint64(stats.Queues), Jobs: uint64(stats.Jobs), Tombstones: uint64(stats.Tombstones), Serial: m.scalars.Serial}
	if diff := cmp.Diff(want, totals); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	q, err := records[0].Catalog()
	if diff := cmp.Diff(CatalogQueue{Name: "parts", Partitions: 4, Settings: everySetting()}, q); err != nil || diff != "" {
		t.Errorf("catalog: %v (-want +got):\n%s", err, diff)
	}
}

// TestBackupOfNamespace: the quota of a namespace is stored in these bytes, which programs to come read as well.
func TestBackupOfNamespace(t *testing.T) {
	want := CatalogNamespace{Name: "shop", MaxJobs: 1, MaxBytes: 1 << 60, MaxInFlight: 300, PutRate: 2_000_000}
	r := NamespaceRecord(&want)
	if got := fmt.Sprintf("%d %x", r.Kind, r.Data); got != "9 0473686f70018080808080808080"+"10ac0280897a" {
		t.Errorf("stored as %s", got)
	}
	if got, err := r.Namespace(); err != nil || got != want {
		t.Errorf("%+v: %v, want %+v", got, err, want)
	}
	if _, err := r.Catalog(); !errors.Is(err, ErrDamaged) {
		t.Errorf("read as a queue: %v", err)
	}
	r.Data = append(r.Data, 0)
	if _, err := r.Namespace(); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte too many: %v", err)
	}
}

// TestBackupDetectsEveryFlip: a byte that is changed, missing or too many is found, wherever it is.
func TestBackupDetectsEveryFlip(t *testing.T) {
	raw := backupBytes(t, populated(t))
	for i := range raw {
		for _, bit := range []byte{1, 16, 128} {
			damaged := bytes.Clone(raw)
			damaged[i] ^= bit
			if _, _, err := readBackup(damaged); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrIncomplete) {
				t.Fatalf("byte %d, bit %d: error %v", i, bit, err)
			}
		}
	}
	for cut := range raw {
		_, _, err := readBackup(raw[:cut])
		if !errors.Is(err, ErrIncomplete) || !strings.Contains(err.Error(), "at byte ") {
			t.Fatalf("cut at %d: error %v", cut, err)
		}
	}
	if _, _, err := readBackup(append(bytes.Clone(raw), 0)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte too many: error %v", err)
	}
}

// blocksOf cuts a backup into its magic and its blocks.
func blocksOf(t *testing.T, raw []byte) (blocks [][]byte) {
	t.Helper()
	blocks = append(blocks, raw[:len(backupMagic)+1])
	for raw = raw[len(backupMagic)+1:]; len(raw) > 0; {
		n := int(raw[0]) | int(raw[1])<<8 | int(raw[2])<<16 | int(raw[3])<<24
		n += backupFrameBytes
		blocks, raw = append(blocks, raw[:n]), raw[n:]
	}
	return blocks
}

// TestBackupOfManyBlocks: blocks that are sound by themselves are refused out of their order, and the error says where.
func TestBackupOfManyBlocks(t *testing.T) {
	m := New(Config{Seed: 1})
	index := uint64(0)
	for i := range 40 {
		index++
		body := bytes.Repeat([]byte{byte(i)}, 40<<10)
		if i == 20 {
			body = bytes.Repeat([]byte{1}, 1<<20) // larger than a block
		}
		put := &Put{Queue: "q", Partitions: 1, Body: body}
		if _, err := m.Apply(index, AppendEntry(nil, 1e9, [][]byte{AppendRequest(nil, &Request{Commands: []Command{put}})})); err != nil {
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
		if _, _, err := readBackup(swapped); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), where) {
			t.Errorf("blocks %d and %d change places: %v, want it to be %s", i, i+1, err, where)
		}
		missing := append(append([]byte{}, raw[:at]...), raw[at+len(blocks[i]):]...)
		if _, _, err := readBackup(missing); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), where) {
			t.Errorf("block %d is missing: %v, want it to be %s", i, err, where)
		}
	}
}

// TestBackupRefusesMisplaced: what no writer writes is refused although every checksum is right.
func TestBackupRefusesMisplaced(t *testing.T) {
	section := func(n uint32) BackupRecord { return SectionRecord(&BackupSection{Shard: n}) }
	end := func(shard, queues byte) BackupRecord {
		return BackupRecord{BackupShardEnd, []byte{shard, queues, 0, 0}}
	}
	queue := BackupRecord{BackupQueue, appendQueueRecord(nil, &QueueRecord{Name: "q"})}
	catalog := CatalogRecord(&CatalogQueue{Name: "q", Partitions: 1})
	quota := NamespaceRecord(&CatalogNamespace{Name: "shop", MaxJobs: 1})
	for name, c := range map[string]struct {
		records []BackupRecord
		want    error
	}{
		"sound":                    {[]BackupRecord{catalog, section(0), queue, end(0, 1), section(1), end(1, 0)}, nil},
		"a shard is missing":       {[]BackupRecord{section(0), end(0, 0)}, ErrDamaged},
		"a shard twice":            {[]BackupRecord{section(0), end(0, 0), section(0), end(0, 0)}, ErrDamaged},
		"a shard that there isn't": {[]BackupRecord{section(0), end(0, 0), section(2), end(2, 0)}, ErrDamaged},
		"a shard within a shard":   {[]BackupRecord{section(0), section(1), end(1, 0)}, ErrDamaged},
		"no end of a shard":        {[]BackupRecord{section(0), end(0, 0), section(1)}, ErrDamaged},
		"a queue in no shard":      {[]BackupRecord{queue, section(0), end(0, 0), section(1), end(1, 0)}, ErrDamaged},
		"an end that miscounts":    {[]BackupRecord{section(0), queue, end(0, 2), section(1), end(1, 0)}, ErrDamaged},
		"the catalog late":         {[]BackupRecord{section(0), end(0, 0), catalog, section(1), end(1, 0)}, ErrDamaged},
		"a quota":                  {[]BackupRecord{catalog, quota, section(0), end(0, 0), section(1), end(1, 0)}, nil},
		"a quota late":             {[]BackupRecord{section(0), end(0, 0), section(1), end(1, 0), quota}, ErrDamaged},
		"a quota in a shard":       {[]BackupRecord{section(0), quota, end(0, 0), section(1), end(1, 0)}, ErrDamaged},
		"an unknown kind":          {[]BackupRecord{{Kind: 99}, section(0), end(0, 0), section(1), end(1, 0)}, ErrVersion},
		"a head that is none":      {[]BackupRecord{{BackupShard, []byte{1}}}, ErrDamaged},
	} {
		var out bytes.Buffer
		w := NewBackupWriter(&out, &BackupHeader{Shards: 2, Parts: 2})
		for _, r := range c.records {
			w.append(r)
			w.totals.Count(r.Kind)
			if r.Kind == BackupShard {
				w.totals.Shards++
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := readBackup(out.Bytes()); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
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
		m := New(Config{})
		commands := []Command{
			&Import{Step: ImportBegin}, &Import{Step: ImportRecords, Sequence: 1, Floor: 1 << 20, Records: records}, &Import{Step: ImportEnd, Total: uint64(len(records))},
		}
		if _, err := m.Apply(1, AppendEntry(nil, 5, [][]byte{AppendRequest(nil, &Request{Commands: commands})})); err != nil {
			t.Fatal(err)
		}
		if _, err := Restore(Config{}, bytes.NewReader(snapshotBytes(t, m))); err != nil {
			t.Errorf("what was imported cannot be restored from a snapshot: %v", err)
		}
	})
}

// FuzzImportRecords imports records of any bytes, as a checksum that is right by chance would let through.
func FuzzImportRecords(f *testing.F) {
	records, _, err := readBackup(backupBytes(f, populated(f)))
	if err != nil {
		f.Fatal(err)
	}
	var all []byte
	for i := range records {
		all = appendRecord(all, &records[i])
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := reader{b: raw}
		var records []BackupRecord
		for len(r.b) > 0 {
			records = append(records, r.record())
		}
		m := New(Config{})
		commands := []Command{&Import{Step: ImportBegin}, &Import{Step: ImportRecords, Sequence: 1, Floor: 1 << 20, Records: records}}
		if _, err := m.Apply(1, AppendEntry(nil, 5, [][]byte{AppendRequest(nil, &Request{Commands: commands})})); err != nil {
			t.Fatal(err)
		}
		if _, err := Restore(Config{}, bytes.NewReader(snapshotBytes(t, m))); err != nil {
			t.Errorf("what was imported cannot be restored from a snapshot: %v", err)
		}
	})
}

// TestNoBackup tells what never was a backup from one that was cut.
func TestNoBackup(t *testing.T) {
	for raw, want := range map[string]error{
		"": ErrIncomplete, backupMagic[:3]: ErrIncomplete, backupMagic: ErrIncomplete, "hi\n": ErrNoBackup, "a line of a log\n": ErrNoBackup, "BELFBK\x00\x09": ErrVersion,
	} {
		if _, err := NewBackupReader(strings.NewReader(raw)); !errors.Is(err, want) || errors.Is(err, ErrNoBackup) != errors.Is(want, ErrNoBackup) {
			t.Errorf("%q: %v, want %v", raw, err, want)
		}
	}
}
