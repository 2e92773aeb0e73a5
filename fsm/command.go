package fsm

import "time"

// Kind is the byte that names a command in the log. Kinds are never reused.
type Kind uint8

// The kinds.
const (
	KindPut         Kind = 1
	KindReserve     Kind = 2
	KindAck         Kind = 3
	KindNack        Kind = 4
	KindRelease     Kind = 5
	KindExtend      Kind = 6
	KindCancel      Kind = 7
	KindReschedule  Kind = 8
	KindRedrive     Kind = 9
	KindPurge       Kind = 10
	KindConfigure   Kind = 11
	KindOpen        Kind = 12
	KindDeleteQueue Kind = 13
	KindExpire      Kind = 14
	KindLead        Kind = 15
	KindImport      Kind = 26
	KindResetClock  Kind = 16
	KindPauseKey    Kind = 17
	KindPurgeKey    Kind = 18

	KindPutSchedule    Kind = 19
	KindDeleteSchedule Kind = 20
	KindPauseSchedules Kind = 21
	KindFire           Kind = 22
	KindRunSchedule    Kind = 23

	KindKick       Kind = 24
	KindReserveJob Kind = 25
)

// Format returns the first format whose programs know the kind.
func (k Kind) Format() Format {
	switch {
	case k >= KindPauseKey && k <= KindRunSchedule:
		return KeysFormat
	case k == KindKick || k == KindReserveJob:
		return FIFOFormat
	default:
		return FirstFormat
	}
}

// Reserves reports whether commands of the kind put jobs under leases.
func (k Kind) Reserves() bool { return k == KindReserve || k == KindReserveJob }

// Command is one of the pointer types *Put … *ResetClock of this file, or one of other files of this
// package that has a Kind. Names, ids, headers and
// bodies of a command are not checked here: the edge refuses what is malformed, and the machine
// takes any bytes. Negative times and durations count as 0.
type Command interface{ Kind() Kind }

// Request is what one caller asks of one shard: commands of one log entry, in order, and a request
// id.
type Request struct {
	// Caller is the namespace that the request id belongs to.
	Caller string
	// ID makes the request safe to repeat for 5 minutes; empty means that it is not remembered.
	ID string
	// Client is the consumer that jobs note when they are leased. It is no part of what the request
	// asks for: a repeat may come from another address. Formats below 3 leave it out.
	Client   string
	Commands []Command
}

// Given says which options a Put carries; what is omitted stays omitted in the job.
type Given uint8

// The options. GivenDelay and GivenDueAt exclude each other; neither means due at once.
const (
	GivenDelay Given = 1 << iota
	GivenDueAt
	GivenTTR
	GivenPriority
	GivenMaxAttempts
	GivenRetryDelays
	GivenTTL
)

// Has reports whether all of the options in g2 are given.
func (g Given) Has(g2 Given) bool { return g&g2 == g2 }

// Header is one name and value carried with a job. Headers are sorted by name, and names are
// distinct.
type Header struct{ Name, Value string }

// Put creates or replaces a job, or answers as its first put was answered. Results: Created,
// Replaced, State, Partition, Serial, Due, Version. Codes: QueueChanged, Quota, JobExists,
// JobReserved, VersionChanged, KeyRefused, RateLimited, QueueFull.
type Put struct {
	Queue string
	// Partition of Partitions is how the caller routed: partition 0 of 1 for an ordinary queue.
	Partition, Partitions uint32

	// The small fields stand together, see TestPutIsSmall.

	// Again lets the put in although an earlier job of that id has ended.
	Again bool
	// OnExisting says what happens if a job has the id already.
	OnExisting OnExisting
	Given      Given
	// FIFO keeps the place of the job among the READY jobs of its priority, which is by the time of this
	// put: whatever its due time is, and however often it comes back.
	FIFO        bool
	MaxAttempts uint32
	// Priority is from PriorityMin to PriorityMax, lower ones leave first; see RankOf.
	Priority int64

	// ID is the client's; empty lets the machine generate one.
	ID string
	// MaxWait, if not 0, bounds the due time of a job that OnExisting replaces: it is at most so long
	// after the first put of the job.
	MaxWait time.Duration
	// IfVersion, if not 0, lets the put in only if a job of that id is held and has this version.
	IfVersion uint64
	// Key names the jobs that the queue's KeySettings hold together; empty means none.
	Key string

	Delay       time.Duration
	DueAt       Time
	TTR         time.Duration
	TTL         time.Duration
	RetryDelays []time.Duration
	Headers     []Header
	Body        []byte
}

// Reserve grants leases on up to Max ready jobs of the queues, tried in order. Result: Grants (may
// be empty), code OK.
type Reserve struct {
	Queues []string
	Max    uint32
	// TTR is the length of the lease; 0 means the job's own.
	TTR time.Duration
	// Bytes bounds the sum of the bytes of the granted jobs; the first job is granted whatever its
	// size. 0 means no bound.
	Bytes uint64
}

// Ref names one reservation of a job.
type Ref struct {
	Queue     string
	Partition uint32
	Serial    uint64
	Fence     uint64
}

// Ack ends a reserved job. An ack that is repeated is OK. Result: State, always Acked. Code:
// StaleLease.
type Ack struct{ Ref }

