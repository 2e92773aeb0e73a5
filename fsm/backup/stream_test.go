package backup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// TestBackupOfNamespace: the quota of a namespace is stored in these bytes, which programs to come
// read as well.
func TestBackupOfNamespace(t *testing.T) {
	want := CatalogNamespace{Name: "shop", MaxJobs: 1, MaxBytes: 1 << 60, MaxInFlight: 300, PutRate: 2_000_000}
	r := NamespaceRecord(&want)
	if got := fmt.Sprintf("%d %x", r.Kind, r.Data); got != "9 0473686f70018080808080808080"+"10ac0280897a" {
		t.Errorf("stored as %s", got)
	}
	if got, err := ParseNamespace(&r); err != nil || got != want {
		t.Errorf("%+v: %v, want %+v", got, err, want)
	}
	if _, err := ParseCatalog(&r); !errors.Is(err, fsm.ErrDamaged) {
		t.Errorf("read as a queue: %v", err)
	}
	r.Data = append(r.Data, 0)
	if _, err := ParseNamespace(&r); !errors.Is(err, fsm.ErrDamaged) {
		t.Errorf("a byte too many: %v", err)
	}
}

// TestBackupOfKeySettings: the settings of keys are the end of a queue of the catalog, in these bytes.
// Without any, the record is what it was before they existed.
func TestBackupOfKeySettings(t *testing.T) {
	want := CatalogQueue{Name: "q", Partitions: 2, Settings: fsm.Settings{MaxJobs: 7, Keys: fsm.KeySettings{
		Concurrency: 300, Rate: fsm.KeyRate{Count: 10, Per: time.Second, Burst: 20}, Ordered: true, Fair: true,
		HoldOnDead: true, Refused: true,
	}}}
	r := CatalogRecord(&want)
	without := want
	without.Settings.Keys = fsm.KeySettings{}
	bare := CatalogRecord(&without)
	tail, ok := bytes.CutPrefix(r.Data, bare.Data)
	if got := fmt.Sprintf("%x", tail); !ok || got != "0102ac02"+"02070a8094ebdc0314"+"0300"+"0400"+"0500"+"0600" {
		t.Errorf("stored as %x, without %x", r.Data, bare.Data)
	}
	for _, q := range []CatalogQueue{want, without} {
		r := CatalogRecord(&q)
		if got, err := ParseCatalog(&r); err != nil || !reflect.DeepEqual(got, q) {
			t.Errorf("%+v: %v, want %+v", got, err, q)
		}
	}
	r.Data = append(r.Data, 99, 0)
	if _, err := ParseCatalog(&r); !errors.Is(err, fsm.ErrVersion) {
		t.Errorf("a setting of a later format: %v", err)
	}
}

