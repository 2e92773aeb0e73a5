package machine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/fsmtest"
	"github.com/belfrydb/belfry/fsm/snapshot"
)

var update = flag.Bool("update", false, "rewrite the golden files; only for a new version of a format")

func golden(tb testing.TB, name string, got []byte) {
	tb.Helper()
	fsmtest.Golden{Update: *update}.Check(tb, name, got)
}

// lead is the request of an entry that changes nothing but the clock.
func lead(format fsm.Format) [][]byte {
	request := &fsm.Request{Commands: []fsm.Command{&fsm.Lead{Grace: time.Second}}}
	return [][]byte{codec.AppendRequestIn(nil, format, request)}
}

// TestFormatOfAMachine: a machine has the highest format of its entries, in whichever order they
// come. So have its snapshots and the machines that are restored from them.
func TestFormatOfAMachine(t *testing.T) {
	if got := New(fsm.Config{}).Format(); got != fsm.FirstFormat {
		t.Errorf("a new machine has format %d, want %d", got, fsm.FirstFormat)
	}
	for format := fsm.FirstFormat; format <= fsm.LatestFormat; format++ {
		m := New(fsm.Config{})
		for i, f := range []fsm.Format{fsm.FirstFormat, format, fsm.FirstFormat} {
			if _, err := m.Apply(uint64(i)+1, codec.AppendEntryIn(nil, f, fsm.Time(i), lead(f))); err != nil {
				t.Fatal(err)
			}
		}
		raw := snapshotBytes(t, m)
		restored, err := Restore(fsm.Config{}, bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if m.Format() != format || fsm.Format(raw[len(snapshot.Magic)]) != format || restored.Format() != format {
			t.Errorf("after entries of format %d the machine has %d, its snapshot %d, who is restored from it %d",
				format, m.Format(), raw[len(snapshot.Magic)], restored.Format())
		}
	}
}

// TestFormatOfALaterProgram: entries and snapshots of one are refused with both numbers, and change
// nothing.
func TestFormatOfALaterProgram(t *testing.T) {
	later := fsm.LatestFormat + 1
	numbers := fmt.Sprintf("format %d, this program reads up to %d", later, fsm.LatestFormat)
	m := New(fsm.Config{})
	before := m.Digest()
	if _, err := m.Apply(1, codec.AppendEntryIn(nil, later, 5, lead(later))); !errors.Is(err, fsm.ErrVersion) ||
		!strings.Contains(err.Error(), numbers) {
		t.Errorf("an entry: %v, want %q", err, numbers)
	}
	if m.Digest() != before || m.Index() != 0 || m.Format() != fsm.FirstFormat {
		t.Errorf("the entry that was refused changed the machine: index %d, format %d", m.Index(), m.Format())
	}
	m.format = later
	if _, err := m.Apply(1, codec.AppendEntry(nil, 5, lead(fsm.FirstFormat))); err != nil || m.Format() != later {
		t.Errorf("an entry of the first format made format %d of %d: %v", m.Format(), later, err)
	}
	if _, err := Restore(fsm.Config{}, bytes.NewReader(snapshotBytes(t, m))); !errors.Is(err, fsm.ErrVersion) ||
		!strings.Contains(err.Error(), numbers) {
		t.Errorf("a snapshot: %v, want %q", err, numbers)
	}
	if err := fsm.Format(0).Readable(); !errors.Is(err, fsm.ErrVersion) {
		t.Errorf("format 0: %v", err)
	}
}

// TestGoldenLogs replays the log of every released format from its file, and finds the state and
// the snapshot that the program had which wrote it. A format is released with a file of its own;
// the files of earlier ones stay as they are.
func TestGoldenLogs(t *testing.T) {
	released := []fsm.Format{1, 2, 3, 4, 5}
	for _, format := range released {
		log, snapshot := fmt.Sprintf("log_%d", format), fmt.Sprintf("log_%d_snapshot", format)
		if *update {
			entries, state := writeLog(t, format)
			golden(t, log, entries)
			golden(t, snapshot, state)
		}
		m := New(fsm.Config{Seed: 7})
		replay(t, m, fsmtest.GoldenBytes(t, log))
		raw := fsmtest.GoldenBytes(t, snapshot)
		if got := snapshotBytes(t, m); !bytes.Equal(got, raw) {
			t.Errorf("the log of format %d ends in another state than it did, digest %016x", format, m.Digest())
		}
		restored, err := Restore(fsm.Config{Seed: 8}, bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if restored.Digest() != m.Digest() || restored.Format() != format || m.Format() != format ||
			restored.Index() != m.Index() {
			t.Errorf("the snapshot of format %d: digest %016x, format %d, index %d; the log: %016x, %d, %d",
				format, restored.Digest(), restored.Format(), restored.Index(), m.Digest(), m.Format(), m.Index())
		}
	}
	// Logs of the first format are written as they were.
	entries, _ := writeLog(t, fsm.FirstFormat)
	golden(t, "log_1", entries)
}

// replay applies a log of entries, each with its length before it.
func replay(t *testing.T, m *Machine, log []byte) {
	t.Helper()
	seen := map[fsm.Kind]bool{}
	for len(log) > 0 {
		length, n := binary.Uvarint(log)
		entry := log[n : n+int(length)]
		log = log[n+int(length):]
		_, requests, err := codec.DecodeEntry(entry)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range requests {
			for _, c := range r.Commands {
				seen[c.Kind()] = true
			}
		}
		if _, err := m.Apply(m.Index()+1, entry); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range fsmtest.EveryCommand() {
		if k := c.Kind(); !seen[k] && k <= fsm.KindLead {
			t.Errorf("the log has no command of kind %d", k)
		}
	}
}

// writeLog makes a short life of a shard in which every kind of command changes something, and
// returns its log and its last snapshot.
func writeLog(t *testing.T, format fsm.Format) (log, snapshot []byte) {
	t.Helper()
	m, now := New(fsm.Config{Seed: 1}), fsm.Time(1_800_000_000_000_000_000)
	step := func(after time.Duration, id string, commands ...fsm.Command) []fsm.Result {
		now += fsm.Time(after)
		entry := codec.AppendEntryIn(nil, format, now, [][]byte{codec.AppendRequestIn(nil, format, &fsm.Request{
			Caller: "ns", ID: id, Client: "worker-1", Commands: commands,
		})})
		log = append(binary.AppendUvarint(log, uint64(len(entry))), entry...)
		results, err := m.Apply(m.Index()+1, entry)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			if r.Code != fsm.OK {
				t.Fatalf("entry %d: command %d of kind %d gave code %d", m.Index(), i, commands[i].Kind(), r.Code)
			}
		}
		return results
	}
	ref := func(g fsm.Grant) fsm.Ref {
		return fsm.Ref{Queue: g.Queue, Partition: g.Partition, Serial: g.Serial, Fence: g.Fence}
	}
	put := func(queue, id string) *fsm.Put {
		return &fsm.Put{Queue: queue, Partitions: 1, ID: id, Body: []byte("body of " + id)}
	}
	later := func(id string) *fsm.Put {
		p := put("orders", id)
		p.Given, p.Delay, p.TTL, p.Headers = fsm.GivenDelay|fsm.GivenTTL, time.Hour, 2*time.Hour, []fsm.Header{{
			Name: "kind", Value: "close",
		}}
		return p
	}
	step(0, "", &fsm.Lead{Grace: time.Second}, &fsm.Open{Queue: "parts", Partition: 2, Partitions: 4})
	step(time.Millisecond, "settings", &fsm.Configure{
		Queue: "orders", Partitions: 1, Version: 3,
		Settings: fsm.Settings{MaxAttempts: 2, MaxAttemptsSet: true, Overdue: fsm.SpreadOverdue},
	})
	step(time.Millisecond, "puts", put("orders", "a"), put("orders", "b"), put("orders", "c"), put("orders", "d"),
		put("orders", "e"), put("orders", ""))
	step(time.Millisecond, "", later("x"), later("y"), put("gone", "1"), put("mail", "2"), put("mail", "3"))
	g := step(time.Second, "take", &fsm.Reserve{Queues: []string{"orders"}, Max: 5, TTR: time.Minute})[0].Grants
	step(time.Second, "end", &fsm.Ack{Ref: ref(g[0])}, &fsm.Nack{
		Ref: ref(g[1]), Dead: true, Error: "smtp 421",
	}, &fsm.Nack{Ref: ref(g[2]), DelayGiven: true, Delay: time.Minute},
		&fsm.Release{Ref: ref(g[3]), Delay: time.Second}, &fsm.Extend{Ref: ref(g[4]), TTR: time.Hour})
	step(time.Second, "", &fsm.Nack{
		Ref: ref(step(time.Second, "", &fsm.Reserve{Queues: []string{"mail"}, Max: 1})[0].Grants[0]), Dead: true,
		Error: "no",
	})
	step(time.Second, "", &fsm.Cancel{
		Queue: "orders", ID: "x",
	}, &fsm.Reschedule{Queue: "orders", ID: "y", Given: fsm.GivenDelay, Delay: 3 * time.Minute},
		&fsm.Redrive{
			Queue: "orders", Max: 1,
		}, &fsm.Purge{Queue: "mail", States: fsm.Set(fsm.Dead)}, &fsm.DeleteQueue{Queue: "gone"})
	step(10*time.Minute, "", &fsm.Expire{})
	step(time.Second, "", &fsm.Lead{Grace: time.Second})
	if format >= 2 { // a queue of this format, and one that has its default beside one that has not
		failed := step(time.Second, "", put("later", "r"), put("orders", "s"), &fsm.Reserve{
			Queues: []string{"later", "orders"}, Max: 9,
		})[2].Grants
		for _, g := range failed {
			step(time.Second, "", &fsm.Nack{Ref: ref(g), Error: "again"})
		}
	}
	writeLater(format, step, put)
	return log, snapshotBytes(t, m)
}

// writeLater has what the formats from 3 on add.
func writeLater(format fsm.Format, step func(time.Duration, string, ...fsm.Command) []fsm.Result,
	put func(queue, id string) *fsm.Put) {
	if format >= 3 { // jobs that are held, one of them after an attempt that lapsed
		step(time.Second, "", put("held", "h"), put("held", ""), &fsm.Reserve{Queues: []string{"held"}, Max: 1})
		step(time.Hour, "", &fsm.Reserve{Queues: []string{"held"}, Max: 2})
	}
	if format >= 4 {
		writeKeys(step, put)
	}
	if format >= 5 {
		writeFIFO(step, put)
	}
}

// writeFIFO has FIFO jobs in every state with everything that is counted of them, wide priorities in jobs,
// successors and schedules, and a DELAYED job that was kicked before it had a lease.
func writeFIFO(step func(time.Duration, string, ...fsm.Command) []fsm.Result, put func(queue, id string) *fsm.Put) {
	fifo := func(id string, priority int64, delay time.Duration) *fsm.Put {
		p := put("tube", id)
		p.FIFO, p.Given, p.Priority, p.Delay = true, fsm.GivenPriority|fsm.GivenDelay, priority, delay
		return p
	}
	made := step(time.Second, "tube", fifo("", 1024, 0), fifo("", 3, time.Hour), fifo("", fsm.PriorityMax, 0),
		fifo("", -5, time.Hour), fifo("named", 200, 0))
	g := step(time.Second, "", &fsm.ReserveJob{Queue: "tube", Serial: made[0].Serial, TTR: time.Second},
		&fsm.ReserveJob{Queue: "tube", Serial: made[1].Serial},
		&fsm.Reserve{Queues: []string{"tube"}, Max: 1, TTR: time.Hour})
	ref := func(g fsm.Grant) fsm.Ref { return fsm.Ref{Queue: g.Queue, Serial: g.Serial, Fence: g.Fence} }
	next := fifo("named", 1<<20, 0)
	next.OnExisting = fsm.NextExisting
	step(time.Millisecond, "", &fsm.Release{
		Ref: ref(g[1].Grants[0]), Delay: time.Hour, PriorityGiven: true, Priority: 70_000,
	}, next)
	step(2*time.Second, "", &fsm.Kick{Queue: "tube", Serial: made[3].Serial})
	g = step(time.Second, "", &fsm.ReserveJob{Queue: "tube", Serial: made[2].Serial})
	step(time.Second, "", &fsm.Nack{Ref: ref(g[0].Grants[0]), Dead: true, PriorityGiven: true, Priority: 9})
	step(time.Second, "", &fsm.PutSchedule{
		Queue: "cron", Partitions: 1, Name: "wide", Spec: fsm.ScheduleSpec{Cron: "0 * * * *"},
		Next: 1_900_000_000_000_000_000,
		Job:  fsm.Put{Given: fsm.GivenPriority, Priority: 1024, FIFO: true, Body: []byte("wide")},
	})
}

// writeKeys has keys with every kind of memory, jobs that were replaced and redriven, and one with a
// successor.
func writeKeys(step func(time.Duration, string, ...fsm.Command) []fsm.Result, put func(queue, id string) *fsm.Put) {
	keyed := func(id, key string, existing fsm.OnExisting) *fsm.Put {
		p := put("keys", id)
		p.Key, p.OnExisting = key, existing
		return p
	}
	step(time.Second, "", &fsm.Configure{Queue: "keys", Partitions: 1, Version: 1, Settings: fsm.Settings{
		Keys: fsm.KeySettings{Concurrency: 2, Rate: fsm.KeyRate{Count: 1, Per: time.Hour, Burst: 2}, Fair: true},
	}})
	step(time.Second, "keyed", keyed("1", "k1", 0), keyed("2", "k1", 0), keyed("3", "k2", 0), put("keys", "4"))
	step(time.Second, "", &fsm.PauseKey{Queue: "keys", Key: "k3"}, keyed("5", "k3", 0),
		keyed("5", "k3", fsm.ReplaceExisting))
	g := step(time.Second, "", &fsm.Reserve{Queues: []string{"keys"}, Max: 2, TTR: time.Hour})[0].Grants
	step(time.Second, "next", keyed("1", "k1", fsm.NextExisting), keyed("1", "k1", fsm.NextExisting),
		&fsm.Nack{Ref: fsm.Ref{Queue: g[1].Queue, Serial: g[1].Serial, Fence: g[1].Fence}, Dead: true})
	step(time.Second, "", &fsm.Redrive{Queue: "keys", Max: 1}, &fsm.PurgeKey{
		Queue: "keys", Key: "k1", States: fsm.Set(fsm.Ready),
	})
	nominal := fsm.Time(1_800_004_000_000_000_000)
	schedule := step(time.Second, "schedules", &fsm.PutSchedule{
		Queue: "cron", Partitions: 1, Name: "report", Spec: fsm.ScheduleSpec{Cron: "0 * * * *"},
		Policy: fsm.SchedulePolicy{Overlap: fsm.OverlapSkip}, Job: fsm.Put{Body: []byte("report")}, Next: nominal,
		ZoneData: "2026a",
	}, &fsm.PutSchedule{Queue: "cron", Partitions: 1, Name: "gone", Next: nominal})
	step(2*time.Hour, "", &fsm.Fire{
		Queue: "cron", Name: "report", Serial: schedule[0].Serial, Version: schedule[0].Version, Nominal: nominal,
		Missed: 1, LastMissed: nominal,
		Put: nominal + 1, Due: nominal + 2, Next: nominal.Add(24 * time.Hour), ZoneData: "2026b",
	}, &fsm.RunSchedule{Queue: "cron", Name: "report", Times: []fsm.Time{5}})
	step(time.Second, "", &fsm.DeleteSchedule{Queue: "cron", Name: "gone"}, &fsm.PauseSchedules{
		Queue: "cron", Names: []string{"report"}, Note: "paused",
	})
}
