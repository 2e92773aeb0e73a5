package admin

import (
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/values"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// QueueSettings configure a queue. In a call, a nil field keeps the present value, or means the
// default in a new queue. In an answer all fields are set, except those that the server's version
// does not know. Limits are exact. With several partitions each has an equal part of a limit,
// rounded down; a limit below the number of partitions is refused.
type QueueSettings struct {
	// TTR is the length of a lease if neither the job nor the consumer sets one: 1 ms to 24 h,
	// default 30 s.
	TTR *time.Duration
	// MaxAttempts is how many failed attempts make a job dead, if the job does not set it: 0 to
	// 1,000,000, 0 for no limit, default 16.
	MaxAttempts *int
	// RetryDelays are the delays after the first, second, … failed attempt, if the job does not set
	// them; the last one repeats. At most 64, each 0 to 100 years, kept exactly. An empty list
	// keeps the present one; a single 0 means at once. Default 1s, 5s, 30s, 2m, 10m, 30m, 1h, each
	// up to 10 % shorter or longer.
	RetryDelays []time.Duration
	// DefaultRetryDelays, in an answer, says that RetryDelays is the default. In a call, true
	// restores the default, and false changes nothing.
	DefaultRetryDelays *bool
	// DedupWindow is how long the server remembers a client-chosen id after its job ended: 0 to 100
	// years of shard time, default 10 min.
	DedupWindow *time.Duration
	// DedupForever makes the server remember client-chosen ids without end, whatever DedupWindow
	// says. Default false.
	DedupForever *bool
	// MaxInFlight is how many jobs may be reserved at one time. MaxJobs is how many jobs the queue
	// may hold in all states. 0 means no limit, the default.
	MaxInFlight, MaxJobs *int
	// MaxBytes is how many bytes of bodies, headers, keys and client-chosen ids, and of schedules, the
	// queue may hold. 0 means no limit, the default.
	MaxBytes *int64
	// PutsPerSecond is how many puts a second are admitted, counted on the shard's clock, with a
	// burst of one second's worth. 0 means no limit, the default.
	PutsPerSecond *int
	// Overdue decides about jobs that fell due in an outage. Default FIRE.
	Overdue *OverduePolicy
	// ExpireTo decides about a job whose TTL ended: "GONE", the default, or "DEAD". Empty stands
	// for nil.
	ExpireTo string
	// Paused means that the queue takes puts and hands out no jobs; a Reserve on it waits. False
	// also ends PausedUntil. Default false.
	Paused *bool
	// PausedUntil is when the pause ends by itself. Setting it pauses the queue. Zero: the pause
	// has no end.
	PausedUntil time.Time
	// KeyConcurrency is how many jobs of one key may be reserved at one time: 0 to 1,000,000. 0 means
	// no limit, the default.
	KeyConcurrency *int
	// KeyRate is how often jobs of one key are handed out. A zero KeyRate means no limit, the default.
	KeyRate *KeyRate
	// KeyOrdered means that the jobs of one key are handed out in the order in which they were put,
	// one at a time. It does not go with a KeyConcurrency above 1, and changes only while the queue
	// holds no jobs. Default false.
	KeyOrdered *bool
	// KeyFair means that keys take turns; the jobs without a key count as one key. Priority then
	// orders the jobs of one key only. Default false.
	KeyFair *bool
	// HoldOnDead means that no job of a key is handed out while a job of that key is DEAD. Default
	// false.
	HoldOnDead *bool
	// NoKeys means that puts with a key are refused. Jobs with a key that the queue holds stay.
	// Default false.
	NoKeys *bool
}

// A KeyRate limits how often jobs of one key are handed out. It is a token bucket: a job takes a
// token, a token comes every Per ÷ Count, and the bucket holds at most Burst of them. Filling it
// takes at most 24 h.
type KeyRate struct {
	// Count is 1 to 1,000,000. Per is 1 s to 24 h.
	Count int
	Per   time.Duration
	// Burst is 0 to 1,000,000. 0 means as many as Count.
	Burst int
}

// An OverduePolicy decides about jobs that fell due in an outage: while their shard had no leader
// for After or longer.
type OverduePolicy struct {
	// Mode is "FIRE", "SPREAD" or "DROP". With FIRE the jobs become ready at once. With SPREAD they
	// become ready evenly over Period, in due order. With DROP they are dropped, and counted as
	// expired.
	Mode string
	// Period is 1 s to 30 days. Only with SPREAD.
	Period time.Duration
	// After is 1 s to 100 years. 0 stands for the default, 60 s.
	After time.Duration
}

// ConfiguredQueue is the result of a call that configures a queue.
type ConfiguredQueue struct {
	// Partitions is the number of partitions; 0 from UpdateQueue.
	Partitions int
	// Settings are all settings in force. Version is their version.
	Settings QueueSettings
	Version  uint64
	// Shards are the shards that have applied the settings. PendingShards have not yet, and will;
	// normally there are none.
	Shards, PendingShards []uint32
}

// A QueueState describes a queue: its settings, its contents, and its history.
type QueueState struct {
	// Name and Partitions are those that the queue was created with.
	Name       string
	Partitions int
	// Settings are all settings in force. SettingsVersion is 0 if they were never set.
	Settings        QueueSettings
	SettingsVersion uint64
	// Delayed, Ready, Reserved and Dead count the jobs. A count above 4,294,967,295 is shown as
	// that number.
	Delayed, Ready, Reserved, Dead int
	// Bytes is the size of bodies, headers, keys and client-chosen ids, and of schedules.
	Bytes uint64
	// OldestReadyAge is how long the oldest ready job has been due; 0 if none is ready.
	OldestReadyAge time.Duration
	// WaitingConsumers is how many consumers wait for jobs now; nil if that is not known.
	WaitingConsumers *int
	// NextDueAt is when the next delayed job is due; zero if there is none.
	NextDueAt time.Time
	// Lateness and Rates cover the last minute, across all nodes; nil if they are not known.
	// Lateness is also nil if no job was handed out.
	Lateness *Lateness
	Rates    *QueueRates
	// Totals counts events since the queue was created.
	Totals QueueTotals
	// DedupWindowHeld is how long ended ids are really remembered. It is shorter than the setting
	// if the queue is younger. It is also shorter if DedupWindowShortened is set, because a shard
	// remembers at most 10,000,000 ids of ended jobs.
	DedupWindowHeld      time.Duration
	DedupWindowShortened bool
	// AsOf is the shard time at which these figures are exact. With several partitions it is the
	// earliest of theirs.
	AsOf time.Time
	// Due says when the jobs fall due; without slices from Queues.
	Due DueHistogram
}

// Lateness is how long after their due time jobs were handed out for the first time. It includes
// both the server's own time and the wait for a consumer. The figures are rounded up, by less than
// a factor of 2.
type Lateness struct {
	// P50: half of the jobs were at most this late; P99: 99 of 100 were; Max: all were.
	P50, P99, Max time.Duration
	// Jobs is how many jobs the figures cover.
	Jobs int
	// Window is the period that the figures cover: 60 s and up to 10 s more. It is shorter if a
	// shard's leader was restored from a snapshot or started since.
	Window time.Duration
}

// QueueRates are events a second.
type QueueRates struct {
	Puts, Reserves, Acks float64
	// Window is the period that the rates cover: 60 s. It is shorter if a shard's leader was
	// restored from a snapshot or started since.
	Window time.Duration
}

// QueueTotals count events. They are exact, and the same on every replica.
type QueueTotals struct {
	// Puts counts no repeats. Lapses counts attempts that failed because the lease ended. Releases
	// counts released jobs. Cancels includes purged jobs. Expiries includes jobs dropped by the
	// overdue policy.
	Puts, Reserves, Acks, Nacks, Lapses, Releases, Deaths, Cancels, Expiries, Redrives uint64
}

// DueHistogram says when jobs fall due, in slices of time that begin at whole minutes, hours and
// days of UTC. The first slice of each kind is the present one.
type DueHistogram struct {
	// Overdue counts READY jobs, and DELAYED jobs whose minute is over.
	Overdue int
	// NextMinute to NextMonth count DELAYED jobs that fall due in the present minute, in 60
	// minutes, 24 hours and 30 days; each includes those before it. Later counts all others.
	NextMinute, NextHour, NextDay, NextMonth, Later int
	// Minutes, Hours and Days are the slices in which jobs fall due, in order of time.
	Minutes, Hours, Days []DueSlice
}

// A DueSlice is a minute, an hour or a day in which jobs fall due.
type DueSlice struct {
	Start time.Time
	Jobs  int
}

// wire returns the settings in wire form; nil for nil.
func (s *QueueSettings) wire() (*belfryv1.QueueSettings, *failure.Error) {
	if s == nil {
		return nil, nil
	}
	out := &belfryv1.QueueSettings{
		Ttr: values.Duration(s.TTR), RetryDelaysDefault: s.DefaultRetryDelays, DedupWindow: values.Duration(s.DedupWindow),
		DedupForever: s.DedupForever, Paused: s.Paused, RetryDelays: values.Each(s.RetryDelays, durationpb.New),
		KeyOrdered: s.KeyOrdered, KeyFair: s.KeyFair, HoldOnDead: s.HoldOnDead, NoKeys: s.NoKeys,
	}
	for _, n := range []struct {
		name string
		from *int
		to   **uint32
	}{
		{"MaxAttempts", s.MaxAttempts, &out.MaxAttempts}, {"MaxInFlight", s.MaxInFlight, &out.MaxInFlight},
		{"MaxJobs", s.MaxJobs, &out.MaxJobs}, {"PutsPerSecond", s.PutsPerSecond, &out.PutsPerSecond},
		{"KeyConcurrency", s.KeyConcurrency, &out.KeyConcurrency},
	} {
		if n.from == nil {
			continue
		}
		count, err := wireCount(n.name, *n.from)
		if err != nil {
			return nil, err
		}
		*n.to = &count
	}
	if s.KeyRate != nil {
		rate, err := s.KeyRate.wire()
		if err != nil {
			return nil, err
		}
		out.KeyRate = rate
	}
	if s.MaxBytes != nil {
		if *s.MaxBytes < 0 {
			return nil, failure.Invalidf("MaxBytes: %d; it is at least 0", *s.MaxBytes)
		}
		out.MaxBytes = new(uint64(*s.MaxBytes)) //nolint:gosec // checked
	}
	if s.Overdue != nil {
		mode, ok := belfryv1.OverdueMode_value[overduePrefix+s.Overdue.Mode]
		if !ok {
			return nil, failure.Invalidf("Overdue: there is no mode %q; the modes are FIRE, SPREAD and DROP", s.Overdue.Mode)
		}
		out.Overdue = &belfryv1.OverduePolicy{Mode: belfryv1.OverdueMode(mode)}
		if s.Overdue.Period != 0 {
			out.Overdue.Period = durationpb.New(s.Overdue.Period)
		}
		if s.Overdue.After != 0 {
			out.Overdue.OverdueAfter = durationpb.New(s.Overdue.After)
		}
	}
	if s.ExpireTo != "" {
		to, ok := belfryv1.ExpireTo_value[expirePrefix+s.ExpireTo]
		if !ok {
			return nil, failure.Invalidf("ExpireTo: %q; it is GONE or DEAD", s.ExpireTo)
		}
		out.ExpireTo = new(belfryv1.ExpireTo(to))
	}
	if !s.PausedUntil.IsZero() {
		out.PausedUntil = timestamppb.New(s.PausedUntil)
	}
	return out, nil
}

// wireCount returns a number that has 32 bits in a message.
func wireCount(name string, n int) (uint32, *failure.Error) {
	if n < 0 || uint64(n) > math.MaxUint32 {
		return 0, failure.Invalidf("%s: %d; it is 0 to %d", name, n, uint32(math.MaxUint32))
	}
	return uint32(n), nil
}

// wire returns the rate in wire form.
func (r *KeyRate) wire() (*belfryv1.KeyRate, *failure.Error) {
	count, err := wireCount("KeyRate.Count", r.Count)
	if err != nil {
		return nil, err
	}
	burst, err := wireCount("KeyRate.Burst", r.Burst)
	if err != nil {
		return nil, err
	}
	out := &belfryv1.KeyRate{Count: count, Burst: burst}
	if r.Per != 0 {
		out.Per = durationpb.New(r.Per)
	}
	return out, nil
}

const (
	overduePrefix = "OVERDUE_MODE_"
	expirePrefix  = "EXPIRE_TO_"
)

// settingsOf reads settings off the wire.
func settingsOf(s *belfryv1.QueueSettings) QueueSettings {
	if s == nil {
		return QueueSettings{}
	}
	out := QueueSettings{
		TTR: values.DurationOf(s.Ttr), MaxAttempts: values.CountOf(s.MaxAttempts), DefaultRetryDelays: s.RetryDelaysDefault,
		DedupWindow:  values.DurationOf(s.DedupWindow),
		DedupForever: s.DedupForever, MaxInFlight: values.CountOf(s.MaxInFlight), MaxJobs: values.CountOf(s.MaxJobs),
		PutsPerSecond: values.CountOf(s.PutsPerSecond), Paused: s.Paused,
		PausedUntil: values.TimeOf(s.PausedUntil), RetryDelays: values.Each(s.RetryDelays, (*durationpb.Duration).AsDuration),
		KeyConcurrency: values.CountOf(s.KeyConcurrency), KeyOrdered: s.KeyOrdered, KeyFair: s.KeyFair,
		HoldOnDead: s.HoldOnDead, NoKeys: s.NoKeys,
	}
	if r := s.KeyRate; r != nil {
		out.KeyRate = &KeyRate{Count: int(r.Count), Per: r.Per.AsDuration(), Burst: int(r.Burst)}
	}
	if s.MaxBytes != nil {
		out.MaxBytes = new(int64(min(*s.MaxBytes, math.MaxInt64))) //nolint:gosec // bounded
	}
	if s.Overdue != nil {
		out.Overdue = &OverduePolicy{
			Mode: strings.TrimPrefix(s.Overdue.Mode.String(), overduePrefix), Period: s.Overdue.Period.AsDuration(),
			After: s.Overdue.OverdueAfter.AsDuration(),
		}
	}
	if s.ExpireTo != nil {
		out.ExpireTo = strings.TrimPrefix(s.ExpireTo.String(), expirePrefix)
	}
	return out
}

// queueStateOf reads a queue off the wire.
func queueStateOf(q *belfryv1.Queue) QueueState {
	out := QueueState{
		Name: q.GetName(), Partitions: int(q.GetPartitions()), Settings: settingsOf(q.GetSettings()),
		SettingsVersion: q.GetSettingsVersion(), WaitingConsumers: values.CountOf(q.WaitingConsumers),
		AsOf:    values.TimeOf(q.GetAsOf()),
		Delayed: int(q.GetCounts().GetDelayed()), Ready: int(q.GetCounts().GetReady()),
		Reserved: int(q.GetCounts().GetReserved()), Dead: int(q.GetCounts().GetDead()),
		Bytes: q.GetBytes(), OldestReadyAge: q.GetOldestReadyAge().AsDuration(), NextDueAt: values.TimeOf(q.GetNextDueAt()),
		DedupWindowHeld: q.GetDedupWindowHeld().AsDuration(), DedupWindowShortened: q.GetDedupWindowShortened(),
	}
	if l := q.GetLateness(); l != nil {
		out.Lateness = &Lateness{
			P50: l.P50.AsDuration(), P99: l.P99.AsDuration(), Max: l.Max.AsDuration(), Jobs: int(l.Jobs),
			Window: l.Window.AsDuration(),
		}
	}
	if r := q.GetRates(); r != nil {
		out.Rates = &QueueRates{
			Puts: r.PutsPerSecond, Reserves: r.ReservesPerSecond, Acks: r.AcksPerSecond, Window: r.Window.AsDuration(),
		}
	}
	t := q.GetTotals()
	out.Totals = QueueTotals{
		Puts: t.GetPuts(), Reserves: t.GetReserves(), Acks: t.GetAcks(), Nacks: t.GetNacks(), Lapses: t.GetLapses(),
		Releases: t.GetReleases(),
		Deaths:   t.GetDeaths(), Cancels: t.GetCancels(), Expiries: t.GetExpiries(), Redrives: t.GetRedrives(),
	}
	d := q.GetDue()
	out.Due = DueHistogram{
		Overdue: int(d.GetOverdue()), NextMinute: int(d.GetNextMinute()), NextHour: int(d.GetNextHour()),
		NextDay: int(d.GetNextDay()), NextMonth: int(d.GetNextMonth()),
		Later: int(d.GetLater()), Minutes: values.Each(d.GetMinutes(), sliceOf), Hours: values.Each(d.GetHours(), sliceOf),
		Days: values.Each(d.GetDays(), sliceOf),
	}
	return out
}

func sliceOf(s *belfryv1.DueSlice) DueSlice {
	return DueSlice{Start: values.TimeOf(s.GetStart()), Jobs: int(s.GetJobs())}
}
