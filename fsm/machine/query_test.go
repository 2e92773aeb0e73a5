package machine

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/google/go-cmp/cmp"
)

// asked is a machine that queries are put to.
type asked struct {
	*testing.T
	m   *Machine
	now fsm.Time
}

func newAsked(t *testing.T) *asked {
	return &asked{T: t, m: New(fsm.Config{Seed: 1}), now: 1_800_000_000_000_000_000}
}

// do applies a request of caller "ns" and returns its first result.
func (a *asked) do(id string, commands ...fsm.Command) fsm.Result {
	a.Helper()
	a.now += fsm.Time(time.Millisecond)
	entry := codec.AppendEntry(nil, a.now, [][]byte{codec.AppendRequest(nil, &fsm.Request{
		Caller: "ns", ID: id, Commands: commands,
	})})
	results, err := a.m.Apply(a.m.Index()+1, entry)
	if err != nil {
		a.Fatal(err)
	}
	return results[0]
}

// jobs answers a query with the ids of its jobs.
func (a *asked) jobs(q fsm.Query) string {
	var ids []string
	r := a.m.Answer(q, a.now)
	for i := range r.Jobs {
		ids = append(ids, r.Jobs[i].ID)
	}
	if r.More {
		ids = append(ids, "…")
	}
	return strings.Join(ids, " ")
}

// queues answers a query with the names of its queues.
func (a *asked) queues(q fsm.Query) string {
	var names []string
	r := a.m.Answer(q, a.now)
	for i := range r.Queues {
		names = append(names, r.Queues[i].Name)
	}
	if r.More {
		names = append(names, "…")
	}
	return strings.Join(names, " ")
}

// putOf returns a put of an id whose body is the id.
func putOf(queue, id string) *fsm.Put {
	return &fsm.Put{Queue: queue, Partitions: 1, ID: id, Body: []byte(id)}
}

// TestQueriesEvaluateAtTheLaterTime: a reader's clock may be behind the shard's.
func TestQueriesEvaluateAtTheLaterTime(t *testing.T) {
	a := newAsked(t)
	a.do("", &fsm.Put{Queue: "q", Partitions: 1, ID: "x", Given: fsm.GivenDelay, Delay: time.Minute})
	clock := a.m.Clock()
	for _, tc := range []struct {
		now, want fsm.Time
		state     fsm.State
	}{
		{0, clock, fsm.Delayed}, {clock - 1, clock, fsm.Delayed}, {clock + 1, clock + 1, fsm.Delayed},
		{clock.Add(time.Hour), clock.Add(time.Hour), fsm.Ready},
	} {
		r := a.m.Answer(&fsm.JobQuery{Queue: "q", ID: "x"}, tc.now)
		if r.Kind != fsm.KindJobQuery || r.Clock != clock || r.Now != tc.want || len(r.Jobs) != 1 ||
			r.Jobs[0].State != tc.state {
			t.Errorf("at %d: %+v, want a job in state %d at %d", tc.now, r, tc.state, tc.want)
		}
	}
}

