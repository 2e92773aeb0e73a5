package machine_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfrydb/belfry/fsm"
)

// read compares what readers see.
func (d *duel) read(plan *readPlan) error {
	d.seen.reads++
	now := d.model.Clock.Add(plan.ahead)
	errs := []error{d.readQueues(now), d.readAnswers(now), d.readStats()}
	for _, name := range queueNames() {
		errs = append(errs, d.readFirst(name, now), d.readJobs(name, now),
			d.readLists(name, now, plan), d.readKeys(name, now, plan),
			d.readSchedules(name, now, plan))
	}
	return errors.Join(errs...)
}

// differ returns an error if a read of the machine is not what the model says.
func differ(what string, want, got any) error {
	if reflect.DeepEqual(want, got) { // cmp is slow, and rarely has to say what differs
		return nil
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		return fmt.Errorf("%s (-model +machine):\n%s", what, diff)
	}
	return nil
}

// tidy makes empty lists nil, which of the two they are has no meaning.
func tidy(j fsm.Job) fsm.Job {
	if len(j.Headers) == 0 {
		j.Headers = nil
	}
	if len(j.RetryDelays) == 0 {
		j.RetryDelays = nil
	}
	if len(j.Body) == 0 {
		j.Body = nil
	}
	if j.Next != nil {
		next := *j.Next
		next.Job = tidy(next.Job)
		j.Next = &next
	}
	return j
}

func tidyAll(jobs []fsm.Job) []fsm.Job {
	var list []fsm.Job
	for _, j := range jobs {
		list = append(list, tidy(j))
	}
	return list
}

func (d *duel) readQueues(now fsm.Time) error {
	var errs []error
	for _, name := range queueNames() {
		want, wantOK := d.model.Queue(name, now)
		got, ok := d.machine.Queue(name, now)
		errs = append(errs, differ("Queue", want, got), differ("Queue found", wantOK, ok))

		wantN, wantNext := d.model.Available(name, now)
		n, next := d.machine.Available(name, now)
		errs = append(errs, differ("Available", []any{wantN, wantNext}, []any{n, next}))
		if withheld := d.machine.Withheld(name, now); withheld && n > 0 || !withheld && n == 0 && got.Counts.Ready > 0 {
			errs = append(errs, fmt.Errorf("Withheld is %v of %s, and %d of %d ready jobs are available", withheld, name, n,
				got.Counts.Ready))
		}
	}
	var pages []fsm.Queue
	for after := ""; ; {
		page := d.machine.Queues(after, 2)
		pages = append(pages, page...)
		if len(page) < 2 {
			break
		}
		after = page[1].Name
	}
	return errors.Join(append(errs, differ("Queues", d.model.Queues(d.model.Clock), pages))...)
}

// jobsMax bounds how many jobs of a queue are read.
const jobsMax = 60

func (d *duel) readJobs(queue string, now fsm.Time) error {
	var errs []error
	ids := append([]string{"0-1", "1-3", "00-1", "-", "burst0-7"}, jobIDs()...)
	for _, j := range d.model.Jobs(queue) {
		if len(ids) >= jobsMax {
			break
		}
		ids = append(ids, j.ID)
		ref := fsm.Ref{Queue: queue, Partition: j.Partition, Serial: j.Serial, Fence: j.Fence}
		want, wantOK := d.model.Held(ref)
		got, ok := d.machine.Held(ref)
		if wantOK || ok {
			errs = append(errs, differ("Held", tidy(want), tidy(got)), differ("Held found", wantOK, ok))
		}
	}
	for _, id := range ids {
		want, wantOK := d.model.Job(queue, id, now)
		got, ok := d.machine.Job(queue, id, now)
		if wantOK || ok {
			errs = append(errs, differ("Job", tidy(want), tidy(got)), differ("Job found", wantOK, ok))
		}
	}
	return errors.Join(errs...)
}

// pagesMax bounds how far a listing is followed.
const pagesMax = 20

func (d *duel) readLists(queue string, now fsm.Time, plan *readPlan) error {
	for _, state := range []fsm.State{fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead, fsm.Acked} {
		query := &fsm.ListQuery{
			Queue: queue, State: state, DueAfter: plan.dueAfter, DueBefore: plan.dueBefore, Max: plan.pageSize,
		}
		for range pagesMax {
			want, wantMore := d.model.List(query, now)
			got, more := d.machine.List(query, now)
			if err := errors.Join(differ("List", tidyAll(want), tidyAll(got)),
				differ("List has more", wantMore, more)); err != nil {
				return fmt.Errorf("%+v: %w", *query, err)
			}
			if !more {
				break
			}
			last := got[len(got)-1]
			query.After = last.ListPlace()
			page := d.machine.Answer(query, now)
			if n := len(page.Jobs); n > 0 && page.Last != page.Jobs[n-1].ListPlace() {
				return fmt.Errorf("a page ends at %+v", page.Last)
			}
		}
		if err := d.readSearch(query, now, plan); err != nil {
			return err
		}
	}
	return nil
}

