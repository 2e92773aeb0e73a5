package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/schedules"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/founding"
	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/propose"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// Config configures a node. It is read once, by Open. Zero values mean the defaults named at the
// fields.
type Config struct {
	// Dir is the data directory; it is made if it does not exist.
	Dir string
	// Lock is the caller's lock of Dir, for a caller that works on Dir before Open or after Close.
	// The caller holds it until all of that has ended, and releases it. If Lock is nil, the node
	// locks Dir from Open to Close.
	Lock *disk.DirLock
	// Name is the node's name among its cluster's nodes, 1 to 64 characters of [A-Za-z0-9_-]. It
	// defaults to the name with which the data directory was made, else to "node". A name other
	// than the directory's is refused.
	Name string
	// Incarnation is the other half of the server id of a new data directory, from
	// identity.NewIncarnation.
	// Open makes one if it is empty. An existing data directory keeps its own.
	Incarnation string
	// Shards is the number of shards, 1 to 1,024. It defaults to the number with which the data
	// directory was made, else to 6. A number other than the directory's is refused.
	Shards int
	// Machine configures every shard's state machine. It must be equal on all nodes of a cluster.
	Machine fsm.Config
	// FS is the file system of Dir; defaults to the operating system's. Another one must belong to
	// this process alone.
	FS disk.FS
	// SegmentBytes is the size of a log file of the store "wal"; defaults to 16 MiB.
	SegmentBytes int
	// Applied, if not nil, receives each entry of a shard that was applied here, in order. The
	// goroutine that applies entries calls it. It is for tests.
	Applied func(AppliedEntry)
	// Store is the kind of log store of a new data directory: "wal" or "bolt"; defaults to "wal".
	Store string

	// Join is the id of the cluster that a new data directory joins. The node then founds no group
	// and waits to be added. If Join is empty, a new data directory becomes a cluster of its own.
	// An existing data directory keeps its cluster.
	Join string
	// Founding is set if this node, with a new data directory, founds a cluster together with
	// others. The cluster has the id Join, or a new one if Join is empty. Incarnation must be the
	// one with which the founding names this node. An existing data directory keeps its founding.
	Founding *Founding
	// Peers is the listener for the other nodes of the cluster; the node closes it. Nil means that
	// this node can have no peers. On a ProvenConn, from Peers or from Dial, a peer must be the
	// node whose name it proved.
	Peers net.Listener
	// Resolve returns the addresses at which the node with the given server id may listen for its
	// peers: at least one, the likeliest first. They are tried in this order. If Resolve is nil, no
	// address is known.
	Resolve func(serverID string) (addrs []string, err error)
	// Dial connects to an address that Resolve returned; defaults to TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	// Calendar returns the calendar of a schedule, with which the leader of a shard finds its firings. An
	// error means that this program cannot read the schedule's rule. If Calendar is nil, it can read
	// none.
	Calendar func(s *fsm.Schedule) (schedules.Calendar, error)

	// Clock is the source of timestamps; defaults to the system's clock.
	Clock clock.Source
	// Clocks asks other nodes for the time. Without it this node cannot lead a shard that has other
	// voters.
	Clocks clock.Peers
	// ClockBound is how far a shard's clock may be from true time; defaults to 500 ms. It must be
	// equal on all nodes.
	ClockBound time.Duration
	// AcceptClock starts the node even if its wall clock contradicts the last timestamp of a shard.
	AcceptClock bool

	// QueueRequestsMax and QueueBytesMax bound the requests of each shard that wait to be logged.
	// They default to 16,384 requests and 32 MiB. A tenant that uses less than an eighth may exceed
	// the bound, up to twice the bound for all tenants together.
	QueueRequestsMax int
	QueueBytesMax    int64
	// EntryBytesMax is the size at which an entry takes no further request; defaults to 512 KiB, at
	// most 16 MiB.
	EntryBytesMax int
	// EntriesInFlight is the number of entries of a shard that may be proposed and not yet applied;
	// defaults to 2. While one is in flight, only full entries are proposed.
	EntriesInFlight int
	// WaitersMax bounds the parked Reserve calls of a shard; defaults to 65,536.
	WaitersMax int
	// ProposeTimeout is how long a call waits for the outcome of its proposal; defaults to 10 s.
	ProposeTimeout time.Duration
	// SnapshotBytes is the least amount that a group logs before its next snapshot; defaults to 64
	// MiB.
	SnapshotBytes int64
	// TrailingBytes is about how much of the log before a snapshot is kept for followers; defaults
	// to 64 MiB.
	TrailingBytes int64
	// DiskLowBytes is the free space, besides room for the largest snapshot, below which puts are
	// refused. Below a quarter of it, every request is refused that does not free space. Defaults
	// to 256 MiB.
	DiskLowBytes uint64
	// MemoryBytes is the memory that the process may take; 0 for no limit. Puts are refused above a
	// mark that is below it, see admit.MemoryMarks.
	MemoryBytes uint64
	// HeapLive returns how many bytes of the heap the last collection found alive, and how many
	// collections have run. If it is nil, only the state of the machines is counted.
	HeapLive func() (live, cycles uint64)
	// diskFree replaces the measurement of free space in tests.
	diskFree func(dir string) (uint64, error)

	// Fatal ends the process because going on would risk data. It must not return soon. It is
	// called at most once. Required.
	Fatal func(error)
	// Logger receives the node's messages. Required.
	Logger *slog.Logger
}