// TestWhatCountsForAJob: the job's own, else the queue's, else the default.
func TestWhatCountsForAJob(t *testing.T) {
	a := newAsked(t)
	a.do("", putOf("plain", "default"), putOf("set", "queue"), &fsm.Put{
		Queue: "set", Partitions: 1, ID: "job", Given: fsm.GivenTTR | fsm.GivenMaxAttempts | fsm.GivenRetryDelays,
		TTR: time.Hour, MaxAttempts: 3, RetryDelays: []time.Duration{0, 1},
	}, &fsm.Put{Queue: "set", Partitions: 1, ID: "none", Given: fsm.GivenRetryDelays})
	settings := fsm.Settings{TTR: time.Minute, MaxAttemptsSet: true, RetryDelays: []time.Duration{time.Second}}
	a.do("", &fsm.Configure{Queue: "set", Partitions: 1, Version: 1, Settings: settings})
	type terms struct {
		TTR      time.Duration
		Attempts uint32
		Delays   []time.Duration
	}
	want := map[string]terms{
		"default": {fsm.DefaultTTR, fsm.DefaultMaxAttempts, nil},
		"queue":   {time.Minute, 0, settings.RetryDelays},
		"job":     {time.Hour, 3, []time.Duration{0, 1}},
		"none":    {time.Minute, 0, nil},
	}
	grants := a.do("", &fsm.Reserve{Queues: []string{"set", "plain"}, Max: 10}).Grants
	got := map[string]map[string]terms{}
	for name, q := range map[string]fsm.Query{
		"held": &fsm.HeldQuery{Grants: grants}, "set": &fsm.ListQuery{
			Queue: "set", State: fsm.Reserved, Max: 10,
		}, "plain": &fsm.ListQuery{Queue: "plain", State: fsm.Reserved, Max: 10},
		"job": &fsm.JobQuery{Queue: "set", ID: "job"}, "default": &fsm.JobQuery{Queue: "plain", ID: "default"},
	} {
		got[name] = map[string]terms{}
		for _, j := range a.m.Answer(q, a.now).Jobs {
			got[name][j.ID] = terms{j.TTR, j.MaxAttempts, j.RetryDelays}
		}
	}
	if diff := cmp.Diff(map[string]map[string]terms{
		"held": want, "set": {
			"queue": want["queue"], "job": want["job"], "none": want["none"],
		}, "plain": {"default": want["default"]},
		"job": {"job": want["job"]}, "default": {"default": want["default"]},
	}, got); diff != "" {
		t.Errorf("what counts (-want +got):\n%s", diff)
	}
}

func TestJobAndQueueQueries(t *testing.T) {
	a := newAsked(t)
	a.do("", putOf("q", "x"), &fsm.Put{
		Queue: "q", Partitions: 1, Body: []byte("generated"),
	}, &fsm.Put{Queue: "q", Partitions: 1, ID: "empty"})
	for _, tc := range []struct{ queue, id, want string }{
		{"q", "x", "x"}, {"q", "0-2", "0-2"}, {"q", "empty", "empty"}, {"q", "y", ""}, {"other", "x", ""}, {"", "", ""},
	} {
		if got := a.jobs(&fsm.JobQuery{Queue: tc.queue, ID: tc.id}); got != tc.want {
			t.Errorf("job %q of %q: %q, want %q", tc.id, tc.queue, got, tc.want)
		}
	}
	for id, body := range map[string]string{"x": "x", "0-2": "generated", "empty": ""} {
		j := a.m.Answer(&fsm.JobQuery{Queue: "q", ID: id}, a.now).Jobs[0]
		if string(j.Body) != body || j.Body == nil || int(j.BodyBytes) != len(body) {
			t.Errorf("job %s has the body %q of %d bytes, nil: %v", id, j.Body, j.BodyBytes, j.Body == nil)
		}
	}
	if r := a.m.Answer(&fsm.QueueQuery{Queue: "q"}, a.now); len(r.Queues) != 1 || r.Queues[0].Counts.Ready != 3 {
		t.Errorf("the queue is %+v", r.Queues)
	}
	if got := a.queues(&fsm.QueueQuery{Queue: "other"}); got != "" {
		t.Errorf("a queue that is unknown: %q", got)
	}
}

func TestListQueryLeavesBodiesOut(t *testing.T) {
	a := newAsked(t)
	a.do("", putOf("q", "a"), putOf("q", "bb"), putOf("q", "ccc"))
	if got := a.jobs(&fsm.ListQuery{Queue: "q", State: fsm.Ready, Max: 2}); got != "a bb …" {
		t.Errorf("the first page is %q", got)
	}
	r := a.m.Answer(&fsm.ListQuery{Queue: "q", State: fsm.Ready, Max: 2}, a.now)
	for i, j := range r.Jobs {
		if j.Body != nil || j.BodyBytes != uint32(i+1) {
			t.Errorf("job %s has the body %q of %d bytes", j.ID, j.Body, j.BodyBytes)
		}
	}
	last := r.Jobs[1]
	if got := a.jobs(&fsm.ListQuery{
		Queue: "q", State: fsm.Ready, Max: 2, After: fsm.Cursor{Due: last.Due, Serial: last.Serial},
	}); got != "ccc" {
		t.Errorf("the second page is %q", got)
	}
	for _, q := range []*fsm.ListQuery{{Queue: "q", State: fsm.Dead, Max: 2}, {Queue: "other", State: fsm.Ready, Max: 2}} {
		if got := a.jobs(q); got != "" {
			t.Errorf("%+v: %q", q, got)
		}
	}
}

