package fsm

import (
	"encoding/binary"
	"fmt"
)

// The backup of a cluster, and of a shard, is one stream:
//
//	7 bytes  backupMagic
//	byte     Format: no record says what that format does not have
//	blocks   4 bytes length of the content, 8 bytes number of the block from 0, content, 4 bytes CRC32C of these three; little-endian
//
// The content of the blocks, taken together, is records: byte BackupKind, uvarint length, so many
// bytes; none lies in two blocks. The first record is the header, the last the trailer, alone in
// its block, with the SHA-256 of all before that block. Between them come the queues of the catalog
// and the quotas of namespaces, then each shard: its head, its queues, jobs and tombstones, and its
// end. A queue comes before what it holds. Records name their queue and so mean the same in every
// shard.
const backupMagic = "BELFBK\x00"

// BackupKind is the byte that names a kind of record in a backup. Kinds are never reused.
type BackupKind byte

// The kinds.
const (
	BackupHead      BackupKind = 1 // see BackupHeader
	BackupCatalog   BackupKind = 2 // text queue, uvarint partitions, settings
	BackupShard     BackupKind = 3 // see BackupSection
	BackupQueue     BackupKind = 4 // see appendQueueRecord
	BackupJob       BackupKind = 5 // text queue, and what Snapshot.appendHeld writes
	BackupTombstone BackupKind = 6 // text queue, and what Snapshot.appendTomb writes
	BackupShardEnd  BackupKind = 7 // uvarint shard, then the numbers of queues, jobs, tombstones
	BackupTail      BackupKind = 8 // see BackupTotals; 32 bytes SHA-256
	BackupNamespace BackupKind = 9 // text namespace, then its limits in the order of CatalogNamespace
)

// BackupRecord is one record of a backup as it is stored.
type BackupRecord struct {
	Kind BackupKind
	Data []byte
}

// BackupHeader says what a backup is of.
type BackupHeader struct {
	// ID is random; it names the restore.
	ID        [16]byte
	ClusterID string
	// Format is the one that the cluster spoke; 0 means FirstFormat. A cluster that does not speak it yet cannot restore the backup.
	Format Format
	// Time is the wall clock of the node that made the backup, when it began.
	Time Time
	// Shards is the number of shards of the cluster, Parts how many of them are in the stream.
	Shards, Parts uint32
}

// BackupSection is the head of a shard: the point in its history at which it was captured.
type BackupSection struct {
	Shard uint32
	Index uint64
	// Clock and Serial are the shard's. No fence and no serial of a job is above Serial.
	Clock  Time
	Serial uint64
}

// BackupTotals are the numbers of records of a backup.
type BackupTotals struct {
	Shards, Queues, Jobs, Tombstones uint64
	// Serial is the highest serial of all shards.
	Serial uint64
}

// CatalogQueue is a queue that was configured or created on purpose.
type CatalogQueue struct {
	Name       string
	Partitions uint32
	Settings   Settings
}

// CatalogNamespace is a namespace with a quota, which is what all its queues may have together. 0 stands for no limit.
type CatalogNamespace struct {
	Name                           string
	MaxJobs, MaxBytes, MaxInFlight uint64
	// PutRate is in thousandths of a put per second.
	PutRate uint64
}

func appendRecord(dst []byte, r *BackupRecord) []byte {
	dst = binary.AppendUvarint(append(dst, byte(r.Kind)), uint64(len(r.Data)))
	return append(dst, r.Data...)
}

func (r *reader) record() BackupRecord {
	kind := BackupKind(r.byte())
	return BackupRecord{Kind: kind, Data: r.bytes()}
}

// HeaderRecord returns the first record of a backup.
func HeaderRecord(h *BackupHeader) BackupRecord {
	dst := appendText(append([]byte(nil), h.ID[:]...), h.ClusterID)
	for _, v := range [...]uint64{unsigned(h.Time), uint64(h.Shards), uint64(h.Parts)} {
		dst = binary.AppendUvarint(dst, v)
	}
	return BackupRecord{BackupHead, dst}
}