// Nack gives a job back as failed. Results: State, Due. Code: StaleLease.
type Nack struct {
	Ref
	// Delay counts only if DelayGiven; else the retry schedule decides.
	Delay      time.Duration
	DelayGiven bool
	// Error is kept as the job's last error unless empty.
	Error string
	// Dead sends the job to the dead letters at once.
	Dead bool
	// Priority replaces that of the job if PriorityGiven.
	PriorityGiven bool
	Priority      int64
}

// Release gives a job back without counting the attempt. Results: State, Due. Code: StaleLease.
type Release struct {
	Ref
	Delay time.Duration
	// Priority replaces that of the job if PriorityGiven.
	PriorityGiven bool
	Priority      int64
}

// Extend prolongs a lease and never shortens it. Result: Until. Code: StaleLease.
type Extend struct {
	Ref
	// TTR counts from now; 0 means the length that the lease last had.
	TTR time.Duration
}

// Cancel ends a job. Result: State, the one that it had or, if the command is refused, has. Codes:
// JobNotFound, JobReserved.
type Cancel struct {
	Queue, ID string
	// Key, if not empty, must be the key of the job.
	Key string
	// Force cancels a reserved job too; its lease becomes stale.
	Force bool
}

// Reschedule gives a delayed or ready job a new due time. Results: Due, and State, also if the
// command is refused. Codes: JobNotFound, JobReserved.
type Reschedule struct {
	Queue, ID string
	// Key, if not empty, must be the key of the job.
	Key string
	// Given is GivenDelay or GivenDueAt.
	Given Given
	Delay time.Duration
	DueAt Time
}

// Redrive makes dead jobs ready again. Result: Count. Code: QueueNotFound.
type Redrive struct {
	Queue string
	// IDs are the jobs; if there are none, up to Max jobs go.
	IDs []string
	Max uint32
}

// Purge removes held jobs. Results: Count, More. Code: QueueNotFound.
type Purge struct {
	Queue  string
	States StateSet
	// Max bounds the jobs of this command; 0 or more than StepMax means StepMax.
	Max uint32
}

// Configure sets the settings of a queue if Version is higher than the queue's. Codes:
// QueueChanged, Quota.
type Configure struct {
	Queue                 string
	Partition, Partitions uint32
	Version               uint64
	Settings              Settings
}

// Open creates a queue's partition ahead of its first put. Result: Created. Codes: QueueExists,
// Quota.
type Open struct {
	Queue                 string
	Partition, Partitions uint32
}

// DeleteQueue removes a queue with all that it holds, StepMax records at a time. Results: Count,
// More. Code: QueueNotFound.
type DeleteQueue struct{ Queue string }

// Expire carries out what is overdue in any queue. Results: Count, More. Only the pacer of the
// leader proposes it.
type Expire struct{}

// Lead is a leader's first command in its term; the entry's stamp is its first stamp.
type Lead struct {
	// Grace is how long, from the stamp on, earlier leases are held at least.
	Grace time.Duration
}

// ResetClock moves the shard's time back to To, or does nothing if To is not before it. Nothing
// else ever moves it back; an operator asks for it when the time is wrong. See DESIGN.md, Reset,
// for what becomes of the times that the shard holds.
type ResetClock struct {
	To Time
	// Grace is how much longer a lease may get besides its own length.
	Grace time.Duration
}

// Kind returns KindPut.
func (*Put) Kind() Kind { return KindPut }

// Kind returns KindReserve.
func (*Reserve) Kind() Kind { return KindReserve }

// Kind returns KindAck.
func (*Ack) Kind() Kind { return KindAck }

// Kind returns KindNack.
func (*Nack) Kind() Kind { return KindNack }

// Kind returns KindRelease.
func (*Release) Kind() Kind { return KindRelease }

// Kind returns KindExtend.
func (*Extend) Kind() Kind { return KindExtend }

// Kind returns KindCancel.
func (*Cancel) Kind() Kind { return KindCancel }

// Kind returns KindReschedule.
func (*Reschedule) Kind() Kind { return KindReschedule }

// Kind returns KindRedrive.
func (*Redrive) Kind() Kind { return KindRedrive }

// Kind returns KindPurge.
func (*Purge) Kind() Kind { return KindPurge }

// Kind returns KindConfigure.
func (*Configure) Kind() Kind { return KindConfigure }

// Kind returns KindOpen.
func (*Open) Kind() Kind { return KindOpen }

// Kind returns KindDeleteQueue.
func (*DeleteQueue) Kind() Kind { return KindDeleteQueue }

// Kind returns KindExpire.
func (*Expire) Kind() Kind { return KindExpire }

// Kind returns KindLead.
func (*Lead) Kind() Kind { return KindLead }

// Kind returns KindResetClock.
func (*ResetClock) Kind() Kind { return KindResetClock }

// CreatesQueue reports whether the put creates its queue if no queue has the name.
func (c *Put) CreatesQueue() bool { return c.Partition == 0 && c.Partitions == 1 }

// CarriesTrace reports whether a header is one of W3C Trace Context, which is no part of a job's
// content.
func CarriesTrace(h Header) bool { return h.Name == "traceparent" || h.Name == "tracestate" }