// TestBackupOfPausedKey: a paused key is stored in these bytes, and the totals of a shard and of the
// backup count it in theirs.
func TestBackupOfPausedKey(t *testing.T) {
	key := KeyRecord("q", "k")
	end := EndRecord(1, &Totals{Queues: 2, Keys: 300})
	if got := fmt.Sprintf("%d %x, end %x", key.Kind, key.Data, end.Data); got != "11 0171016b, end 010200000bac02" {
		t.Errorf("stored as %s", got)
	}
	if queue, k, err := ParseKey(&key); err != nil || queue != "q" || k != "k" {
		t.Errorf("read as %q, %q, %v", queue, k, err)
	}
	if queue, err := OwnerOf(&key); err != nil || queue != "q" {
		t.Errorf("it belongs to %q, %v", queue, err)
	}
	if queue, format, err := FormatOf(&key); err != nil || queue != "q" || format != fsm.KeysFormat {
		t.Errorf("it needs format %d, queue %q, %v", format, queue, err)
	}
	records := []fsm.BackupRecord{SectionRecord(&Section{}),
		{Kind: fsm.BackupQueue, Data: codec.AppendQueueRecord(nil, &fsm.QueueRecord{Name: "q"})}, key,
		EndRecord(0, &Totals{Queues: 1, Keys: 1})}
	var out bytes.Buffer
	w := NewWriter(&out, &Header{Format: fsm.KeysFormat, Shards: 1, Parts: 1})
	for _, r := range records {
		if err := w.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	read, totals, err := readBackup(out.Bytes())
	if want := (Totals{Shards: 1, Queues: 1, Keys: 1}); err != nil || totals != want || w.Totals() != want ||
		!reflect.DeepEqual(read, records) {
		t.Errorf("%+v: %+v, %v, want %+v", read, totals, err, want)
	}
	for name, tail := range map[string]string{
		"none": "\x0b\x00", "twice": "\x0b\x01\x0b\x01", "another kind": "\x0c\x01", "half": "\x0b",
	} {
		r := fsm.BackupRecord{Kind: fsm.BackupShardEnd, Data: []byte("\x00\x00\x00\x00" + tail)}
		if _, err := ParseEnd(&r); !errors.Is(err, fsm.ErrDamaged) {
			t.Errorf("an end with %s: %v", name, err)
		}
	}
}

// TestBackupRefusesMisplaced: what no writer writes is refused although every checksum is right.
func TestBackupRefusesMisplaced(t *testing.T) {
	section := func(n uint32) fsm.BackupRecord { return SectionRecord(&Section{Shard: n}) }
	end := func(shard, queues byte) fsm.BackupRecord {
		return fsm.BackupRecord{Kind: fsm.BackupShardEnd, Data: []byte{shard, queues, 0, 0}}
	}
	queue := fsm.BackupRecord{Kind: fsm.BackupQueue, Data: codec.AppendQueueRecord(nil, &fsm.QueueRecord{Name: "q"})}
	catalog := CatalogRecord(&CatalogQueue{Name: "q", Partitions: 1})
	quota := NamespaceRecord(&CatalogNamespace{Name: "shop", MaxJobs: 1})
	for name, c := range map[string]struct {
		records []fsm.BackupRecord
		want    error
	}{
		"sound":                    {[]fsm.BackupRecord{catalog, section(0), queue, end(0, 1), section(1), end(1, 0)}, nil},
		"a shard is missing":       {[]fsm.BackupRecord{section(0), end(0, 0)}, fsm.ErrDamaged},
		"a shard twice":            {[]fsm.BackupRecord{section(0), end(0, 0), section(0), end(0, 0)}, fsm.ErrDamaged},
		"a shard that there isn't": {[]fsm.BackupRecord{section(0), end(0, 0), section(2), end(2, 0)}, fsm.ErrDamaged},
		"a shard within a shard":   {[]fsm.BackupRecord{section(0), section(1), end(1, 0)}, fsm.ErrDamaged},
		"no end of a shard":        {[]fsm.BackupRecord{section(0), end(0, 0), section(1)}, fsm.ErrDamaged},
		"a queue in no shard":      {[]fsm.BackupRecord{queue, section(0), end(0, 0), section(1), end(1, 0)}, fsm.ErrDamaged},
		"an end that miscounts":    {[]fsm.BackupRecord{section(0), queue, end(0, 2), section(1), end(1, 0)}, fsm.ErrDamaged},
		"the catalog late": {[]fsm.BackupRecord{section(0), end(0, 0), catalog, section(1), end(1, 0)},
			fsm.ErrDamaged},
		"a quota":            {[]fsm.BackupRecord{catalog, quota, section(0), end(0, 0), section(1), end(1, 0)}, nil},
		"a quota late":       {[]fsm.BackupRecord{section(0), end(0, 0), section(1), end(1, 0), quota}, fsm.ErrDamaged},
		"a quota in a shard": {[]fsm.BackupRecord{section(0), quota, end(0, 0), section(1), end(1, 0)}, fsm.ErrDamaged},
		"a key before its format": {[]fsm.BackupRecord{section(0), queue, KeyRecord("q", "k"),
			EndRecord(0, &Totals{Queues: 1, Keys: 1}), section(1), end(1, 0)}, fsm.ErrDamaged},
		"an unknown kind":     {[]fsm.BackupRecord{{Kind: 99}, section(0), end(0, 0), section(1), end(1, 0)}, fsm.ErrVersion},
		"a head that is none": {[]fsm.BackupRecord{{Kind: fsm.BackupShard, Data: []byte{1}}}, fsm.ErrDamaged},
	} {
		var out bytes.Buffer
		w := NewWriter(&out, &Header{Shards: 2, Parts: 2})
		for _, r := range c.records {
			w.append(r)
			w.totals.Count(r.Kind)
			if r.Kind == fsm.BackupShard {
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

// TestNoBackup tells what never was a backup from one that was cut.
func TestNoBackup(t *testing.T) {
	for raw, want := range map[string]error{
		"": ErrIncomplete, magic[:3]: ErrIncomplete, magic: ErrIncomplete, "hi\n": ErrNoBackup,
		"a line of a log\n": ErrNoBackup, "BELFBK\x00\x09": fsm.ErrVersion,
	} {
		if _, err := NewReader(strings.NewReader(raw)); !errors.Is(err, want) ||
			errors.Is(err, ErrNoBackup) != errors.Is(want, ErrNoBackup) {
			t.Errorf("%q: %v, want %v", raw, err, want)
		}
	}
}

// readBackup reads a backup to its end.
func readBackup(raw []byte) (records []fsm.BackupRecord, totals Totals, err error) {
	r, err := NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, Totals{}, err
	}
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return records, r.Totals(), nil
		}
		if err != nil {
			return nil, Totals{}, err
		}
		records = append(records, fsm.BackupRecord{Kind: record.Kind, Data: bytes.Clone(record.Data)})
	}
}
