package fsm

import "time"

// ImportStep is where in a restore an Import stands.
type ImportStep uint8

// The steps. A shard gets one ImportBegin, any number of ImportRecords, and one ImportEnd; each may
// be repeated.
const (
	// ImportBegin opens the restore: from then on the shard carries out nothing but Import, Open,
	// Configure and Lead.
	ImportBegin ImportStep = 1
	// ImportRecords brings a part of the records.
	ImportRecords ImportStep = 2
	// ImportEnd closes the restore, if as many records were imported as Total says. Then the shard
	// serves.
	ImportEnd ImportStep = 3
	// ImportAbandon takes back a restore that has imported nothing.
	ImportAbandon ImportStep = 4
)

// Import brings a backup into a shard that holds no queue. Results: Count, the Sequence that the
// shard waits for; More, unless the restore has ended; Serial, the number of records imported.
// Codes: QueueExists if the shard holds queues, or another restore, or the same one begun with
// other options, with More if that restore is open; Invalid for a step that does not fit.
type Import struct {
	// Restore names the restore: the id of the backup.
	Restore [16]byte
	Step    ImportStep
	// Sequence numbers the ImportRecords of a shard from 1. One that was carried out already changes
	// nothing, so that an unknown outcome may be repeated, and a restore that was interrupted goes on
	// where it stood.
	Sequence uint64
	// Floor is the highest serial of the backup, as far as it was read: of all of it with
	// ImportEnd. The ids and fences of the shard begin above it. A record with a serial or fence
	// above it is not imported, since the shard would give that number out again.
	Floor uint64
	// Overdue, with ImportBegin, says what becomes of delayed jobs that fell due after Since, when the
	// backup was taken, and before the restore began; Period is for ImportSpread.
	Overdue ImportOverdue
	Period  time.Duration
	Since   Time
	// Total, with ImportEnd, is the number of records that the shard must have imported.
	Total uint64
	// Records are queues, paused keys, schedules, jobs and tombstones of a backup, a queue before what it holds.
	// Keys may be paused beyond PausedKeysMax: a shard may get those of several.
	Records []BackupRecord
}

// ImportOverdue says what becomes of jobs that fell due between a backup and its restore.
type ImportOverdue uint8

// The policies.
const (
	// ImportByQueue asks the policy of each queue, as after an outage of that length.
	ImportByQueue ImportOverdue = 0
	// ImportFire makes them ready.
	ImportFire ImportOverdue = 1
	// ImportSpread spaces them over the period after the restore began, in their order.
	ImportSpread ImportOverdue = 2
	// ImportDrop ends them as expired.
	ImportDrop ImportOverdue = 3
)

// RestoreMark is what a shard remembers of the restore that filled it; zero if none did.
type RestoreMark struct {
	ID [16]byte
	// Next is the sequence number that the shard waits for, Imported the number of records
	// imported.
	Next, Imported uint64
	// Floor, once the restore has ended, is the serial from which the shard went on: leases up to
	// it were granted before the backup.
	Floor   uint64
	Overdue ImportOverdue
	Period  time.Duration
	// Since and Began bound the window (Since, Began] that Overdue is about.
	Since, Began Time
	Ended        bool
}

// Open reports whether a restore has begun and not ended.
func (r *RestoreMark) Open() bool { return r.Next > 0 && !r.Ended }

// Kind returns KindImport.
func (*Import) Kind() Kind { return KindImport }

// BackupKind is the byte that names a kind of record in a backup. Kinds are never reused.
type BackupKind byte

// The kinds.
const (
	BackupHead      BackupKind = 1 // see Header of fsm/backup
	BackupCatalog   BackupKind = 2 // text queue, uvarint partitions, settings
	BackupShard     BackupKind = 3 // see Section of fsm/backup
	BackupQueue     BackupKind = 4 // see codec.AppendQueueRecord
	BackupJob       BackupKind = 5 // text queue, and what a snapshot has of a held job
	BackupTombstone BackupKind = 6 // text queue, and what a snapshot has of a tombstone
	BackupShardEnd  BackupKind = 7 // uvarint shard, then the numbers of records, see Totals of fsm/backup
	BackupTail      BackupKind = 8 // see Totals of fsm/backup; 32 bytes SHA-256
	BackupNamespace BackupKind = 9 // text namespace, then its limits in the order of CatalogNamespace

	BackupSchedule BackupKind = 10 // text queue, and what a snapshot has of a schedule; from KeysFormat on
	BackupKey      BackupKind = 11 // text queue, text key that is paused; from KeysFormat on
)

// BackupRecord is one record of a backup as it is stored.
type BackupRecord struct {
	Kind BackupKind
	Data []byte
}
