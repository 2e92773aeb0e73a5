package rule

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
)

const (
	second = fsm.Time(time.Second)
	clock  = 1000 * second
)

func TestPartitionLimit(t *testing.T) {
	for _, c := range []struct {
		limit      uint64
		partitions uint32
		want       uint64
	}{{0, 4, 0}, {1, 4, 1}, {7, 4, 1}, {8, 4, 2}, {8, 1, 8}, {8, 0, 8}} {
		if got := PartitionLimit(c.limit, &fsm.QueueRecord{Partitions: c.partitions}); got != c.want {
			t.Errorf("a part of %d in %d partitions is %d, want %d", c.limit, c.partitions, got, c.want)
		}
	}
}

func TestDedupWindow(t *testing.T) {
	for _, c := range []struct {
		settings fsm.Settings
		want     fsm.Duration
		forever  bool
	}{
		{fsm.Settings{DedupWindow: 5}, fsm.DefaultDedupWindow, false},
		{fsm.Settings{DedupWindow: 5, DedupWindowSet: true}, 5, false},
		{fsm.Settings{DedupWindowSet: true}, 0, false},
		{fsm.Settings{DedupForever: true, DedupWindowSet: true}, 0, true},
	} {
		if got, forever := DedupWindow(&c.settings); got != c.want || forever != c.forever {
			t.Errorf("%+v: %v, %v, want %v, %v", c.settings, got, forever, c.want, c.forever)
		}
	}
}

// TestDefaults: the value of a job comes before that of its queue, and that before the default.
func TestDefaults(t *testing.T) {
	own := &fsm.Job{TTR: time.Second, Given: fsm.GivenMaxAttempts, MaxAttempts: 0}
	queue := &fsm.Settings{TTR: time.Minute, MaxAttempts: 3, MaxAttemptsSet: true, OverdueAfter: time.Hour}
	none := &fsm.Settings{MaxAttempts: 3}
	for _, c := range []struct {
		job      *fsm.Job
		settings *fsm.Settings
		ttr      fsm.Duration
		attempts uint32
	}{
		{own, queue, time.Second, 0}, {&fsm.Job{MaxAttempts: 9}, queue, time.Minute, 3},
		{&fsm.Job{}, none, fsm.DefaultTTR, fsm.DefaultMaxAttempts},
	} {
		if got := LeaseLength(c.job, c.settings); got != c.ttr {
			t.Errorf("the lease of %+v is %v, want %v", c.job, got, c.ttr)
		}
		if got := AttemptsMax(c.job, c.settings); got != c.attempts {
			t.Errorf("%+v has %d attempts, want %d", c.job, got, c.attempts)
		}
	}
	if a, b := OverdueAfter(queue), OverdueAfter(none); a != time.Hour || b != fsm.DefaultOverdueAfter {
		t.Errorf("outages are of at least %v and %v", a, b)
	}
}

