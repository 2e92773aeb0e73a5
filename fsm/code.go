package fsm

// Code is the business outcome of a command. Every code but OK means that the command changed
// nothing. The numbers are stored in remembered answers: they are never reused.
type Code uint8

// The codes, with the wire reason of each.
const (
	// OK: the command was carried out, or had been carried out before and its first answer is
	// repeated.
	OK Code = 0
	// Invalid (INVALID): a request id came again with other content.
	Invalid Code = 1
	// JobExists (JOB_EXISTS): the id is taken by a job with other content.
	JobExists Code = 2
	// JobNotFound (JOB_NOT_FOUND): no such job is held; Result.State is how it ended, if that is
	// remembered.
	JobNotFound Code = 3
	// JobReserved (JOB_RESERVED): the job is under a lease and the command does not apply to such a
	// job.
	JobReserved Code = 4
	// StaleLease (STALE_LEASE): the lease has lapsed, was given back, or never was.
	StaleLease Code = 5
	// QueueExists (QUEUE_EXISTS): the queue is there already, with another number of partitions.
	QueueExists Code = 6
	// QueueNotFound (QUEUE_NOT_FOUND): no such queue.
	QueueNotFound Code = 7
	// QueueChanged (QUEUE_CHANGED): the caller routed by another partition count than the queue has.
	QueueChanged Code = 8
	// QueueFull (QUEUE_FULL): maxJobs or maxBytes is reached.
	QueueFull Code = 9
	// RateLimited (RATE_LIMITED): putsPerSecond is used up; Result.Wait says for how long.
	RateLimited Code = 10
	// RequestExpired (REQUEST_EXPIRED): the request id is older than what is remembered; whether it
	// was applied earlier is unknown.
	RequestExpired Code = 11
	// Quota (QUOTA): the shard holds as many queues, or paused keys, as it may.
	Quota Code = 12
	// Restoring (OVERLOADED): a restore of the shard has begun and has not ended; see Import.
	Restoring Code = 13
	// VersionChanged (VERSION_CHANGED): no job of that id is held, or the schedule is not there, in the
	// version that the command named.
	VersionChanged Code = 14
	// KeyRefused (INVALID): the queue takes no jobs with a key.
	KeyRefused Code = 15
	// ScheduleNotFound (SCHEDULE_NOT_FOUND): the queue has no schedule of that name.
	ScheduleNotFound Code = 16
	// LastCode is the highest code of this version.
	LastCode = ScheduleNotFound
)

// State is where a job is in its life. The numbers are part of the snapshot format.
type State uint8

// The states. The first four are held, the last three ended.
const (
	StateNone State = 0
	Delayed   State = 1
	Ready     State = 2
	Reserved  State = 3
	Dead      State = 4
	Acked     State = 5
	Cancelled State = 6
	Expired   State = 7
)

// Held reports whether a job in this state still has its body.
func (s State) Held() bool { return s >= Delayed && s <= Dead }

// StateSet is a set of held states, used by Purge.
type StateSet uint8

// Set returns the set of the given states.
func Set(states ...State) StateSet {
	var set StateSet
	for _, s := range states {
		set |= 1 << s
	}
	return set
}

// Has reports whether s is in the set.
func (set StateSet) Has(s State) bool { return set&(1<<s) != 0 }