// readFirst asks for the first job in each state, and for jobs by their serials.
func (d *duel) readFirst(queue string, now fsm.Time) error {
	var errs []error
	same := func(what string, want fsm.Job, wantOK bool, got fsm.Reading) {
		if len(got.Jobs) > 1 || wantOK != (len(got.Jobs) == 1) {
			errs = append(errs, fmt.Errorf("%s: %d jobs, want one: %v", what, len(got.Jobs), wantOK))
			return
		}
		if wantOK {
			d.seen.first++
			want, v := tidy(want), tidy(got.Jobs[0])
			want.TTR, want.MaxAttempts, want.RetryDelays = v.TTR, v.MaxAttempts, v.RetryDelays // those that apply
			if want.Next != nil {
				want.Next.Body = nil
			}
			errs = append(errs, differ(what, want, v))
		}
	}
	for _, state := range []fsm.State{fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead} {
		query := &fsm.FirstQuery{Queue: queue, State: state}
		want, ok := d.model.First(query, now)
		same(fmt.Sprintf("%+v", query), want, ok, d.machine.Answer(query, now))
	}
	for _, j := range d.model.Jobs(queue)[:min(3, len(d.model.Jobs(queue)))] {
		want, ok := d.model.BySerial(j.Serial, now)
		same(fmt.Sprintf("serial %d", j.Serial), want, ok, d.machine.Answer(&fsm.SerialQuery{Serial: j.Serial}, now))
	}
	return errors.Join(errs...)
}

// readKeys follows queries for the keys of a queue to their end.
func (d *duel) readKeys(queue string, now fsm.Time, plan *readPlan) error {
	for _, query := range []fsm.KeysQuery{
		{}, {Prefix: "k"}, {Prefix: "k1"}, {Prefix: "none"}, {State: fsm.Delayed}, {State: fsm.Ready}, {State: fsm.Reserved},
		{State: fsm.Dead}, {State: fsm.Acked},
	} {
		query.Queue, query.Scan = queue, plan.scan
		want := d.model.Keys(&query, now)
		var found []fsm.Key
		for page := 0; ; page++ {
			got := d.machine.Answer(&query, now)
			if len(got.Keys) > query.Scan || page > jobsMax+len(d.model.Jobs(queue)) {
				return fmt.Errorf("%+v: page %d has %d keys", query, page, len(got.Keys))
			}
			found = append(found, got.Keys...)
			if query.From = got.Next; query.From == 0 {
				break
			}
		}
		slices.SortFunc(found, func(a, b fsm.Key) int { return strings.Compare(a.Name, b.Name) })
		if err := differ("Keys", want, found); err != nil {
			return fmt.Errorf("%+v: %w", query, err)
		}
	}
	return nil
}

// readSearch follows a search through a list to its end.
func (d *duel) readSearch(list *fsm.ListQuery, now fsm.Time, plan *readPlan) error {
	fifth := len(d.model.Jobs(list.Queue)) / 5
	query := &fsm.SearchQuery{ListQuery: *list, Match: plan.match, Scan: plan.scan + fifth}
	query.After, query.Max = fsm.Cursor{}, plan.pageSize+fifth
	want, scanned := d.model.Search(query, now)
	most := 4*int(scanned) + pagesMax // of pages
	var found []fsm.Job
	for page := 0; ; page++ {
		got := d.machine.Answer(query, now)
		if len(got.Jobs) > query.Max || int(got.Scanned) > query.Scan || page > most {
			return fmt.Errorf("%+v: page %d has %d jobs of %d", *query, page, len(got.Jobs), got.Scanned)
		}
		for i := range got.Jobs { // what applies to a job is not of the search
			found = append(found, d.stored(query.Queue, got.Jobs[i], now))
		}
		scanned -= got.Scanned
		query.After = got.Last
		if !got.More {
			break
		}
	}
	d.seen.found += len(found)
	if err := errors.Join(differ("Search", tidyAll(want), tidyAll(found)),
		differ("jobs not looked at", uint64(0), scanned)); err != nil {
		return fmt.Errorf("%+v: %w", *query, err)
	}
	return nil
}

// stored returns a job of a search as the machine has it, for its body and options as they are stored.
func (d *duel) stored(queue string, found fsm.Job, now fsm.Time) fsm.Job {
	j, _ := d.machine.Job(queue, found.ID, now)
	if j.Serial != found.Serial { // of another key
		place := found.ListPlace()
		list, _ := d.machine.List(&fsm.ListQuery{
			Queue: queue, State: found.State, After: fsm.Cursor{Due: place.Due, Serial: place.Serial - 1}, Max: 1,
		}, now)
		j = list[0]
	}
	j.BodyBytes = found.BodyBytes
	return j
}

