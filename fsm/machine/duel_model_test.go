package machine_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/fsm/model"
	"github.com/belfrydb/belfry/fsm/snapshot"
)

// duel applies the same events to the machine and to the model and compares what can be seen of
// them.
type duel struct {
	model   *model.Model
	machine *machineShard
	cfg     fsm.Config
	plant   plant // what is wrong with the model, usually nothing
	open    []*openSnapshot
	seen    sightings
	sent    map[requestName][]fsm.Request // the last of each name
}

// plant is a rule changed in what the model is asked or answers, to see whether a duel notices.
type plant struct {
	name   string
	config func(*fsm.Config)
	apply  func(m *model.Model, stamp fsm.Time, requests []fsm.Request) []fsm.Result
}

// asItIs is the model without a change.
func asItIs() plant {
	return plant{config: func(*fsm.Config) {}, apply: (*model.Model).Apply}
}

// openSnapshot is a snapshot whose pages the machine has pinned while it goes on.
type openSnapshot struct {
	snapshot *snapshot.Snapshot
	owner    *machine.Machine
	atOnce   []byte
	entries  int         // that it stays open for
	beside   chan []byte // what a goroutine writes meanwhile, nil if there is none
}

// snapshotEntries is how many entries a snapshot stays open for; two are often open at a time.
const snapshotEntries = 12

func newDuel(cfg fsm.Config, wrong plant) *duel {
	d := &duel{
		machine: wrap(machine.New(cfg)), cfg: cfg, plant: wrong, seen: newSightings(), sent: map[requestName][]fsm.Request{},
	}
	wrong.config(&cfg)
	d.model = model.New(cfg)
	return d
}

func wrap(m *machine.Machine) *machineShard {
	return &machineShard{Machine: m, failed: func(err error) { panic(err) }}
}

// step carries out one event. The error says how machine and model differ.
func (d *duel) step(e *event) (list []fsm.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if err := errors.Join(d.snapshot(e.snapshot), d.ageSnapshots(1)); err != nil {
		return nil, err
	}
	if e.format != 0 {
		d.model.Speak(e.format)
		d.machine.format = e.format
	}
	if d.machine.format < 3 { // such an entry names no clients
		e.requests = slices.Clone(e.requests)
		for i := range e.requests {
			e.requests[i].Client = ""
		}
	}
	e.requests = inFormat(d.machine.format, e.requests)
	most, bounded := d.bound(e)
	refusals, knows := d.refusals(e), d.knows(e)
	queues, foretold := d.queuesAfter(e)
	want := d.plant.apply(d.model, e.stamp, e.requests)
	got := d.machine.Apply(e.stamp, e.requests)
	if bounded && uint64(len(got[0].Grants)) > most {
		return nil, fmt.Errorf("%d granted, but only %d were available", len(got[0].Grants), most)
	}
	if n := len(refusals); !slices.EqualFunc(refusals, got[:n], sameResult) {
		return nil, fmt.Errorf("refused beforehand with %+v, but answered %+v", refusals, got[:n])
	}
	for _, r := range refusals {
		d.seen.refusals[r.Code]++
	}
	if made := func(r fsm.Result) bool {
		return r.Created && !r.Replayed
	}; knows && slices.ContainsFunc(got[:len(e.requests[0].Commands)], made) {
		return nil, fmt.Errorf("the request was known, but made jobs: %+v", got)
	}
	if held, _ := d.machine.QueueRoom(); foretold && held != queues {
		return nil, fmt.Errorf("%d queues after the puts, but %d were foretold", held, queues)
	}
	if err := d.usage(); err != nil {
		return nil, err
	}
	d.seen.add(e, want)
	d.keep(e.requests)
	if !slices.EqualFunc(want, got, sameResult) {
		return nil, fmt.Errorf("results (-model +machine):\n%s", cmp.Diff(want, got, resultOptions()...))
	}
	if want, got := d.model.Digest(), d.machine.Digest(); want != got {
		return nil, fmt.Errorf("digest is %016x, the model's %016x\n%s", got, want, d.readAll())
	}
	wantNext, wantOK := d.model.NextDeadline()
	if next, ok := d.machine.NextDeadline(); next != wantNext || ok != wantOK {
		return nil, fmt.Errorf("next deadline is %d (%t), the model's %d (%t)", next, ok, wantNext, wantOK)
	}
	if want, next := d.model.NextFiring(), d.machine.NextFiring(); next != want {
		return nil, fmt.Errorf("next firing is %d, the model's %d", next, want)
	}
	if err := d.model.Check(); err != nil {
		return nil, fmt.Errorf("the model is broken: %w", err)
	}
	if e.reads != nil {
		return want, d.read(e.reads)
	}
	return want, nil
}