func TestQueuesQuery(t *testing.T) {
	a := newAsked(t)
	for _, name := range []string{"mail", "ns/a", "ns/b", "ns/c", "nsx", "a"} {
		a.do("", &fsm.Open{Queue: name, Partitions: 1})
	}
	for _, tc := range []struct {
		prefix, after string
		most          int
		want          string
	}{
		{"", "", 9, "a mail ns/a ns/b ns/c nsx"},
		{"", "", 6, "a mail ns/a ns/b ns/c nsx"},
		{"", "", 2, "a mail …"},
		{"", "mail", 2, "ns/a ns/b …"},
		{"", "mailx", 1, "ns/a …"},
		{"", "nsx", 2, ""},
		{"ns/", "", 9, "ns/a ns/b ns/c"},
		{"ns/", "", 3, "ns/a ns/b ns/c"},
		{"ns/", "", 2, "ns/a ns/b …"},
		{"ns/", "ns/b", 9, "ns/c"},
		{"ns/", "ns/c", 9, ""},
		{"ns/", "a", 9, "ns/a ns/b ns/c"},
		{"ns/", "z", 9, ""},
		{"ns/b", "", 9, "ns/b"},
		{"nt", "", 9, ""},
		{"ns", "", 0, "…"},
	} {
		if got := a.queues(&fsm.QueuesQuery{Prefix: tc.prefix, After: tc.after, Max: tc.most}); got != tc.want {
			t.Errorf("prefix %q, after %q, at most %d: %q, want %q", tc.prefix, tc.after, tc.most, got, tc.want)
		}
	}
}

