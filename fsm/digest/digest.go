package digest

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// Job is a held job's part of the digest. content is the content hash of a job with a client-chosen
// id, else zero.
func Job(j *fsm.Job, content [16]byte) uint64 {
	return JobIn(JobPayload(j, content), &JobState{
		State: j.State, Due: j.Due, TTL: j.TTL, Attempt: j.Attempt, Fence: j.Fence, Until: j.Until,
		LeaseTTR: j.LeaseTTR, Redrives: j.Redrives, LastError: []byte(j.LastError), Died: j.Died,
		Leased: j.Leased, Client: Client(j.Client), Attempts: codec.AppendAttempts(nil, j.Attempts),
		Place: j.Place, Next: successor(j.Next), Uses: uses(j.Uses),
	})
}

func uses(u *fsm.Uses) (v fsm.Uses) {
	if u != nil {
		v = *u
	}
	return v
}

func successor(next *fsm.Successor) []byte {
	if next == nil {
		return nil
	}
	return codec.AppendSuccessor(nil, next)
}

// KeyMemory is a key's part of the digest besides its jobs.
func KeyMemory(k *fsm.KeyMemory) uint64 {
	return hashOfKey.text(k.Queue).bytes(codec.AppendKeyMemory(nil, k)).Sum()
}

// Schedule is a schedule's part of the digest.
func Schedule(s *fsm.Schedule) uint64 { return EncodedSchedule(s.Queue, codec.AppendSchedule(nil, s)) }

// EncodedSchedule is Schedule for one of the named queue that is encoded.
func EncodedSchedule(queue string, encoded []byte) uint64 {
	return hashOfSchedule.text(queue).bytes(encoded).Sum()
}

// Client is what the name of a consumer adds to the digest of the jobs that it holds; 0 if it has none.
func Client(name string) uint64 {
	if name == "" {
		return 0
	}
	return hashOfClient.text(name).Sum()
}

// JobPayload covers what never changes in the life of a job. It is computed once, at put, and kept
// in the payload.
func JobPayload(j *fsm.Job, content [16]byte) uint64 {
	h := hashOfJob.text(j.Queue).Word(j.Serial)
	if !j.Generated {
		h = h.text(j.ID).bytes(content[:])
	}
	h = h.Word(priority(j.Priority)).Word(uint64(j.Given)).time(j.FirstDue).time(j.Created)
	h = h.Word(uint64(j.TTR)).Word(uint64(j.MaxAttempts)).Word(uint64(len(j.RetryDelays)))
	for _, d := range j.RetryDelays {
		h = h.Word(uint64(d))
	}
	h = h.Word(uint64(len(j.Headers)))
	for _, hd := range j.Headers {
		h = h.text(hd.Name).text(hd.Value)
	}
	h = h.bytes(j.Body)
	if j.Key != "" || j.Version != 0 { // digests of earlier formats stay as they were
		h = h.text(j.Key).Word(j.Version)
	}
	if j.FIFO {
		h = h.Word(hashOfFIFO)
	}
	return h.Sum()
}

// priority is what a priority adds to the hash of a job: a byte in earlier formats, whose digests stay as
// they were, and else what no byte is.
func priority(p int64) uint64 {
	if fsm.IsWide(p) {
		return uint64(fsm.RankOf(p)) << 8
	}
	return uint64(codec.Narrow(p))
}

// JobState is what changes in a job's life.
type JobState struct {
	State     fsm.State
	Due       fsm.Time
	TTL       fsm.Time
	Attempt   uint32
	Fence     uint64
	Until     fsm.Time
	LeaseTTR  fsm.Duration
	Redrives  uint32
	LastError []byte
	Died      fsm.Time
	// Leased and Client, see the function of that name, are of the job's holder. Attempts are encoded.
	// All are empty before format 3.
	Leased   fsm.Time
	Client   uint64
	Attempts []byte
	// Place and Next, an encoded successor, are of few jobs.
	Place uint64
	Next  []byte
	// Uses are of FIFO jobs.
	Uses fsm.Uses
}