// sameResult compares what a caller sees of two results, much faster than cmp does.
func sameResult(a, b fsm.Result) bool {
	return a.Code == b.Code && a.State == b.State && a.Created == b.Created && a.More == b.More &&
		a.Replayed == b.Replayed &&
		a.Partition == b.Partition && a.Serial == b.Serial && a.Due == b.Due && a.Until == b.Until && a.Count == b.Count &&
		a.Wait == b.Wait && a.Replaced == b.Replaced && a.Version == b.Version && slices.Equal(a.Grants, b.Grants)
}

// TestModelSameResult fails for a field of a result that sameResult forgets.
func TestModelSameResult(t *testing.T) {
	t.Parallel()
	for i := range reflect.TypeFor[fsm.Result]().NumField() {
		var changed fsm.Result
		field := reflect.ValueOf(&changed).Elem().Field(i)
		switch {
		case !field.CanSet():
			continue // a caller does not see it
		case field.Kind() == reflect.Bool:
			field.SetBool(true)
		case field.Kind() == reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		case field.CanInt():
			field.SetInt(1)
		default:
			field.SetUint(1)
		}
		if sameResult(changed, fsm.Result{}) || !sameResult(changed, changed) {
			t.Errorf("field %s is not compared", reflect.TypeFor[fsm.Result]().Field(i).Name)
		}
	}
}

// inFormat returns requests as a leader logs them who speaks a format.
func inFormat(format fsm.Format, requests []fsm.Request) []fsm.Request {
	if format < fsm.KeysFormat {
		requests = withoutKeys(requests)
	}
	if format < fsm.FIFOFormat {
		requests = withoutFIFO(requests)
	}
	return requests
}

// withoutKeys returns requests as a leader of an earlier format logs them.
func withoutKeys(requests []fsm.Request) []fsm.Request {
	requests = slices.Clone(requests)
	for i := range requests {
		commands := slices.Clone(requests[i].Commands)
		for j, c := range commands {
			switch c := c.(type) {
			case *fsm.Put:
				p := *c
				p.Key, p.OnExisting, p.MaxWait, p.IfVersion = "", 0, 0, 0
				commands[j] = &p
			case *fsm.Configure:
				p := *c
				p.Settings.Keys = fsm.KeySettings{}
				commands[j] = &p
			case *fsm.Cancel:
				p := *c
				p.Key = ""
				commands[j] = &p
			case *fsm.Reschedule:
				p := *c
				p.Key = ""
				commands[j] = &p
			case *fsm.PauseKey, *fsm.PurgeKey, *fsm.PutSchedule, *fsm.DeleteSchedule, *fsm.PauseSchedules, *fsm.Fire,
				*fsm.RunSchedule:
				commands[j] = &fsm.Expire{}
			}
		}
		requests[i].Commands = commands
	}
	return requests
}

// bound returns what Available promises if the entry is nothing but one Reserve of one queue.
func (d *duel) bound(e *event) (most uint64, ok bool) {
	if len(e.requests) != 1 || len(e.requests[0].Commands) != 1 || e.requests[0].ID != "" {
		return 0, false
	}
	c, ok := e.requests[0].Commands[0].(*fsm.Reserve)
	if !ok || len(c.Queues) != 1 {
		return 0, false
	}
	most, _ = d.machine.Available(c.Queues[0], max(e.stamp, d.machine.Clock()))
	return most, true
}

// refusals are what Refuses says of the first request of an entry.
func (d *duel) refusals(e *event) []fsm.Result {
	if len(e.requests) == 0 {
		return nil
	}
	refusals, _ := d.machine.Refuses(&e.requests[0], max(e.stamp, d.machine.Clock()))
	return refusals
}

// knows returns whether the machine says of the first request that it would make no job.
func (d *duel) knows(e *event) bool {
	return len(e.requests) > 0 && d.machine.Knows(&e.requests[0], max(e.stamp, d.machine.Clock()))
}