// TestJobsHandedOut: what a request was granted, as far as it is held, with the end of the lease
// that the grant named.
func TestJobsHandedOut(t *testing.T) {
	a := newAsked(t)
	a.do("", putOf("q", "x"), putOf("q", "y"), putOf("p", "z"), putOf("p", "free"))
	req := &fsm.Request{
		Caller: "ns", ID: "r", Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"q", "p"}, Max: 3, TTR: time.Minute}},
	}
	grants := a.do(req.ID, req.Commands...).Grants
	held, recalled := &fsm.HeldQuery{Grants: grants}, codec.RecallOf(req)
	expect := func(when, wantHeld, wantRecalled string) {
		t.Helper()
		if got := a.jobs(held); got != wantHeld {
			t.Errorf("%s held are %q, want %q", when, got, wantHeld)
		}
		if got := a.jobs(recalled); got != wantRecalled {
			t.Errorf("%s recalled are %q, want %q", when, got, wantRecalled)
		}
	}
	expect("at first", "x y z", "x y z")
	ref := func(i int) fsm.Ref {
		return fsm.Ref{
			Queue: grants[i].Queue, Partition: grants[i].Partition, Serial: grants[i].Serial, Fence: grants[i].Fence,
		}
	}
	a.do("", &fsm.Extend{Ref: ref(2), TTR: time.Hour}, &fsm.Ack{Ref: ref(0)})
	expect("after an ack", "y z", "y z")
	for _, q := range []fsm.Query{held, recalled} {
		for i, j := range a.m.Answer(q, a.now).Jobs {
			if g := grants[i+1]; j.State != fsm.Reserved || j.Until != g.Until || j.Fence != g.Fence || j.Attempt != 1 ||
				string(j.Body) != j.ID {
				t.Errorf("%+v was handed out as %+v", g, j)
			}
		}
	}
	a.now = grants[1].Until
	expect("after a lapse that nothing noticed", "y z", "z")
	a.do("", &fsm.Reserve{Queues: []string{"q"}, Max: 1, TTR: time.Minute})
	expect("after another grant of the same job", "z", "z")
	if r := a.m.Answer(recalled, a.now); r.Code != fsm.OK {
		t.Errorf("the same content is answered code %d", r.Code)
	}
	if r := a.m.Answer(codec.RecallOf(&fsm.Request{
		Caller: "ns", ID: "r", Commands: []fsm.Command{&fsm.Reserve{Max: 1}},
	}), a.now); r.Code != fsm.Invalid || len(r.Jobs) > 0 {
		t.Errorf("other content is answered %+v", r)
	}
	for name, q := range map[string]fsm.Query{
		"another caller":  codec.RecallOf(&fsm.Request{Caller: "other", ID: "r", Commands: req.Commands}),
		"another request": codec.RecallOf(&fsm.Request{Caller: "ns", ID: "r2", Commands: req.Commands}),
		"no grants":       &fsm.HeldQuery{},
		"another partition": &fsm.HeldQuery{Grants: []fsm.Grant{{
			Queue: "p", Partition: 1, Serial: grants[2].Serial, Fence: grants[2].Fence,
		}}},
		"another queue": &fsm.HeldQuery{Grants: []fsm.Grant{{
			Queue: "q", Serial: grants[2].Serial, Fence: grants[2].Fence,
		}}},
		"an unknown queue": &fsm.HeldQuery{Grants: []fsm.Grant{{
			Queue: "new", Serial: grants[2].Serial, Fence: grants[2].Fence,
		}}},
	} {
		if got := a.jobs(q); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestReadingsAreTheReadersOwn: nothing that the machine does later shows in a reading, and nothing
// done to a reading in the machine.
func TestReadingsAreTheReadersOwn(t *testing.T) {
	a := newAsked(t)
	body := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, 100+i) }
	for i := range 8 {
		put := &fsm.Put{
			Queue: "q", Partitions: 1, ID: fmt.Sprint(i), Body: body(i),
			Headers: []fsm.Header{{Name: "name", Value: fmt.Sprint("value", i)}},
		}
		keep := *put
		keep.Queue = "keep" // keeps the memory of the other in use, so that it is written over
		a.do("", put, &keep)
	}
	a.do("", &fsm.Configure{
		Queue: "q", Partitions: 1, Version: 1, Settings: fsm.Settings{RetryDelays: []time.Duration{5}},
	})
	req := &fsm.Request{Caller: "ns", ID: "r", Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"q"}, Max: 8}}}
	grants := a.do(req.ID, req.Commands...).Grants
	queries := []fsm.Query{
		&fsm.JobQuery{
			Queue: "q", ID: "3",
		}, &fsm.ListQuery{Queue: "q", State: fsm.Reserved, Max: 9}, &fsm.QueueQuery{Queue: "q"}, &fsm.QueuesQuery{Max: 9},
		codec.RecallOf(req), &fsm.HeldQuery{Grants: grants},
	}
	var readings []fsm.Reading
	var before [][]byte
	for i, q := range queries {
		readings = append(readings, a.m.Answer(q, a.now))
		before = append(before, codec.AppendReading(nil, &readings[i]))
		scribbled := a.m.Answer(q, a.now)
		for i := range scribbled.Jobs {
			clear(scribbled.Jobs[i].Body)
			scribbled.Jobs[i].RetryDelays[0] = 7
		}
		for i := range scribbled.Queues {
			clear(scribbled.Queues[i].Settings.RetryDelays)
		}
		if again := a.m.Answer(q, a.now); !bytes.Equal(before[i], codec.AppendReading(nil, &again)) {
			t.Errorf("the answer to %#v is written to by its reader", q)
		}
	}
	a.do("", &fsm.DeleteQueue{Queue: "q"})
	for i := range 8 { // into the same slots
		a.do("", &fsm.Put{
			Queue: "q", Partitions: 1, ID: fmt.Sprint(i), Body: bytes.ToUpper(body(i)),
			Headers: []fsm.Header{{Name: "NAME", Value: fmt.Sprint("VALUE", i)}},
		})
	}
	for i := range readings {
		if !bytes.Equal(before[i], codec.AppendReading(nil, &readings[i])) {
			t.Errorf("the answer to %#v has changed", queries[i])
		}
	}
	jobs := readings[5].Jobs
	clear(jobs[0].Body[:cap(jobs[0].Body)])
	if !bytes.Equal(jobs[1].Body, body(1)) {
		t.Error("one body reaches into the next")
	}
}
