package backup

import (
	"encoding/binary"
	"fmt"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// The backup of a cluster, and of a shard, is one stream:
//
//	7 bytes  magic
//	byte     Format: no record says what that format does not have
//	blocks   4 bytes length of the content, 8 bytes number of the block from 0, content, 4 bytes CRC32C
//	         of these three; little-endian
//
// A block has whole records: byte BackupKind, uvarint length, and that many bytes. The first record
// is the header. The last is the trailer, alone in its block, with the SHA-256 of all bytes before
// that block. Between them come the queues of the catalog and the quotas of namespaces, then each
// shard: its head, its queues, paused keys, schedules, jobs and tombstones, and its end. A queue
// comes before what it holds. Records name their queue and so mean the same in every shard.
const magic = "BELFBK\x00"

// Header says what a backup contains.
type Header struct {
	// ID is random; it names the restore.
	ID        [16]byte
	ClusterID string
	// Format is the one that the cluster spoke; 0 means FirstFormat. A cluster that does not speak it
	// yet cannot restore the backup.
	Format fsm.Format
	// Time is the wall clock of the node that made the backup, when it began.
	Time fsm.Time
	// Shards is the number of shards of the cluster, Parts how many of them are in the stream.
	Shards, Parts uint32
}

// Section is the head of a shard: the point in its history at which it was captured.
type Section struct {
	Shard uint32
	Index uint64
	// Clock and Serial are the shard's. No fence and no serial of a job is above Serial.
	Clock  fsm.Time
	Serial uint64
}

// Totals are the numbers of records of a backup. In the stream they are the uvarint numbers of
// queues, jobs and tombstones; the trailer has that of shards before them and the serial after them.
// The end is, for each other kind of record that there is, a uvarint BackupKind and the number.
type Totals struct {
	Shards, Queues, Jobs, Tombstones uint64
	// Keys counts the paused keys.
	Keys, Schedules uint64
	// Serial is the highest serial of all shards.
	Serial uint64
}

// CatalogQueue is a queue that was configured or created on purpose.
type CatalogQueue struct {
	Name       string
	Partitions uint32
	Settings   fsm.Settings
}

// CatalogNamespace is a namespace with a quota, which is what all its queues may have together. 0
// stands for no limit.
type CatalogNamespace struct {
	Name                           string
	MaxJobs, MaxBytes, MaxInFlight uint64
	// PutRate is in thousandths of a put per second.
	PutRate uint64
}

// HeaderRecord returns the first record of a backup.
func HeaderRecord(h *Header) fsm.BackupRecord {
	dst := codec.AppendText(append([]byte(nil), h.ID[:]...), h.ClusterID)
	for _, v := range [...]uint64{codec.Unsigned(h.Time), uint64(h.Shards), uint64(h.Parts)} {
		dst = binary.AppendUvarint(dst, v)
	}
	return fsm.BackupRecord{Kind: fsm.BackupHead, Data: dst}
}

// SectionRecord returns the head of a shard.
func SectionRecord(s *Section) fsm.BackupRecord {
	var dst []byte
	for _, v := range [...]uint64{uint64(s.Shard), s.Index, codec.Unsigned(s.Clock), s.Serial} {
		dst = binary.AppendUvarint(dst, v)
	}
	return fsm.BackupRecord{Kind: fsm.BackupShard, Data: dst}
}

// EndRecord returns the end of a shard with these totals.
func EndRecord(shard uint32, t *Totals) fsm.BackupRecord {
	dst := binary.AppendUvarint(nil, uint64(shard))
	for _, v := range [...]uint64{t.Queues, t.Jobs, t.Tombstones} {
		dst = binary.AppendUvarint(dst, v)
	}
	return fsm.BackupRecord{Kind: fsm.BackupShardEnd, Data: t.appendOthers(dst)}
}

// appendOthers appends the numbers of records that the first format does not have.
func (t *Totals) appendOthers(dst []byte) []byte {
	if t.Schedules > 0 {
		dst = binary.AppendUvarint(append(dst, byte(fsm.BackupSchedule)), t.Schedules)
	}
	if t.Keys > 0 {
		dst = binary.AppendUvarint(append(dst, byte(fsm.BackupKey)), t.Keys)
	}
	return dst
}

// readOthers reads what appendOthers appended, with so many bytes after it.
func (t *Totals) readOthers(r *codec.Reader, after int) {
	for r.Failed() == nil && r.Left() > after {
		kind, n := r.Uvarint(), r.Uvarint()
		count := &t.Keys
		if kind == uint64(fsm.BackupSchedule) {
			count = &t.Schedules
		}
		if kind != uint64(fsm.BackupKey) && kind != uint64(fsm.BackupSchedule) || *count != 0 || n == 0 {
			r.Damaged("totals of an unknown kind of record")
		}
		*count = n
	}
}

// KeyRecord returns the record of a paused key. It needs fsm.KeysFormat.
func KeyRecord(queue, key string) fsm.BackupRecord {
	return fsm.BackupRecord{Kind: fsm.BackupKey, Data: codec.AppendText(codec.AppendText(nil, queue), key)}
}

// CatalogRecord returns the record of a queue of the catalog. Settings of keys need KeysFormat.
func CatalogRecord(q *CatalogQueue) fsm.BackupRecord {
	dst := binary.AppendUvarint(codec.AppendText(nil, q.Name), uint64(q.Partitions))
	dst = codec.AppendKeySettings(codec.AppendSettings(dst, &q.Settings), &q.Settings.Keys)
	return fsm.BackupRecord{Kind: fsm.BackupCatalog, Data: dst}
}

// NamespaceRecord returns the record of a namespace with a quota.
func NamespaceRecord(n *CatalogNamespace) fsm.BackupRecord {
	dst := codec.AppendText(nil, n.Name)
	for _, v := range [...]uint64{n.MaxJobs, n.MaxBytes, n.MaxInFlight, n.PutRate} {
		dst = binary.AppendUvarint(dst, v)
	}
	return fsm.BackupRecord{Kind: fsm.BackupNamespace, Data: dst}
}

// parse reads a record of the given kind with f, to its end.
func parse(b *fsm.BackupRecord, kind fsm.BackupKind, f func(r *codec.Reader)) error {
	if b.Kind != kind {
		return fmt.Errorf("%w: a record of kind %d is read as one of kind %d", fsm.ErrDamaged, b.Kind, kind)
	}
	r := codec.NewReader(b.Data)
	f(&r)
	if err := r.CheckEnd(); err != nil {
		return fmt.Errorf("record of kind %d: %w", b.Kind, err)
	}
	return nil
}

// ParseHeader reads a BackupHead.
func ParseHeader(b *fsm.BackupRecord) (h Header, err error) {
	err = parse(b, fsm.BackupHead, func(r *codec.Reader) {
		h = Header{ID: r.Array16(), ClusterID: r.Text(), Time: r.Time(), Shards: r.Uint32(), Parts: r.Uint32()}
	})
	return h, err
}

// ParseSection reads a BackupShard.
func ParseSection(b *fsm.BackupRecord) (s Section, err error) {
	err = parse(b, fsm.BackupShard, func(r *codec.Reader) {
		s = Section{Shard: r.Uint32(), Index: r.Uvarint(), Clock: r.Time(), Serial: r.Uvarint()}
	})
	return s, err
}

// ParseEnd reads a BackupShardEnd and returns the number of the shard.
func ParseEnd(b *fsm.BackupRecord) (shard uint32, err error) {
	shard, _, err = parseEnd(b)
	return shard, err
}

// parseEnd reads a BackupShardEnd with its totals.
func parseEnd(b *fsm.BackupRecord) (shard uint32, t Totals, err error) {
	err = parse(b, fsm.BackupShardEnd, func(r *codec.Reader) {
		shard, t = r.Uint32(), Totals{Queues: r.Uvarint(), Jobs: r.Uvarint(), Tombstones: r.Uvarint()}
		t.readOthers(r, 0)
	})
	return shard, t, err
}

// ParseCatalog reads a BackupCatalog.
func ParseCatalog(b *fsm.BackupRecord) (q CatalogQueue, err error) {
	err = parse(b, fsm.BackupCatalog, func(r *codec.Reader) {
		q = CatalogQueue{Name: r.Text(), Partitions: r.Uint32(), Settings: r.Settings()}
		q.Settings.Keys = r.KeySettings()
	})
	return q, err
}

// ParseNamespace reads a BackupNamespace.
func ParseNamespace(b *fsm.BackupRecord) (n CatalogNamespace, err error) {
	err = parse(b, fsm.BackupNamespace, func(r *codec.Reader) {
		n = CatalogNamespace{
			Name: r.Text(), MaxJobs: r.Uvarint(), MaxBytes: r.Uvarint(), MaxInFlight: r.Uvarint(), PutRate: r.Uvarint(),
		}
	})
	return n, err
}

// ParseQueue reads a BackupQueue.
func ParseQueue(b *fsm.BackupRecord) (q fsm.QueueRecord, err error) {
	err = parse(b, fsm.BackupQueue, func(r *codec.Reader) { q = r.QueueRecord() })
	return q, err
}

// ParseJob reads a BackupJob, with the content hash of its put. Headers, retry delays and body
// alias the record; Partition is not known here.
func ParseJob(b *fsm.BackupRecord) (fsm.Job, [16]byte, error) {
	name, v, err := ParseHeld(b)
	v.Queue = name
	if v.Flags&codec.HeldHasTTL == 0 {
		v.TTL = 0
	}
	v.BodyBytes = uint32(len(v.Body))
	return v.Job, v.Content, err
}

// ParseHeld reads a BackupJob: the name of its queue, and the job.
func ParseHeld(b *fsm.BackupRecord) (name string, v codec.HeldJob, err error) {
	err = parse(b, fsm.BackupJob, func(r *codec.Reader) { name, v = r.Text(), r.Held() })
	return name, v, err
}

// FormatOf returns the first format that can express a record of a shard, and the queue that the
// record is about; "" for the records that every format has.
func FormatOf(b *fsm.BackupRecord) (queue string, format fsm.Format, err error) {
	switch b.Kind {
	case fsm.BackupQueue:
		q, err := ParseQueue(b)
		if q.Settings.Keys != (fsm.KeySettings{}) {
			return q.Name, max(q.Format, fsm.KeysFormat), err
		}
		return q.Name, q.Format, err
	case fsm.BackupJob:
		queue, v, err := ParseHeld(b)
		switch {
		case v.NeedsFIFO():
			return queue, fsm.FIFOFormat, err
		case v.NeedsKeys():
			return queue, fsm.KeysFormat, err
		case v.Flags&codec.HeldHasFields != 0:
			return queue, codec.FieldsFormat, err
		default:
			return queue, fsm.FirstFormat, err
		}
	case fsm.BackupTombstone:
		t, err := ParseTombstone(b)
		if t.Key != "" {
			return t.Queue, fsm.KeysFormat, err
		}
		return t.Queue, fsm.FirstFormat, err
	case fsm.BackupKey:
		queue, _, err := ParseKey(b)
		return queue, fsm.KeysFormat, err
	case fsm.BackupSchedule:
		s, err := ParseSchedule(b)
		if fsm.PutNeedsFIFO(&s.Job) {
			return s.Queue, fsm.FIFOFormat, err
		}
		return s.Queue, fsm.KeysFormat, err
	default:
		return "", fsm.FirstFormat, nil
	}
}

// ParseKey reads a BackupKey.
func ParseKey(b *fsm.BackupRecord) (queue, key string, err error) {
	err = parse(b, fsm.BackupKey, func(r *codec.Reader) { queue, key = r.Text(), r.Text() })
	return queue, key, err
}

// ParseSchedule reads a BackupSchedule. The body of its job aliases the record.
func ParseSchedule(b *fsm.BackupRecord) (s fsm.Schedule, err error) {
	err = parse(b, fsm.BackupSchedule, func(r *codec.Reader) {
		name := r.Text()
		s = r.Schedule()
		s.Queue = name
	})
	return s, err
}

// ParseTombstone reads a BackupTombstone.
func ParseTombstone(b *fsm.BackupRecord) (t fsm.Tombstone, err error) {
	err = parse(b, fsm.BackupTombstone, func(r *codec.Reader) {
		name := r.Text()
		t = r.Tombstone()
		t.Queue = name
	})
	return t, err
}

// OwnerOf returns the queue that a BackupQueue, or a record of what a queue holds, belongs to.
func OwnerOf(b *fsm.BackupRecord) (string, error) {
	r := codec.PlainReader(b.Data)
	name := r.Text()
	if r.Failed() != nil {
		return "", fmt.Errorf("record of kind %d: %w", b.Kind, r.Failed())
	}
	return name, nil
}
