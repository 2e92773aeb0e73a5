package selection

import (
	"net/url"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/format"
)

// full is a selection with every field.
func full() Selection {
	at := time.Date(2026, 1, 31, 15, 4, 5, 123456789, time.UTC)
	return Selection{Queue: "shop/orders", State: belfryv1.JobState_JOB_STATE_DEAD, After: timestamppb.New(at),
		Before: timestamppb.New(at.Add(time.Hour)), IDPrefix: " a\x00", Text: "b\r\n&", Cause: "c # <\u202e>", Key: "k\x00 "}
}

// TestSelection: what a page shows is what its links, its lists and its tasks are about, field by
// field.
func TestSelection(t *testing.T) {
	s := full()
	pairs, values := s.Pairs(), url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	got, err := Read(values.Get, time.FixedZone("", 3600))
	if err != nil || !proto.Equal(got.List(7, "t"), s.List(7, "t")) {
		t.Errorf("read back: %+v, %v", got, err)
	}
	if _, err := ReadForTask(values.Get, time.UTC); err == nil {
		t.Error("a task is begun for the jobs of one key, and would be about all")
	}
	values.Del("key")
	words := s.Words(format.Clock{Zone: time.FixedZone("", 3600)})
	if s, err = ReadForTask(values.Get, time.UTC); err != nil {
		t.Fatal(err)
	}
	task := s.Task(belfryv1.TaskAct_TASK_ACT_COUNT)
	list := &belfryv1.ListRequest{Queue: task.Queue, State: task.State, DueAfter: task.DueAfter,
		DueBefore: task.DueBefore, IdPrefix: task.IdPrefix, Text: task.Text, Cause: task.Cause, PageSize: 7, PageToken: "t"}
	if !proto.Equal(list, s.List(7, "t")) || task.Act != belfryv1.TaskAct_TASK_ACT_COUNT {
		t.Errorf("the task is about %v, the list about %v", task, s.List(7, "t"))
	}
	back := OfTask(&belfryv1.Task{Queue: task.Queue, State: task.State, DueAfter: task.DueAfter,
		DueBefore: task.DueBefore, IdPrefix: task.IdPrefix, Text: task.Text, Cause: task.Cause})
	if !proto.Equal(back.List(7, "t"), s.List(7, "t")) {
		t.Errorf("the selection of the task is %+v", back)
	}
	want := "dead jobs of shop/orders, due from 2026-01-31 16:04:05.123 +01:00, due before " +
		"2026-01-31 17:04:05.123 +01:00, with an id that begins with “ a�”, with the text “b�\n&”, " +
		"with the cause “c # <�>”, with the key “k� ”"
	if words != want {
		t.Errorf("in words: %q", words)
	}
	for text, narrow := range map[string][2]bool{"": {}, "after=2026-01-31": {false, true}, "idPrefix=a": {true, true},
		"text=a": {true, true}, "cause=a": {true, true}, "key=a": {true, true}, "before=2026-01-31": {false, true}} {
		values, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Read(values.Get, time.UTC)
		if err != nil || got.Searches() != narrow[0] || got.Narrowed() != narrow[1] ||
			got.State != belfryv1.JobState_JOB_STATE_DELAYED {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// TestOrders: an act is ordered for the jobs of its states only, and its task acts on as many jobs as
// were agreed to.
func TestOrders(t *testing.T) {
	now, at := "delay:{}", "due_at:{seconds:3792150240}"
	for _, tt := range []struct{ state, form, task string }{
		{"delayed", "act=run-now", "act:TASK_ACT_RESCHEDULE " + now},
		{"delayed", "act=reschedule&due=0s", "act:TASK_ACT_RESCHEDULE " + now},
		{"ready", "act=reschedule&due=2090-03-02+13:04", "act:TASK_ACT_RESCHEDULE " + at},
		{"dead", "act=redrive&perSecond=5", "act:TASK_ACT_REDRIVE per_second:5"},
		{"dead", "act=cancel&confirm=yes", "act:TASK_ACT_CANCEL"},
		{"reserved", "act=cancel&confirm=yes", "act:TASK_ACT_CANCEL force:true"},
		{"ready", "act=run-now", ""}, {"reserved", "act=redrive", ""}, {"delayed", "act=redrive", ""}, {"dead", "act=none",
			""},
		{"dead", "act=cancel", ""}, {"dead", "act=redrive&perSecond=x", ""}, {"delayed", "act=reschedule&due=x", ""},
	} {
		values, err := url.ParseQuery(tt.form)
		if err != nil {
			t.Fatal(err)
		}
		state, err := State(tt.state)
		if err != nil {
			t.Fatal(err)
		}
		o, err := ReadOrder(form.Values(values.Get), state, time.FixedZone("", -2*3600))
		if tt.task == "" {
			if err == nil {
				t.Errorf("%s of %s jobs: %+v, want an error", tt.form, tt.state, o)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s of %s jobs: %v", tt.form, tt.state, err)
			continue
		}
		s := Selection{Queue: "q", State: state}
		want := &belfryv1.StartTaskRequest{}
		text := `queue:"q" state:` + state.String() + ` max:9 request_id:"r" ` + tt.task
		if err := prototext.Unmarshal([]byte(text), want); err != nil {
			t.Fatal(err)
		}
		if got := o.Task(&s, 9, "r"); !proto.Equal(got, want) {
			t.Errorf("%s of %s jobs: %v, want %v", tt.form, tt.state, got, want)
		}
	}
}

// TestJobs: ids and keys of jobs survive a field of a form, whatever they are.
func TestJobs(t *testing.T) {
	jobs := []Job{{ID: "a"}, {ID: "b,c"}, {ID: "%2C"}, {ID: "\x00\r\n"}, {}, {ID: "ü&="}, {ID: "a", Key: "k"},
		{ID: "a;k"}, {ID: ";", Key: "\x00;,\n"}}
	joined := JoinJobs(jobs)
	for _, c := range []byte(joined) {
		if c < '!' || c > '~' {
			t.Errorf("%q has a character that a browser may change", joined)
		}
	}
	got, err := SplitJobs(joined + ",a,a;k")
	if want := slices.DeleteFunc(jobs, func(j Job) bool { return j == Job{} }); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"%zz", "a;%zz"} {
		if _, err := SplitJobs(text); err == nil {
			t.Errorf("%s is read as a job", text)
		}
	}
}

// TestStatus: a task is called what it is, and only a whole count is offered as one.
func TestStatus(t *testing.T) {
	ended := timestamppb.Now()
	for want, task := range map[string]*belfryv1.Task{
		"begins": {}, "runs": {Searched: 1}, "stopping": {Searched: 1, Stopping: true}, "in trouble": {Trouble: "x"},
		"stopped": {EndedAt: ended, Stopping: true}, "ended early": {EndedAt: ended, Trouble: "x"}, "ended": {EndedAt: ended},
	} {
		task.Act = belfryv1.TaskAct_TASK_ACT_COUNT
		if got := Status(task); got != want || Counts(task) != (want == "ended") {
			t.Errorf("%v is called %s, a count: %t", task, got, Counts(task))
		}
	}
	if Counts(&belfryv1.Task{EndedAt: ended, Act: belfryv1.TaskAct_TASK_ACT_CANCEL}) {
		t.Error("a cancel is taken for a count")
	}
}