// queuesAfter returns how many queues there are after an entry of one request of puts, from what
// QueuesToCreate returns.
func (d *duel) queuesAfter(e *event) (queues int, ok bool) {
	if len(e.requests) != 1 || slices.ContainsFunc(e.requests[0].Commands, func(c fsm.Command) bool {
		return c.Kind() != fsm.KindPut
	}) {
		return 0, false
	}
	created := d.machine.QueuesToCreate(&e.requests[0], max(e.stamp, d.machine.Clock()))
	slices.Sort(created)
	held, most := d.machine.QueueRoom()
	return min(most, held+len(slices.Compact(created))), true
}

// usage compares what a namespace holds with what its queues do, and how many there are.
func (d *duel) usage() error {
	var want fsm.Usage
	count := map[string]int{}
	for _, q := range d.machine.Queues("", 100) {
		count[fsm.NamespaceOf(q.Name)]++
		if fsm.NamespaceOf(q.Name) == "ns" {
			want.Jobs += q.Counts.Jobs()
			want.Bytes += q.Counts.Bytes
			want.InFlight += q.Counts.Reserved
		}
	}
	if got := d.machine.UsageOf("ns"); got != want {
		return fmt.Errorf("namespace ns has %+v, its queues %+v", got, want)
	}
	if ns, plain := d.machine.QueuesOf("ns"), d.machine.QueuesOf(""); ns != count["ns"] || plain != count[""] {
		return fmt.Errorf("%d queues are counted in namespace ns and %d in none, there are %+v", ns, plain, count)
	}
	return nil
}

// snapshot takes a snapshot in one of the ways.
func (d *duel) snapshot(kind snapshotKind) error {
	if kind == noSnapshot {
		return nil
	}
	s := &openSnapshot{snapshot: d.machine.Snapshot(), owner: d.machine.Machine, entries: snapshotEntries}
	var err error
	if s.atOnce, err = written(s.snapshot); err != nil {
		return err
	}
	d.open = append(d.open, s)
	d.seen.snapshots++
	switch kind {
	case restored:
		// Another seed for the tables, as in another process.
		cfg := d.cfg
		cfg.Seed += uint64(len(s.atOnce))
		m, err := machine.Restore(cfg, bytes.NewReader(s.atOnce))
		if err != nil {
			return err
		}
		if m.Digest() != s.snapshot.Digest() || m.Index() != d.machine.Index() || m.Clock() != d.machine.Clock() {
			return fmt.Errorf("restored to digest %016x at index %d, was %016x at %d", m.Digest(), m.Index(), d.machine.Digest(),
				d.machine.Index())
		}
		d.machine = &machineShard{Machine: m, format: d.machine.format, failed: d.machine.failed}
	case writtenBeside:
		s.beside = make(chan []byte, 1)
		go func() {
			b, err := written(s.snapshot)
			if err != nil {
				b = nil
			}
			s.beside <- b
		}()
	case writtenLater, noSnapshot:
	}
	return nil
}

func written(s *snapshot.Snapshot) ([]byte, error) {
	var b bytes.Buffer
	n, err := s.WriteTo(&b)
	if err == nil && n != int64(b.Len()) {
		err = fmt.Errorf("%d bytes written, %d reported", b.Len(), n)
	}
	return b.Bytes(), err
}

// ageSnapshots lets entries pass for the open snapshots and checks and releases those that were
// open long enough: what they write now, and what was written beside the entries meanwhile, is what
// they wrote at once.
func (d *duel) ageSnapshots(entries int) error {
	var errs []error
	stay := d.open[:0]
	for _, s := range d.open {
		if s.entries -= entries; s.entries > 0 {
			stay = append(stay, s)
			continue
		}
		errs = append(errs, s.finish())
	}
	d.open = stay
	return errors.Join(errs...)
}

func (s *openSnapshot) finish() error {
	var errs []error
	if s.beside != nil {
		if b := <-s.beside; !bytes.Equal(b, s.atOnce) {
			errs = append(errs, errors.New("a snapshot that was written beside entries differs from what was written at once"))
		}
	}
	later, err := written(s.snapshot)
	if !bytes.Equal(later, s.atOnce) {
		errs = append(errs, errors.New("a snapshot that was written later differs from what was written at once"))
	}
	s.owner.Release(s.snapshot)
	return errors.Join(append(errs, err)...)
}

// close ends what is open. It must be called, since a goroutine may be writing.
func (d *duel) close() error { return d.ageSnapshots(snapshotEntries) }