func TestRetryDelay(t *testing.T) {
	list := []fsm.Duration{1, 2, 3}
	settings := fsm.Settings{RetryDelays: []fsm.Duration{10, 20}}
	defaults := fsm.DefaultRetryDelays(2)
	own := fsm.Job{RetryDelays: list, Given: fsm.GivenRetryDelays, Attempt: 1}
	for _, c := range []struct {
		what string
		job  fsm.Job
		of   fsm.QueueRecord
		want fsm.Duration
	}{
		{"first", own, fsm.QueueRecord{Settings: settings}, 1},
		{"past the list", fsm.Job{RetryDelays: list, Given: fsm.GivenRetryDelays, Attempt: 9}, fsm.QueueRecord{}, 3},
		{"an empty list", fsm.Job{Given: fsm.GivenRetryDelays, Attempt: 1}, fsm.QueueRecord{Settings: settings}, 0},
		{"of the queue", fsm.Job{RetryDelays: list, Attempt: 2}, fsm.QueueRecord{Settings: settings, Format: 2}, 20},
		{"by default", fsm.Job{Attempt: 2, Fence: 7}, fsm.QueueRecord{Format: 2}, fsm.Jitter(defaults[1], 7)},
		{"by the first default", fsm.Job{Attempt: 2, Fence: 7}, fsm.QueueRecord{Format: 1}, 0},
	} {
		if got := RetryDelay(&c.job, &c.of); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// TestSettle: each row says what a settling leaves of a job; the job is not held if want is nil.
func TestSettle(t *testing.T) {
	attempts := []fsm.Attempt{{Number: 1}, {Number: 2}, {Number: 3}}
	lapsed := fsm.Attempt{Number: 4, Began: clock - 9, Ended: clock, Lapsed: true, Client: "w"}
	held := fsm.Job{
		State: fsm.Reserved, Until: clock, Due: clock - 20, Attempt: 4, Leased: clock - 9, Client: "w", Attempts: attempts,
	}
	after := func(v fsm.Job, change func(*fsm.Job)) *fsm.Job {
		v.Attempts = slices.Clone(v.Attempts)
		change(&v)
		return &v
	}
	lapses := func(v *fsm.Job) {
		v.State, v.Due, v.Client, v.Leased, v.Attempts = fsm.Ready, clock, "", 0, append(slices.Clone(attempts[1:]), lapsed)
	}
	ending := after(held, func(v *fsm.Job) { v.TTL = clock })
	delayed := fsm.Job{State: fsm.Delayed, Due: clock}
	expiring := fsm.Job{State: fsm.Ready, TTL: clock}
	toDead := fsm.Settings{ExpireToDead: true}
	outage := func(s fsm.Settings) fsm.QueueRecord {
		return fsm.QueueRecord{Settings: s, OverdueFrom: clock - 1, OverdueTo: clock}
	}
	spread := fsm.Settings{Overdue: fsm.SpreadOverdue, OverduePeriod: time.Minute}
	for _, c := range []struct {
		what   string
		job    fsm.Job
		queue  fsm.QueueRecord
		format fsm.Format
		want   *fsm.Job
	}{
		{"a live lease", *after(held, func(v *fsm.Job) { v.Until++ }), fsm.QueueRecord{}, 3,
			after(held, func(v *fsm.Job) { v.Until++ })},
		{"a lapsed lease", held, fsm.QueueRecord{}, 3, after(held, lapses)},
		{"in an earlier format", held, fsm.QueueRecord{}, 2,
			after(held, func(v *fsm.Job) { v.State, v.Due = fsm.Ready, clock })},
		{"the last attempt", held, fsm.QueueRecord{Settings: fsm.Settings{MaxAttempts: 4, MaxAttemptsSet: true}}, 3,
			after(held, func(v *fsm.Job) {
				lapses(v)
				v.State, v.Due, v.Died = fsm.Dead, held.Due, clock
			})},
		{"no last attempt", held, fsm.QueueRecord{Settings: fsm.Settings{MaxAttemptsSet: true}}, 3, after(held, lapses)},
		{"a lapsed lease past the ttl", *ending, fsm.QueueRecord{}, 3, nil},
		{"the same, kept as dead", *ending, fsm.QueueRecord{Settings: toDead}, 3, after(*ending, func(v *fsm.Job) {
			lapses(v)
			v.State, v.Due, v.Died, v.TTL = fsm.Dead, held.Due, clock, 0
		})},
		{"a ttl", expiring, fsm.QueueRecord{}, 3, nil},
		{"a ttl of a dead job", fsm.Job{State: fsm.Dead, TTL: clock}, fsm.QueueRecord{}, 3,
			&fsm.Job{State: fsm.Dead, TTL: clock}},
		{"a ttl to come", fsm.Job{State: fsm.Ready, TTL: clock + 1}, fsm.QueueRecord{}, 3,
			&fsm.Job{State: fsm.Ready, TTL: clock + 1}},
		{"a due job", delayed, fsm.QueueRecord{}, 3, &fsm.Job{State: fsm.Ready, Due: clock}},
		{"a job to come", fsm.Job{State: fsm.Delayed, Due: clock + 1}, fsm.QueueRecord{}, 3,
			&fsm.Job{State: fsm.Delayed, Due: clock + 1}},
		{"fired after an outage", delayed, outage(fsm.Settings{}), 3, &fsm.Job{State: fsm.Ready, Due: clock}},
		{"dropped after one", delayed, outage(fsm.Settings{Overdue: fsm.DropOverdue}), 3, nil},
		{"due before it", fsm.Job{State: fsm.Delayed, Due: clock - 1}, outage(fsm.Settings{Overdue: fsm.DropOverdue}), 3,
			&fsm.Job{State: fsm.Ready, Due: clock - 1}},
		{"spread after one", delayed, outage(spread), 3, &fsm.Job{State: fsm.Delayed, Due: clock + 60*second}},
		{"spread over no time", fsm.Job{State: fsm.Delayed, Due: clock - 5}, fsm.QueueRecord{
			Settings: fsm.Settings{Overdue: fsm.SpreadOverdue}, OverdueFrom: clock - 9, OverdueTo: clock,
		}, 3, &fsm.Job{State: fsm.Ready, Due: clock - 5}},
	} {
		v := *after(c.job, func(*fsm.Job) {})
		if ok := Settle(&v, &c.queue, c.format, clock); ok != (c.want != nil) {
			t.Errorf("%s: held is %v", c.what, ok)
		} else if ok && !cmp.Equal(*c.want, v) {
			t.Errorf("%s: -want +got:\n%s", c.what, cmp.Diff(*c.want, v))
		}
	}
}

func TestSpread(t *testing.T) {
	ms := fsm.Time(time.Millisecond)
	for _, c := range []struct {
		outage Outage
		due    fsm.Time
		period fsm.Duration
		want   fsm.Time
	}{
		{Outage{0, 10 * second}, 1, time.Second, 10*second + ms},
		{Outage{0, 10 * second}, 5 * second, time.Second, 10*second + 500*ms},
		{Outage{0, 10 * second}, 10 * second, time.Second, 11 * second},
		{Outage{second, 4 * second}, 2 * second, time.Second, 4*second + 334*ms},
		{Outage{0, fsm.TimeMax - 1}, fsm.TimeMax - 1, math.MaxInt64, fsm.TimeMax.Ceil()},
	} {
		if got := c.outage.Spread(c.due, c.period); got != c.want {
			t.Errorf("%d of %+v over %v goes to %d, want %d", c.due, c.outage, c.period, got, c.want)
		}
	}
}

func TestImportPolicy(t *testing.T) {
	byQueue := fsm.RestoreMark{Overdue: fsm.ImportByQueue, Since: clock, Began: clock.Add(time.Hour), Period: 7}
	spreads := fsm.Settings{Overdue: fsm.SpreadOverdue, OverduePeriod: 5, OverdueAfter: time.Hour}
	longer := spreads
	longer.OverdueAfter++
	for _, c := range []struct {
		mark     fsm.RestoreMark
		settings fsm.Settings
		want     fsm.ImportOverdue
		period   fsm.Duration
	}{
		{fsm.RestoreMark{Overdue: fsm.ImportSpread, Period: 7}, fsm.Settings{Overdue: fsm.DropOverdue}, fsm.ImportSpread, 7},
		{byQueue, spreads, fsm.ImportSpread, 5},
		{byQueue, longer, fsm.ImportFire, 0},
		{byQueue, fsm.Settings{Overdue: fsm.DropOverdue}, fsm.ImportDrop, 0},
		{byQueue, fsm.Settings{Overdue: fsm.FireOverdue}, fsm.ImportFire, 0},
	} {
		if got, period := ImportPolicy(&c.mark, &c.settings); got != c.want || period != c.period {
			t.Errorf("%+v with %+v: %v over %v, want %v over %v", c.mark, c.settings, got, period, c.want, c.period)
		}
	}
}

func TestRequestTime(t *testing.T) {
	const id = "0190163d-8694-7000-8000-0123456789ab"
	at := fsm.Time(0x0190163d8694) * fsm.Time(time.Millisecond)
	for text, want := range map[string]fsm.Time{
		id: at, id + "#3": at, id + "~2#1": at, "0190163d-8694-7000-bfff-0123456789AB": at,
		"ffffffff-ffff-7000-8000-0123456789ab": fsm.TimeMax,
	} {
		if got, ok := RequestTime(text); got != want || !ok {
			t.Errorf("%s is of %v, %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"", "#", id[:35], id + "0", "0190163d-8694-4000-8000-0123456789ab", "0190163d-8694-7000-c000-0123456789ab",
		"0190163d-8694-7000-0000-0123456789ab", "0190163d-8694-7000-8000-0123456789ag",
		"0190163d08694-7000-8000-0123456789ab", "0190163d-869407000-8000-0123456789ab",
		"0190163d-8694-700008000-0123456789ab", "0190163d-8694-7000-800000123456789ab",
	} {
		if got, ok := RequestTime(text); ok {
			t.Errorf("%q is taken for an id of %v", text, got)
		}
	}
}
