package fsm

// HashJob is a held job's part of the digest. content is the content hash of a job with a client-chosen id, else zero.
func HashJob(j *Job, content [16]byte) uint64 {
	return jobHash(payloadHash(j, content), &jobNow{
		State: j.State, Due: j.Due, TTL: j.TTL, Attempt: j.Attempt, Fence: j.Fence, Until: j.Until,
		LeaseTTR: j.LeaseTTR, Redrives: j.Redrives, LastError: j.LastError, Died: j.Died,
	})
}

// payloadHash covers what never changes in the life of a job. It is computed once, at put, and kept
// in the payload.
func payloadHash(j *Job, content [16]byte) uint64 {
	h := hashOfJob.text(j.Queue).word(j.Serial)
	if !j.Generated {
		h = h.text(j.ID).bytes(content[:])
	}
	h = h.word(uint64(uint8(j.Priority))).word(uint64(j.Given)).time(j.FirstDue).time(j.Created)
	h = h.word(uint64(j.TTR)).word(uint64(j.MaxAttempts)).word(uint64(len(j.RetryDelays)))
	for _, d := range j.RetryDelays {
		h = h.word(uint64(d))
	}
	h = h.word(uint64(len(j.Headers)))
	for _, hd := range j.Headers {
		h = h.text(hd.Name).text(hd.Value)
	}
	return h.bytes(j.Body).sum()
}

// jobNow is what changes in a job's life.
type jobNow struct {
	State     State
	Due       Time
	TTL       Time
	Attempt   uint32
	Fence     uint64
	Until     Time
	LeaseTTR  Duration
	Redrives  uint32
	LastError string
	Died      Time
}

func jobHash(payload uint64, n *jobNow) uint64 {
	h := hasher(payload).word(uint64(n.State)).time(n.Due).time(n.TTL)
	if n.Fence != 0 {
		h = h.word(uint64(n.Attempt)).word(n.Fence).time(n.Until).word(uint64(n.LeaseTTR)).
			word(uint64(n.Redrives)).text(n.LastError).time(n.Died)
	}
	return h.sum()
}

// HashTombstone is a tombstone's part of the digest.
func HashTombstone(t *Tombstone) uint64 {
	return hashOfTombstone.text(t.Queue).text(t.ID).word(t.Serial).bytes(t.Content[:]).
		time(t.FirstDue).word(uint64(t.State)).time(t.Ended).sum()
}

// HashFinished is a finished lease's part of the digest; expiry is the time up to which it is remembered.
func HashFinished(serial, fence uint64, expiry Time) uint64 {
	return hashOfFinished.word(serial).word(fence).time(expiry).sum()
}

// HashAnswer is a remembered request's part of the digest.
func HashAnswer(a *Answer) uint64 { return hashAnswerBytes(a.At, appendAnswer(nil, a)) }

func hashAnswerBytes(at Time, encoded []byte) uint64 {
	return hashOfAnswer.time(at).bytes(encoded).sum()
}

// HashQueue is a queue's part of the digest.
func HashQueue(q *QueueRecord) uint64 {
	h := hashOfQueue.text(q.Name).word(uint64(q.Partition)).word(uint64(q.Partitions)).word(q.CreateSeq).time(q.Created).
		word(q.Version).bytes(appendSettings(nil, &q.Settings))
	for _, v := range q.Counts.list() {
		h = h.word(v)
	}
	for _, v := range q.Counters.list() {
		h = h.word(v)
	}
	if q.Format > FirstFormat { // digests of the first format stay as they were
		h = h.word(uint64(q.Format))
	}
	return h.time(q.RateAt).time(q.OverdueFrom).time(q.OverdueTo).time(q.Forgotten).sum()
}

// HashScalars is the part of the digest that belongs to the shard as a whole.
func HashScalars(s Scalars) uint64 {
	return hashOfScalars.time(s.Clock).word(s.Serial).word(s.QueuesCreated).time(s.LowWater).sum()
}

func (c *Counts) list() [5]uint64 {
	return [...]uint64{c.Delayed, c.Ready, c.Reserved, c.Dead, c.Bytes}
}

func (c *Counts) set(v [5]uint64) {
	c.Delayed, c.Ready, c.Reserved, c.Dead, c.Bytes = v[0], v[1], v[2], v[3], v[4]
}

func (c *Counters) list() [14]uint64 {
	return [...]uint64{
		c.Put, c.Duplicate, c.Granted, c.Acked, c.Nacked, c.Released, c.Lapsed, c.Extended,
		c.Cancelled, c.Expired, c.Died, c.Redriven, c.Rescheduled, c.Purged,
	}
}

func (c *Counters) set(v [14]uint64) {
	c.Put, c.Duplicate, c.Granted, c.Acked, c.Nacked, c.Released, c.Lapsed, c.Extended = v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]
	c.Cancelled, c.Expired, c.Died, c.Redriven, c.Rescheduled, c.Purged = v[8], v[9], v[10], v[11], v[12], v[13]
}

// idHash keys the id table. seed differs between processes, so that no client can choose
// ids that all fall into one bucket.
func idHash(seed uint64, queue uint32, id string) uint32 {
	return uint32(hashOfID.word(seed).word(uint64(queue)).text(id).sum())
}

// serialHash keeps 64 consecutive serials in 64 consecutive buckets, so that a stream of puts walks through the table
// instead of missing the cache at each step. The order within is different in each group, lest serials with something in
// common, such as being even, crowd in a part of the buckets.
func serialHash(serial uint64) uint32 {
	group := hashOfSerial.word(serial >> 6).sum()
	return uint32(group)&^63 | uint32(serial^group>>32)&63
}

func requestKeyHash(seed uint64, caller, id string) uint32 {
	return uint32(hashOfAnswer.word(seed).text(caller).text(id).sum())
}