// SectionRecord returns the head of a shard.
func SectionRecord(s *BackupSection) BackupRecord {
	var dst []byte
	for _, v := range [...]uint64{uint64(s.Shard), s.Index, unsigned(s.Clock), s.Serial} {
		dst = binary.AppendUvarint(dst, v)
	}
	return BackupRecord{BackupShard, dst}
}

// EndRecord returns the end of a shard with these totals.
func EndRecord(shard uint32, t *BackupTotals) BackupRecord {
	dst := binary.AppendUvarint(nil, uint64(shard))
	for _, v := range [...]uint64{t.Queues, t.Jobs, t.Tombstones} {
		dst = binary.AppendUvarint(dst, v)
	}
	return BackupRecord{BackupShardEnd, dst}
}

// CatalogRecord returns the record of a queue of the catalog.
func CatalogRecord(q *CatalogQueue) BackupRecord {
	dst := binary.AppendUvarint(appendText(nil, q.Name), uint64(q.Partitions))
	return BackupRecord{BackupCatalog, appendSettings(dst, &q.Settings)}
}

// NamespaceRecord returns the record of a namespace with a quota.
func NamespaceRecord(n *CatalogNamespace) BackupRecord {
	dst := appendText(nil, n.Name)
	for _, v := range [...]uint64{n.MaxJobs, n.MaxBytes, n.MaxInFlight, n.PutRate} {
		dst = binary.AppendUvarint(dst, v)
	}
	return BackupRecord{BackupNamespace, dst}
}

// parse reads a record of the given kind with f, to its end.
func (b *BackupRecord) parse(kind BackupKind, f func(r *reader)) error {
	if b.Kind != kind {
		return fmt.Errorf("%w: a record of kind %d is read as one of kind %d", ErrDamaged, b.Kind, kind)
	}
	r := newReader(b.Data)
	f(&r)
	if err := r.checkEnd(); err != nil {
		return fmt.Errorf("record of kind %d: %w", b.Kind, err)
	}
	return nil
}

// Header reads a BackupHead.
func (b *BackupRecord) Header() (h BackupHeader, err error) {
	err = b.parse(BackupHead, func(r *reader) {
		h = BackupHeader{ID: r.array16(), ClusterID: r.text(), Time: r.time(), Shards: r.uint32(), Parts: r.uint32()}
	})
	return h, err
}

// Section reads a BackupShard.
func (b *BackupRecord) Section() (s BackupSection, err error) {
	err = b.parse(BackupShard, func(r *reader) {
		s = BackupSection{Shard: r.uint32(), Index: r.uvarint(), Clock: r.time(), Serial: r.uvarint()}
	})
	return s, err
}

// End reads a BackupShardEnd and returns the number of the shard.
func (b *BackupRecord) End() (shard uint32, err error) {
	shard, _, err = b.parseEnd()
	return shard, err
}

// parseEnd reads a BackupShardEnd with its totals.
func (b *BackupRecord) parseEnd() (shard uint32, t BackupTotals, err error) {
	err = b.parse(BackupShardEnd, func(r *reader) {
		shard, t = r.uint32(), BackupTotals{Queues: r.uvarint(), Jobs: r.uvarint(), Tombstones: r.uvarint()}
	})
	return shard, t, err
}

// Catalog reads a BackupCatalog.
func (b *BackupRecord) Catalog() (q CatalogQueue, err error) {
	err = b.parse(BackupCatalog, func(r *reader) {
		q = CatalogQueue{Name: r.text(), Partitions: r.uint32(), Settings: r.settings()}
	})
	return q, err
}

// Namespace reads a BackupNamespace.
func (b *BackupRecord) Namespace() (n CatalogNamespace, err error) {
	err = b.parse(BackupNamespace, func(r *reader) {
		n = CatalogNamespace{Name: r.text(), MaxJobs: r.uvarint(), MaxBytes: r.uvarint(), MaxInFlight: r.uvarint(), PutRate: r.uvarint()}
	})
	return n, err
}

