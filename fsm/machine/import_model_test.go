package machine_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/backup"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/digest"
	"github.com/belfrydb/belfry/fsm/machine"
)

// exported returns the records of a machine that an Import takes.
func exported(m *machine.Machine) (records []fsm.BackupRecord, err error) {
	s := m.Snapshot()
	defer m.Release(s)
	err = s.Export(0, func(*fsm.QueueRecord) bool { return true }, func(r fsm.BackupRecord) error {
		if r.Kind == fsm.BackupQueue || r.Kind == fsm.BackupJob || r.Kind == fsm.BackupTombstone ||
			r.Kind == fsm.BackupKey || r.Kind == fsm.BackupSchedule {
			records = append(records, fsm.BackupRecord{Kind: r.Kind, Data: bytes.Clone(r.Data)})
		}
		return nil
	})
	return records, err
}

func (g *generator) imported(c *fsm.Import) event {
	g.step()
	e := event{stamp: g.now, requests: []fsm.Request{{Commands: []fsm.Command{c}}}}
	if g.chance(20) {
		e.snapshot = restored
	}
	if g.chance(30) { // refused meanwhile, but for the last
		other := pick[fsm.Command](g, g.put(), &fsm.Expire{}, g.bulk(), &fsm.Lead{Grace: g.duration()})
		e.requests = append(e.requests, fsm.Request{Caller: "x", ID: g.requestID(), Commands: []fsm.Command{other}})
	}
	return e
}

// restoreInto has a duel import what the machine of another one holds, and go on from there.
func restoreInto(seed uint64) error {
	source, cfg := newGenerator(seed)
	from := newDuel(cfg, asItIs())
	source.m = from.model
	for range 40 {
		e := source.next()
		list, err := from.step(&e)
		if err != nil {
			return fmt.Errorf("the source: %w", err)
		}
		source.saw(e, list)
	}
	records, err := exported(from.machine.Machine)
	if err != nil {
		return err
	}
	g, cfg := newGenerator(seed + 1<<32)
	cfg.QueuesMax, g.now = 0, max(source.now, from.model.Clock)
	d := newDuel(cfg, asItIs())
	g.m = d.model
	d.model.Speak(fsm.LatestFormat) // as the cluster does whose records these may be
	d.machine.format = fsm.LatestFormat
	begin := &fsm.Import{
		Restore: [16]byte{1}, Step: fsm.ImportBegin, Since: from.model.Clock,
		Overdue: fsm.ImportOverdue(g.r.IntN(4)), Period: g.duration(),
	}
	g.now += fsm.Time(g.duration())
	imports := []*fsm.Import{begin, begin}
	for i, part := range slices.Collect(slices.Chunk(records, 1+g.r.IntN(5))) {
		c := &fsm.Import{
			Restore: [16]byte{1}, Step: fsm.ImportRecords, Sequence: uint64(i) + 1, Floor: from.model.Serial, Records: part,
		}
		imports = append(imports, c)
		if g.chance(20) {
			imports = append(imports, pick(g, imports...))
		}
	}
	end := &fsm.Import{Restore: [16]byte{1}, Step: fsm.ImportEnd, Floor: from.model.Serial, Total: uint64(len(records))}
	imports = append(imports, &fsm.Import{
		Restore: [16]byte{1}, Step: fsm.ImportEnd, Total: uint64(len(records)) + 1,
	}, end, end, begin)
	for _, c := range imports {
		e := g.imported(c)
		list, err := d.step(&e)
		if err != nil {
			return fmt.Errorf("%+v: %w", c, err)
		}
		if c == end && (list[0].Code != fsm.OK || list[0].More) {
			return fmt.Errorf("the end of %d records was answered %+v", len(records), list[0])
		}
	}
	for range 60 {
		e := g.next()
		list, err := d.step(&e)
		if err != nil {
			return fmt.Errorf("after the restore: %w", err)
		}
		g.saw(e, list)
	}
	return nil
}

// TestModelImports holds the machine against the model over restores of random states, and on
// random commands after them.
func TestModelImports(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seedsDefault / 25) {
		if err := restoreInto(seed + 1); err != nil {
			t.Fatalf("seed %d: %v", seed+1, err)
		}
	}
}

