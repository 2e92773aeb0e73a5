package fsm

import "time"

// KeysFormat is the format from which on jobs may have a key and puts may replace a job.
const KeysFormat Format = 4

// OnExisting says what a put does if its id belongs to a job already. fsm/DESIGN.md, Put, has the
// exact rules.
type OnExisting uint8

// The choices.
const (
	// ReturnExisting answers as the first put was answered if the content is the same, else with
	// JobExists.
	ReturnExisting OnExisting = 0
	// KeepExisting leaves the job as it is, whatever the content.
	KeepExisting OnExisting = 1
	// ReplaceExisting gives a job that nobody works on the content of this put, and its due time.
	ReplaceExisting OnExisting = 2
	// NextExisting is ReplaceExisting, except that a RESERVED job keeps its content: the put is stored
	// as its successor.
	NextExisting OnExisting = 3
)

// KeyRate bounds how often jobs of one key are handed out. It is a token bucket: one token every
// Per ÷ Count, and room for Burst of them. The zero value means no limit.
type KeyRate struct {
	Count uint32        `json:"count,omitempty"`
	Per   time.Duration `json:"perNanos,omitempty"`
	// Burst is how many tokens a full bucket has; 0 means Count.
	Burst uint32 `json:"burst,omitempty"`
}

// KeySettings are the settings of a queue that concern its keys. Each holds for one key, whatever
// the number of partitions: all jobs of a key are in one of them. The names in JSON are those of the
// catalog's records.
type KeySettings struct {
	// Concurrency bounds the live leases of a key; 0 means no limit. Ordered implies 1.
	Concurrency uint32  `json:"concurrency,omitempty"`
	Rate        KeyRate `json:"rate,omitzero"`
	// Ordered hands out the jobs of a key in the order in which they were put.
	Ordered bool `json:"ordered,omitempty"`
	// Fair lets keys take turns instead of handing out the first job of the queue.
	Fair bool `json:"fair,omitempty"`
	// HoldOnDead keeps the jobs of a key back while one of them is DEAD.
	HoldOnDead bool `json:"holdOnDead,omitempty"`
	// Refused refuses puts that have a key.
	Refused bool `json:"refused,omitempty"`
}

// Limit returns the live leases that a key may have, 0 for no limit.
func (s *KeySettings) Limit() uint32 {
	if s.Ordered {
		return 1
	}
	return s.Concurrency
}

// PauseKey stops or resumes handing out the jobs of a key. Codes: QueueNotFound, Quota.
type PauseKey struct {
	Queue, Key string
	// Resume takes the pause back.
	Resume bool
}

// PurgeKey removes held jobs of a key, as Purge does those of a queue. Results: Count, More. Code:
// QueueNotFound.
type PurgeKey struct {
	Queue, Key string
	States     StateSet
	// Max bounds the jobs of this command; 0 or more than StepMax means StepMax.
	Max uint32
}

// Kind returns KindPauseKey.
func (*PauseKey) Kind() Kind { return KindPauseKey }

// Kind returns KindPurgeKey.
func (*PurgeKey) Kind() Kind { return KindPurgeKey }

// KeyMemory is what a shard keeps of a key besides its jobs: only if something differs from the key
// of a job that was just put for the first time.
type KeyMemory struct {
	Queue, Key string
	// Serial identifies the memory in its shard.
	Serial uint64
	// RateAt is the time at which the token bucket is full again, 0 without a rate.
	RateAt Time
	// Round says that the key has a job to hand out, in a fair queue or one with a rate. It orders the
	// keys of a fair queue. 0 if the key has none.
	Round uint64
	// Paused keeps the jobs of the key back.
	Paused bool
}