// Queue reads a BackupQueue.
func (b *BackupRecord) Queue() (q QueueRecord, err error) {
	err = b.parse(BackupQueue, func(r *reader) { q = r.queueRecord() })
	return q, err
}

// Job reads a BackupJob, with the content hash of its put. Headers, retry delays and body alias the record; Partition is not known here.
func (b *BackupRecord) Job() (Job, [16]byte, error) {
	name, v, err := b.held()
	v.Queue = name
	if v.flags&slotHasTTL == 0 {
		v.TTL = 0
	}
	v.BodyBytes = uint32(len(v.Body))
	return v.Job, v.content, err
}

func (b *BackupRecord) held() (name string, v heldJob, err error) {
	err = b.parse(BackupJob, func(r *reader) { name, v = r.text(), r.held() })
	return name, v, err
}

// Tombstone reads a BackupTombstone.
func (b *BackupRecord) Tombstone() (t Tombstone, err error) {
	err = b.parse(BackupTombstone, func(r *reader) {
		name := r.text()
		t = r.tombstone()
		t.Queue = name
	})
	return t, err
}

// Owner returns the queue that a BackupQueue, BackupJob or BackupTombstone belongs to.
func (b *BackupRecord) Owner() (string, error) {
	r := reader{b: b.Data}
	name := r.text()
	if r.err != nil {
		return "", fmt.Errorf("record of kind %d: %w", b.Kind, r.err)
	}
	return name, nil
}

// Export emits the shard as records of a backup: head, queues, jobs, tombstones, end. It leaves out
// a queue for which keep returns false, with all that the queue holds. A record is valid until emit
// returns. The first error of emit ends the export. Remembered requests and finished leases are
// left out: they end within minutes, and mean nothing in another cluster. Export may run beside
// Apply, as WriteTo may.
func (s *Snapshot) Export(shard uint32, keep func(*QueueRecord) bool, emit func(BackupRecord) error) error {
	head := BackupSection{Shard: shard, Index: s.applied, Clock: s.scalars.Clock, Serial: s.scalars.Serial}
	if err := emit(SectionRecord(&head)); err != nil {
		return err
	}
	x := exporter{emit: emit, kept: map[uint64]string{}}
	for _, page := range s.queues {
		for i := range page {
			if q := &page[i]; q.CreateSeq != 0 && keep(q) {
				x.kept[q.CreateSeq] = q.Name
				x.totals.Queues++
				x.send(BackupQueue, appendQueueRecord(x.room[:0], q))
			}
		}
	}
	for _, page := range s.slots {
		for i := range page {
			if j := &page[i]; j.serial != 0 && x.beginRecord(s.queue(j.queue).CreateSeq) {
				x.totals.Jobs++
				x.send(BackupJob, s.appendHeld(x.room, j))
			}
		}
	}
	for _, page := range s.tombs {
		for i := range page {
			if t := &page[i]; t.serial != 0 && x.beginRecord(s.queue(t.queue).CreateSeq) {
				x.totals.Tombstones++
				x.send(BackupTombstone, s.appendTomb(x.room, t))
			}
		}
	}
	if x.err == nil {
		x.err = emit(EndRecord(shard, &x.totals))
	}
	return x.err
}

// exporter emits records until the first error.
type exporter struct {
	emit   func(BackupRecord) error
	kept   map[uint64]string // the names of exported queues, by CreateSeq
	room   []byte
	totals BackupTotals
	err    error
}

// beginRecord starts a record of the queue with the given CreateSeq. It reports false if that queue
// is left out, or after an error.
func (x *exporter) beginRecord(createSeq uint64) bool {
	name, kept := x.kept[createSeq]
	if x.err != nil || !kept {
		return false
	}
	x.room = appendText(x.room[:0], name)
	return true
}

func (x *exporter) send(kind BackupKind, data []byte) {
	x.room = data
	if x.err == nil {
		x.err = x.emit(BackupRecord{kind, data})
	}
}