// readSchedules follows the schedules of a queue page by page, and asks for each.
func (d *duel) readSchedules(queue string, now fsm.Time, plan *readPlan) error {
	var errs []error
	for _, prefix := range []string{"", "s", "none"} {
		var want, found []fsm.Schedule
		for _, s := range d.model.Schedules(queue) {
			if strings.HasPrefix(s.Name, prefix) {
				want = append(want, s)
			}
		}
		query := &fsm.SchedulesQuery{Queue: queue, Prefix: prefix, Max: plan.pageSize}
		for range 1 + len(want) {
			got := d.machine.Answer(query, now)
			found = append(found, got.Schedules...)
			if more := len(found) < len(want); got.More != more || len(got.Schedules) > query.Max {
				errs = append(errs, fmt.Errorf("%+v: a page of %d, more is %v", *query, len(got.Schedules), got.More))
			}
			if !got.More {
				break
			}
			query.After = found[len(found)-1].Name
		}
		for i := range want {
			one := d.machine.Answer(&fsm.ScheduleQuery{Queue: queue, Name: want[i].Name}, now)
			errs = append(errs, differ("Schedule", []fsm.Schedule{want[i]}, one.Schedules))
			want[i].Job.Body = nil
		}
		d.seen.schedules += len(found)
		errs = append(errs, differ("Schedules", want, found))
	}
	named := d.machine.Answer(&fsm.SchedulesQuery{Queue: queue, Names: []string{"s2", "none", "s1"}}, now)
	want := d.model.Schedules(queue)
	slices.Reverse(want)
	for i := range want {
		want[i].Job.Body = nil
	}
	errs = append(errs, differ("named schedules", want, named.Schedules))
	none := d.machine.Answer(&fsm.ScheduleQuery{Queue: queue, Name: "none"}, now)
	return errors.Join(append(errs, differ("a schedule that is not there", 0, len(none.Schedules)))...)
}

func (d *duel) readAnswers(now fsm.Time) error {
	var errs []error
	recall := func(r *fsm.Request) {
		want, wantCode := d.model.Recall(r, now)
		got, code := d.machine.Recall(r, now)
		errs = append(errs, differ("Recall", want, got), differ("code of Recall", wantCode, code))
		d.seen.recalls[recalled{granted: len(want) > 0, code: wantCode}]++
	}
	for _, caller := range []string{"x", "y"} {
		for _, id := range []string{"r1", "r2", "r3", "none"} {
			sent := d.sent[requestName{caller, id}]
			for i := range sent {
				recall(&sent[i])
			}
			recall(&fsm.Request{Caller: caller, ID: id})
		}
	}
	return errors.Join(errs...)
}

// requestName is what makes two requests attempts at the same one.
type requestName struct{ caller, id string }

// sentMax is how many of the requests of one name are kept.
const sentMax = 3

// keep notes the requests that a repeat can be made of.
func (d *duel) keep(requests []fsm.Request) {
	for _, r := range requests {
		if r.ID == "" {
			continue
		}
		name := requestName{r.Caller, r.ID}
		d.sent[name] = append(d.sent[name][max(0, len(d.sent[name])-sentMax+1):], r)
	}
}

func (d *duel) readStats() error {
	got, want := d.machine.Stats(), d.model.Stats()
	got.BlobBytes = 0
	// A key that has got a token since the last Reserve may count as blocked.
	least := want.KeysBlocked[fsm.BlockedByRate]
	most := least
	for _, name := range queueNames() {
		q, _ := d.model.Queue(name, d.model.Clock)
		for _, k := range d.model.Keys(&fsm.KeysQuery{Queue: name}, d.model.Clock) {
			if q.Settings.Keys.Rate.Count > 0 && k.Ready > 0 && k.Blocked == fsm.NotBlocked {
				most++
			}
		}
	}
	if n := got.KeysBlocked[fsm.BlockedByRate]; n < least || n > most {
		return fmt.Errorf("%d keys count as blocked by their rate, where %d to %d are", n, least, most)
	}
	got.KeysBlocked[fsm.BlockedByRate] = least
	return differ("Stats", want, got)
}

// readAll says in which records machine and model differ, after their digests did.
func (d *duel) readAll() string {
	var b strings.Builder
	now := d.model.Clock
	for _, err := range []error{d.readQueues(now), d.readStats(), d.readAnswers(now)} {
		if err != nil {
			fmt.Fprintln(&b, err)
		}
	}
	for _, name := range queueNames() {
		if err := d.readJobs(name, now); err != nil {
			fmt.Fprintln(&b, err)
		}
	}
	return b.String()
}