// AppliedEntry is an entry of a shard that was applied.
type AppliedEntry struct {
	Shard uint32
	// Opening numbers the replicas that this process has opened. A shard that was removed and came
	// back has a new Opening, which starts from its first entry.
	Opening     uint32
	Term, Index uint64
	// Entry is the applied entry, for codec.DecodeEntry. It must be neither kept nor changed.
	Entry []byte
	// Digest is the machine's digest after the entry.
	Digest uint64
}

// ShardsMax bounds Config.Shards.
const ShardsMax = founding.ShardsMax

// The defaults of Config.
const (
	DefaultShards           = identity.DefaultShards
	defaultStore            = "wal"
	DefaultName             = identity.DefaultName
	defaultQueueRequestsMax = 16 << 10
	defaultQueueBytesMax    = 32 << 20
	defaultEntryBytesMax    = 512 << 10
	defaultEntriesInFlight  = 2
	defaultWaitersMax       = 64 << 10
	defaultProposeTimeout   = 10 * time.Second
	defaultSnapshotBytes    = 64 << 20
	defaultTrailingBytes    = 64 << 20
	defaultDiskLowBytes     = 256 << 20
)

// withDefaults returns cfg with every zero replaced by its default.
func (cfg Config) withDefaults() Config {
	setDefault(&cfg.Store, defaultStore)
	setDefault(&cfg.ClockBound, clock.DefaultBound)
	setDefault(&cfg.QueueRequestsMax, defaultQueueRequestsMax)
	setDefault(&cfg.QueueBytesMax, cfg.portion(64, 8<<20, defaultQueueBytesMax))
	setDefault(&cfg.EntryBytesMax, int(cfg.portion(2048, 64<<10, defaultEntryBytesMax)))
	setDefault(&cfg.EntriesInFlight, defaultEntriesInFlight)
	setDefault(&cfg.WaitersMax, defaultWaitersMax)
	setDefault(&cfg.ProposeTimeout, defaultProposeTimeout)
	setDefault(&cfg.SnapshotBytes, defaultSnapshotBytes)
	setDefault(&cfg.TrailingBytes, defaultTrailingBytes)
	setDefault(&cfg.DiskLowBytes, defaultDiskLowBytes)
	if cfg.FS == nil {
		cfg.FS = disk.OSFS{}
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.System()
	}
	if cfg.Calendar == nil {
		cfg.Calendar = func(*fsm.Schedule) (schedules.Calendar, error) { return nil, errors.New("the node has no calendar") }
	}
	if cfg.Resolve == nil {
		cfg.Resolve = func(serverID string) ([]string, error) {
			return nil, fmt.Errorf("no address is known for server %q", serverID)
		}
	}
	return cfg
}

// portion returns a fraction of MemoryBytes between two bounds, and the upper bound if there is no
// limit.
func (cfg Config) portion(part uint64, least, most int64) int64 {
	if cfg.MemoryBytes == 0 {
		return most
	}
	return max(least, min(most, int64(min(cfg.MemoryBytes/part, 1<<62))))
}

// identity returns the part of the configuration that is about the data directory's identity.
func (cfg Config) identity() identity.Config {
	return identity.Config{Dir: cfg.Dir, FS: cfg.FS, Name: cfg.Name, Shards: cfg.Shards, Join: cfg.Join,
		Incarnation: cfg.Incarnation, Store: cfg.Store, Founding: cfg.Founding}
}

// setDefault sets *field to value if it is zero.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate returns every problem of a configuration with defaults filled in.
func (cfg Config) validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	check(cfg.Dir != "", "Dir is empty")
	check(cfg.Name == "" || identity.ValidName(cfg.Name), "Name %q is not 1 to %d characters of [A-Za-z0-9_-]",
		cfg.Name, identity.NameBytesMax)
	check(cfg.Shards >= 0 && cfg.Shards <= ShardsMax, "Shards is %d, not 1 to %d", cfg.Shards, ShardsMax)
	check(cfg.Store == "wal" || cfg.Store == "bolt", "Store %q is neither wal nor bolt", cfg.Store)
	check(cfg.ClockBound > 0, "ClockBound is %v, not positive", cfg.ClockBound)
	check(cfg.QueueRequestsMax > 0, "QueueRequestsMax is %d, not positive", cfg.QueueRequestsMax)
	check(cfg.QueueBytesMax > 0, "QueueBytesMax is %d, not positive", cfg.QueueBytesMax)
	check(cfg.EntryBytesMax > 0 && cfg.EntryBytesMax <= propose.RequestBytesMax, "EntryBytesMax is %d, not 1 to %d",
		cfg.EntryBytesMax, propose.RequestBytesMax)
	check(cfg.EntriesInFlight > 0, "EntriesInFlight is %d, not positive", cfg.EntriesInFlight)
	check(cfg.WaitersMax > 0, "WaitersMax is %d, not positive", cfg.WaitersMax)
	check(cfg.ProposeTimeout > 0, "ProposeTimeout is %v, not positive", cfg.ProposeTimeout)
	check(cfg.SnapshotBytes > 0, "SnapshotBytes is %d, not positive", cfg.SnapshotBytes)
	check(cfg.TrailingBytes > 0, "TrailingBytes is %d, not positive", cfg.TrailingBytes)
	check(cfg.MemoryBytes == 0 || cfg.MemoryBytes >= admit.MemoryBytesMin, "MemoryBytes is %d, want 0 or at least %d",
		cfg.MemoryBytes, admit.MemoryBytesMin)
	check(cfg.Fatal != nil, "Fatal is nil")
	check(cfg.Logger != nil, "Logger is nil")
	if len(problems) > 0 {
		return fmt.Errorf("node configuration: %w", errors.Join(problems...))
	}
	return nil
}
