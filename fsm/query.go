package fsm

// QueryKind is the byte that names a query, and what answers it, on the wire. Kinds are never
// reused.
type QueryKind uint8

// The kinds.
const (
	KindJobQuery    QueryKind = 1
	KindListQuery   QueryKind = 2
	KindQueueQuery  QueryKind = 3
	KindQueuesQuery QueryKind = 4
	KindRecallQuery QueryKind = 5
	KindHeldQuery   QueryKind = 6
	KindSearchQuery QueryKind = 7
	KindMinuteQuery QueryKind = 8
	KindKeysQuery   QueryKind = 9

	KindSchedulesQuery QueryKind = 10
	KindScheduleQuery  QueryKind = 11

	KindSerialQuery QueryKind = 12
	KindFirstQuery  QueryKind = 13
)

// Format returns the first format whose programs know the kind.
func (k QueryKind) Format() Format {
	switch {
	case k > KindScheduleQuery:
		return FIFOFormat
	case k > KindMinuteQuery:
		return KeysFormat
	case k >= KindSearchQuery:
		return 3
	default:
		return FirstFormat
	}
}

// Query is a question to a machine, as data: one of the pointer types *JobQuery, *ListQuery,
// *QueueQuery, *QueuesQuery, *RecallQuery, *HeldQuery, *SearchQuery, *MinuteQuery, *KeysQuery, *SchedulesQuery,
// *ScheduleQuery, *SerialQuery, *FirstQuery. As with commands, names and ids are not checked here.
type Query interface {
	// Kind returns the kind of the query.
	Kind() QueryKind
}

// JobQuery asks for a job by its id, chosen or generated. Reading: Jobs, empty if no such job is
// held; with Ended also one that has ended and is remembered, of which Queue, Partition, Serial,
// ID, State, FirstDue, Ended and Attempt are known.
type JobQuery struct {
	Queue, ID string
	// Key, if not empty, must be the key of the job. Nodes before format 4 leave it out.
	Key   string
	Ended bool
}

// QueueQuery asks for what is known of a queue. Reading: Queues, empty if it is unknown.
type QueueQuery struct{ Queue string }

// QueuesQuery asks for the first Max queues by name of those whose names begin with Prefix and come
// after After. Reading: Queues, and More.
type QueuesQuery struct {
	Prefix string
	// After is the name of the last queue seen; empty before the first.
	After string
	Max   int
}

// RecallQuery asks for the jobs that an earlier attempt at a request was granted and whose leases
// are live. Reading: Jobs, and Code. Code is Invalid if the request's id is remembered with other
// content, as Apply would answer. See RecallOf.
type RecallQuery struct {
	Caller, RequestID string
	// Content is the RequestHash of the request.
	Content [16]byte
}

// HeldQuery asks for the jobs of grants that this shard gave out, in that order. It leaves out a
// job that is not held under its grant any more, but not one whose lease has lapsed and is not
// settled. Reading: Jobs.
type HeldQuery struct{ Grants []Grant }

// SearchQuery asks for the jobs of a list that match. It looks at no more than Scan jobs of the
// list, and at fewer after bodies of ScanBytes, or if jobs change their state at the moment. Reading:
// as for a list, Scanned and Last. More says that jobs are left after Last, whether or not they match.
// Nodes before format 3 do not know it.
type SearchQuery struct {
	ListQuery
	Match Match
	// Scan must be above 0.
	Scan int
}

// ScanBytes is how many bytes of bodies a search looks at in one query, and the body after.
const ScanBytes = 1 << 20

// MinuteQuery asks for the activity of a queue in the last hour. Reading: Minutes and Since. Nodes
// before format 3 do not know it.
type MinuteQuery struct{ Queue string }

// SchedulesQuery asks for the first Max schedules of a queue by name, of those whose names begin with
// Prefix and come after After; or for those that have one of the Names. Reading: Schedules, whose jobs have
// no bodies, and More. Nodes before format 4 do not know it.
type SchedulesQuery struct {
	Queue, Prefix string
	// After is the name of the last schedule seen; empty before the first.
	After string
	Max   int
	// Names, if there are any, are looked up in their order, whatever the other fields say but Queue.
	Names []string
}

// ScheduleQuery asks for a schedule. Reading: Schedules, with the body of its job; empty if there is
// none of that name. Nodes before format 4 do not know it.
type ScheduleQuery struct{ Queue, Name string }

// Kind returns KindSchedulesQuery.
func (*SchedulesQuery) Kind() QueryKind { return KindSchedulesQuery }

// Kind returns KindScheduleQuery.
func (*ScheduleQuery) Kind() QueryKind { return KindScheduleQuery }

// Kind returns KindSearchQuery.
func (*SearchQuery) Kind() QueryKind { return KindSearchQuery }

// Kind returns KindMinuteQuery.
func (*MinuteQuery) Kind() QueryKind { return KindMinuteQuery }

// Kind returns KindJobQuery.
func (*JobQuery) Kind() QueryKind { return KindJobQuery }

// Kind returns KindListQuery.
func (*ListQuery) Kind() QueryKind { return KindListQuery }

// Kind returns KindQueueQuery.
func (*QueueQuery) Kind() QueryKind { return KindQueueQuery }

// Kind returns KindQueuesQuery.
func (*QueuesQuery) Kind() QueryKind { return KindQueuesQuery }

// Kind returns KindRecallQuery.
func (*RecallQuery) Kind() QueryKind { return KindRecallQuery }

// Kind returns KindHeldQuery.
func (*HeldQuery) Kind() QueryKind { return KindHeldQuery }

// Reading is the answer to a query. The comment of each query names the fields that it fills; the
// others are zero. A Reading shares no memory with the machine.
type Reading struct {
	// Kind is the kind of the query.
	Kind QueryKind
	Code Code
	// Clock is the machine's: counts and counters are exact as of then. Now, which is not before it,
	// is what all else is seen from.
	Clock, Now Time
	// Jobs of grants are RESERVED and have the Until of the grant. Their leases may have been
	// extended since.
	Jobs   []Job
	Queues []Queue
	// More reports that there are more after the last one.
	More bool
	// Scanned is how many jobs a search, or how many keys a KeysQuery looked at. Last is how far it came.
	Scanned uint64
	Last    Cursor
	// Minutes are those of the last hour in which something happened, oldest first. Nothing is known of
	// those before Since.
	Minutes []QueueMinute
	Since   Time
	// Schedules are sorted by name.
	Schedules []Schedule
	// Keys are those of a KeysQuery. Next is where the next one goes on, 0 after the last key.
	Keys []Key
	Next uint32
}

// Cursor is the position of a job in a listing; the zero Cursor is before the first.
type Cursor struct {
	Due    Time
	Serial uint64
}

// ListQuery asks for the jobs of a queue that are in a state, by (due, serial). Reading: Jobs,
// without their bodies, and More.
type ListQuery struct {
	Queue string
	State State
	// DueAfter and DueBefore bound the due time: after <= due < before; 0 means no bound.
	DueAfter, DueBefore Time
	// After is the cursor of the last job seen.
	After Cursor
	// Max is the most jobs to return; it must be above 0.
	Max int
}