// KeysQuery asks for the keys of a queue that have jobs or a pause, in no order that means anything.
// Reading: Keys, Scanned and Next. Counts are exact as of Clock; all else is seen from Now. Between two queries
// a key may come twice or be left out only if it had no jobs meanwhile. Nodes before format 4 do not
// know the query.
type KeysQuery struct {
	Queue string
	// Prefix is what the keys begin with.
	Prefix string
	// State, if not StateNone, asks for keys with jobs that are stored in this state.
	State State
	// From is the Next of the reading before, 0 at first. It means something to the same replica only,
	// and until that is restored.
	From uint32
	// Scan bounds the keys of all queues of the shard that are looked at, at most KeysScanMax.
	Scan int
}

// KeysScanMax bounds the keys that one KeysQuery looks at, so that it holds up the shard for about a
// millisecond at most.
const KeysScanMax = 4096

// Kind returns KindKeysQuery.
func (*KeysQuery) Kind() QueryKind { return KindKeysQuery }

// Key is what a reader sees of a key.
type Key struct {
	Name string
	// Delayed, Ready, Reserved and Dead count its jobs as they are stored.
	Delayed, Ready, Reserved, Dead uint32
	Paused                         bool
	// NextToken is when its bucket gets a token, 0 if it has one or needs none.
	NextToken Time
	// Blocked says what holds its READY jobs back.
	Blocked KeyBlock
	// HeadDue is the due time of its head: the job that is handed out next. 0 if it has none.
	HeadDue Time
}

// KeyBlock says why no READY job of a key may be handed out.
type KeyBlock uint8

// The reasons. If several apply, the first one of this order is given.
const (
	// NotBlocked: a job may be handed out, or none is READY.
	NotBlocked KeyBlock = 0
	// BlockedByPause: the key is paused.
	BlockedByPause KeyBlock = 1
	// BlockedByDead: a job of it is DEAD in a queue that holds keys on dead jobs.
	BlockedByDead KeyBlock = 2
	// BlockedByLimit: as many of its jobs are RESERVED as may be.
	BlockedByLimit KeyBlock = 3
	// BlockedByOrder: its head is DELAYED in an ordered queue.
	BlockedByOrder KeyBlock = 4
	// BlockedByRate: its bucket has no token.
	BlockedByRate KeyBlock = 5
	// KeyBlocks is the number of these values.
	KeyBlocks = 6
)

// PausedKeysMax bounds the paused keys of a shard.
const PausedKeysMax = 10_000

// Format returns the first format that has all of a request. Until a shard writes that format, its
// leader refuses the request.
func (r *Request) Format() Format {
	format := FirstFormat
	for _, c := range r.Commands {
		format = max(format, FormatOfCommand(c))
	}
	return format
}

// NewField returns the first field of a request that a format does not have, by its name in the API.
// It is empty if the format has all fields of the request, or lacks a command as a whole.
func (r *Request) NewField(format Format) string {
	for _, c := range r.Commands {
		if field := keyField(c); field != "" && format < KeysFormat {
			return field
		}
		if field := fifoField(c); field != "" && format < FIFOFormat {
			return field
		}
	}
	return ""
}

// FormatOfCommand returns the first format that has all of a command.
func FormatOfCommand(c Command) Format {
	switch {
	case fifoField(c) != "":
		return FIFOFormat
	case keyField(c) != "":
		return KeysFormat
	default:
		return c.Kind().Format()
	}
}

// keyField returns the name in the API of the first field of a command that KeysFormat added, empty if
// the command has none of them.
func keyField(c Command) string {
	switch c := c.(type) {
	case *Put:
		switch {
		case c.Key != "":
			return "key"
		case c.OnExisting != 0:
			return "onExisting"
		case c.MaxWait != 0:
			return "maxWait"
		case c.IfVersion != 0:
			return "ifVersion"
		}
	case *Cancel:
		if c.Key != "" {
			return "key"
		}
	case *Reschedule:
		if c.Key != "" {
			return "key"
		}
	case *Configure:
		if c.Settings.Keys != (KeySettings{}) {
			return "settings"
		}
	}
	return ""
}