// TestImportKeepsEverything: without overdue jobs a restore changes no job and no tombstone, also
// if two shards become one.
func TestImportKeepsEverything(t *testing.T) {
	t.Parallel()
	all := machine.New(fsm.Config{Seed: 3})
	stamp := after(5 * time.Minute) // within the dedup window
	apply := func(m *machine.Machine, stamp fsm.Time, commands ...fsm.Command) []fsm.Result {
		t.Helper()
		results, err := m.Apply(m.Index()+1,
			codec.AppendEntry(nil, stamp, [][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: commands})}))
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	var records []fsm.BackupRecord
	var leases []fsm.Ref
	for _, name := range []string{"one", "two"} {
		m := machine.New(fsm.Config{Seed: 2})
		put := func(id string) *fsm.Put { return &fsm.Put{Queue: name, Partitions: 1, ID: id, Body: []byte(id)} }
		later := put("later")
		later.Given, later.Delay = fsm.GivenDelay, 3*time.Hour
		apply(m, start, put(""), put("a"), put("b"), put("c"), later)
		grants := apply(m, start, &fsm.Reserve{Queues: []string{name}, Max: 3, TTR: 2 * time.Hour})[0].Grants
		refs := make([]fsm.Ref, len(grants))
		for i, g := range grants {
			refs[i] = fsm.Ref{Queue: g.Queue, Serial: g.Serial, Fence: g.Fence}
		}
		apply(m, start, &fsm.Nack{Ref: refs[1], Dead: true, Error: "no"}, &fsm.Ack{Ref: refs[2]})
		leases = append(leases, refs[0])
		part, err := exported(m)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, part...)
	}
	id := [16]byte{4}
	apply(all, stamp, &fsm.Import{Restore: id, Step: fsm.ImportBegin, Since: start})
	if got := apply(all, stamp, &fsm.Put{Queue: "one", Partitions: 1})[0].Code; got != fsm.Restoring {
		t.Errorf("a put while the restore is open: code %d", got)
	}
	apply(all, stamp, &fsm.Import{Restore: id, Step: fsm.ImportRecords, Sequence: 1, Floor: 8, Records: records})
	end := &fsm.Import{Restore: id, Step: fsm.ImportEnd, Floor: 8, Total: uint64(len(records))}
	if got := apply(all, stamp, end)[0]; got.Code != fsm.OK || got.More {
		t.Fatalf("the end: %+v", got)
	}
	again, err := exported(all)
	if err != nil {
		t.Fatal(err)
	}
	if want, got := logical(t, records), logical(t, again); want != got {
		t.Errorf("the sum of all records is %016x, was %016x", got, want)
	}
	for _, ref := range leases {
		if got := apply(all, stamp, &fsm.Ack{Ref: ref})[0].Code; got != fsm.OK {
			t.Errorf("a lease from before the backup, %+v: code %d", ref, got)
		}
	}
	// The two leases have the same serial and fence, which must not meet in what is remembered of
	// finished leases.
	var raw bytes.Buffer
	s := all.Snapshot()
	if _, err := s.WriteTo(&raw); err != nil {
		t.Fatal(err)
	}
	all.Release(s)
	if back, err := machine.Restore(fsm.Config{}, &raw); err != nil || back.Digest() != all.Digest() ||
		leases[0].Fence != leases[1].Fence {
		t.Errorf("a snapshot after acks of equal leases %+v: %v", leases, err)
	}
	if got := apply(all, stamp, &fsm.Put{Queue: "one", Partitions: 1})[0].Serial; got <= 8 {
		t.Errorf("the first job after the restore has serial %d", got)
	}
}

// logical is the sum of the hashes of jobs, tombstones and queues, without what belongs to one
// cluster.
func logical(t *testing.T, records []fsm.BackupRecord) (sum uint64) {
	t.Helper()
	for i := range records {
		switch r := &records[i]; r.Kind {
		case fsm.BackupQueue:
			q, err := backup.ParseQueue(r)
			if err != nil {
				t.Fatal(err)
			}
			q.CreateSeq, q.Version = 0, 0
			sum += digest.Queue(&q)
		case fsm.BackupJob:
			j, content, err := backup.ParseJob(r)
			if err != nil {
				t.Fatal(err)
			}
			sum += digest.Job(&j, content)
		case fsm.BackupTombstone:
			s, err := backup.ParseTombstone(r)
			if err != nil {
				t.Fatal(err)
			}
			sum += digest.Tombstone(&s)
		default:
		}
	}
	return sum
}

// TestImportAboveItsFloor: no backup, of whatever origin, can bring a serial or a fence that the
// shard would give out again.
func TestImportAboveItsFloor(t *testing.T) {
	t.Parallel()
	apply := func(m *machine.Machine, c fsm.Command) fsm.Result {
		t.Helper()
		results, err := m.Apply(m.Index()+1,
			codec.AppendEntry(nil, start, [][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: []fsm.Command{c}})}))
		if err != nil {
			t.Fatal(err)
		}
		return results[0]
	}
	from := machine.New(fsm.Config{})
	apply(from, &fsm.Put{Queue: "one", Partitions: 1}) // serial 2, as the queue is 1
	apply(from, &fsm.Put{Queue: "one", Partitions: 1, ID: "x"})
	grants := apply(from, &fsm.Reserve{Queues: []string{"one"}, Max: 2, TTR: time.Hour}).Grants
	apply(from, &fsm.Ack{Ref: fsm.Ref{Queue: "one", Serial: grants[1].Serial, Fence: grants[1].Fence}})
	records, err := exported(from)
	if err != nil || len(records) != 3 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for floor, want := range map[uint64]uint64{grants[0].Serial - 1: 1, grants[0].Fence - 1: 2, grants[0].Fence: 3} {
		m := machine.New(fsm.Config{})
		apply(m, &fsm.Import{Step: fsm.ImportBegin})
		if got := apply(m, &fsm.Import{
			Step: fsm.ImportRecords, Sequence: 1, Floor: floor, Records: records,
		}).Serial; got != want {
			t.Errorf("with the floor %d there are %d records, want %d", floor, got, want)
		}
	}
}