// JobIn is the part of the digest of a held job with this JobPayload in this state.
func JobIn(payload uint64, n *JobState) uint64 {
	h := Hasher(payload).Word(uint64(n.State)).time(n.Due).time(n.TTL)
	if n.Fence != 0 {
		h = h.Word(uint64(n.Attempt)).Word(n.Fence).time(n.Until).Word(uint64(n.LeaseTTR)).
			Word(uint64(n.Redrives)).bytes(n.LastError).time(n.Died)
	}
	if n.Leased != 0 || len(n.Attempts) > 0 { // digests of earlier formats stay as they were
		h = h.time(n.Leased).Word(n.Client).bytes(n.Attempts)
	}
	if n.Place != 0 || len(n.Next) > 0 {
		h = h.Word(n.Place).bytes(n.Next)
	}
	if n.Uses != (fsm.Uses{}) {
		for _, count := range n.Uses.List() {
			h = h.Word(uint64(count))
		}
	}
	return h.Sum()
}

// Tombstone is a tombstone's part of the digest.
func Tombstone(t *fsm.Tombstone) uint64 {
	h := hashOfTombstone.text(t.Queue).text(t.ID).Word(t.Serial).bytes(t.Content[:]).
		time(t.FirstDue).Word(uint64(t.State)).time(t.Ended)
	if t.Key != "" { // digests of earlier formats stay as they were
		h = h.text(t.Key)
	}
	return h.Sum()
}

// Finished is a finished lease's part of the digest; expiry is the time up to which it is
// remembered.
func Finished(serial, fence uint64, expiry fsm.Time) uint64 {
	return hashOfFinished.Word(serial).Word(fence).time(expiry).Sum()
}

// Answer is a remembered request's part of the digest.
func Answer(a *fsm.Answer) uint64 { return EncodedAnswer(a.At, codec.AppendAnswer(nil, a)) }

// EncodedAnswer is Answer for one that is encoded.
func EncodedAnswer(at fsm.Time, encoded []byte) uint64 {
	return hashOfAnswer.time(at).bytes(encoded).Sum()
}

// Queue is a queue's part of the digest.
func Queue(q *fsm.QueueRecord) uint64 {
	h := hashOfQueue.text(q.Name).Word(uint64(q.Partition)).Word(uint64(q.Partitions)).Word(q.CreateSeq).time(q.Created).
		Word(q.Version).bytes(codec.AppendSettings(nil, &q.Settings))
	for _, v := range q.Counts.List() {
		h = h.Word(v)
	}
	for _, v := range q.Counters.List() {
		h = h.Word(v)
	}
	if q.Format > fsm.FirstFormat { // digests of the first format stay as they were
		h = h.Word(uint64(q.Format))
	}
	if q.Settings.Keys != (fsm.KeySettings{}) {
		h = h.bytes(codec.AppendKeySettings(nil, &q.Settings.Keys))
	}
	return h.time(q.RateAt).time(q.OverdueFrom).time(q.OverdueTo).time(q.Forgotten).Sum()
}

// Scalars is the part of the digest that belongs to the shard as a whole.
func Scalars(s fsm.Scalars) uint64 {
	return hashOfScalars.time(s.Clock).Word(s.Serial).Word(s.QueuesCreated).time(s.LowWater).Sum()
}

// IDKey keys the id table. seed differs between processes, so that no client can choose
// ids that all fall into one bucket.
func IDKey(seed uint64, queue uint32, id string) uint32 {
	return uint32(hashOfID.Word(seed).Word(uint64(queue)).text(id).Sum())
}

// SerialKey keeps 64 consecutive serials in 64 consecutive buckets, so that a stream of puts walks
// through the table instead of missing the cache at each step. The order within is different in
// each group, lest serials with something in common, such as being even, crowd in a part of the
// buckets.
func SerialKey(serial uint64) uint32 {
	group := hashOfSerial.Word(serial >> 6).Sum()
	return uint32(group)&^63 | uint32(serial^group>>32)&63
}

// RequestKey keys the table of remembered requests.
func RequestKey(seed uint64, caller, id string) uint32 {
	return uint32(hashOfAnswer.Word(seed).text(caller).text(id).Sum())
}

// RestoreMark is the part of the digest that belongs to the restore; 0 if there was none.
func RestoreMark(r *fsm.RestoreMark) uint64 {
	if *r == (fsm.RestoreMark{}) {
		return 0
	}
	return hashOfRestore.bytes(codec.AppendRestoreMark(nil, r)).Sum()
}
