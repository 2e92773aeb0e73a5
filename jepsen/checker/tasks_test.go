package checker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// tasksQueue is the queue on which the tasks of a story act.
const tasksQueue = "many"

// records adds a call that no shard's log has.
func (s *story) records(name string, req, resp proto.Message) *history.Op {
	o := &history.Op{Client: "operator", Node: "n1", Workload: "lab", Invoked: s.now, Returned: s.now + time.Millisecond,
		Request: req, Response: resp, Outcome: belfryv1.Outcome_OUTCOME_APPLIED}
	s.ops[name] = o
	s.history.Add(o)
	s.wait(2 * time.Millisecond)
	return o
}

// starts has a client start a task, whose id is the name of the call.
func (s *story) starts(name string, req *belfryv1.StartTaskRequest) *belfryv1.Task {
	req.Queue, req.RequestId = tasksQueue, name
	task := &belfryv1.Task{Id: name, Queue: tasksQueue, State: req.GetState(), Act: req.GetAct(), Max: req.GetMax(),
		StartedAt: exact(s.stamp())}
	s.records("start "+name, req, &belfryv1.StartTaskResponse{Task: proto.CloneOf(task)})
	return task
}

// step logs a request of a task.
func (s *story) step(task *belfryv1.Task, place int, commands ...fsm.Command) {
	id := fmt.Sprintf("task %s/0.%d.0+0", task.GetId(), place)
	s.log(s.shardOf(tasksQueue), []*fsm.Request{{ID: id, Commands: commands}})
	s.wait(100 * time.Millisecond)
}

// over has a client read that a task has ended.
func (s *story) over(task *belfryv1.Task, matched, changed uint64) {
	task.Matched, task.Changed, task.EndedAt = matched, changed, timestamppb.New(time.Unix(0, int64(s.stamp())))
	if task.GetAct() != belfryv1.TaskAct_TASK_ACT_COUNT {
		task.Skipped = matched - changed
	}
	s.records("end "+task.GetId(), &belfryv1.GetTaskRequest{Id: task.GetId()}, &belfryv1.GetTaskResponse{Task: task})
}

// dies has a job be put and die.
func (s *story) dies(id string) {
	s.one("put "+id, s.put(&belfryv1.PutRequest{Queue: tasksQueue, Id: id, MaxAttempts: proto.Uint32(9)}, answered))
	s.kills(id)
}

// kills has a job that is ready die.
func (s *story) kills(id string) {
	s.takes(id, tasksQueue)
	s.one("nack "+id, s.nack(&belfryv1.NackRequest{Lease: s.leases[id], Dead: true, Error: "e"}, answered))
}

func redriven(ids ...string) fsm.Command { return &fsm.Redrive{Queue: tasksQueue, IDs: ids} }

// tasked: four jobs die; one task counts them, one makes two of them ready, one is stopped after one.
func (s *story) tasked() {
	for _, id := range []string{"x-1", "x-2", "y-1", "y-2"} {
		s.dies(id)
	}
	s.wait(3 * time.Second)
	dead := belfryv1.JobState_JOB_STATE_DEAD
	count := s.starts("count", &belfryv1.StartTaskRequest{State: dead, Act: belfryv1.TaskAct_TASK_ACT_COUNT})
	s.over(count, 4, 0)
	s.wait(3 * time.Second)
	redrive := s.starts("redrive", &belfryv1.StartTaskRequest{State: dead, Act: belfryv1.TaskAct_TASK_ACT_REDRIVE,
		IdPrefix: "x-"})
	s.step(redrive, 0, redriven("x-1"))
	s.step(redrive, 1, redriven("x-2"))
	s.over(redrive, 2, 2)
	for _, id := range []string{"x-1", "x-2"} {
		s.takes(id, tasksQueue)
		s.acks(id)
	}
	s.wait(3 * time.Second)
	stopped := s.starts("stopped", &belfryv1.StartTaskRequest{State: dead, Act: belfryv1.TaskAct_TASK_ACT_CANCEL,
		PerSecond: 1})
	s.step(stopped, 0, &fsm.Cancel{Queue: tasksQueue, ID: "y-1"})
	stopped.Stopping = true
	s.records("stop", &belfryv1.StopTaskRequest{Id: "stopped"}, &belfryv1.StopTaskResponse{Task: proto.CloneOf(stopped)})
	s.step(stopped, 1, &fsm.Cancel{Queue: tasksQueue, ID: "y-2"}) // it was under way
	s.over(stopped, 2, 2)
	s.records("list tasks", &belfryv1.ListTasksRequest{}, &belfryv1.ListTasksResponse{Tasks: []*belfryv1.Task{
		proto.CloneOf(stopped), proto.CloneOf(redrive), proto.CloneOf(count)}})
}

// told is what was read of a task in the end.
func (s *story) told(task string) *belfryv1.Task {
	return s.ops["end "+task].Response.(*belfryv1.GetTaskResponse).GetTask()
}

// listed returns the last list of tasks.
func (s *story) listed() *belfryv1.ListTasksResponse {
	return s.ops["list tasks"].Response.(*belfryv1.ListTasksResponse)
}

// rereads changes what is read of a task in the end.
func (s *story) rereads(task string, change func(*belfryv1.Task)) {
	change(s.told(task))
	for _, t := range s.listed().GetTasks() {
		if t.GetId() == task {
			change(t)
		}
	}
}

// request is what a client asked a task to do.
func (s *story) request(task string) *belfryv1.StartTaskRequest {
	return s.ops["start "+task].Request.(*belfryv1.StartTaskRequest)
}

func mutatedScopes() []mutation {
	const scope = finding.Invariant(40)
	return []mutation{
		{"a task acted that was not started", scope, func(s *story) {
			s.step(&belfryv1.Task{Id: "another"}, 0, redriven("y-1"))
		}},
		{"a task was read that was not started", scope, func(s *story) { s.told("count").Id = "another" }},
		{"a task did something else", scope, func(s *story) {
			s.step(s.told("redrive"), 2, &fsm.Cancel{Queue: tasksQueue, ID: "x-3"})
		}},
		{"a task had another prefix", scope, func(s *story) { s.request("redrive").IdPrefix = "x-1" }},
		{"a task had another cause", scope, func(s *story) { s.request("redrive").Cause = "f" }},
		{"a task had another text", scope, func(s *story) { s.request("redrive").Text = "z" }},
		{"a task had another time", scope, func(s *story) {
			s.request("redrive").DueBefore = timestamppb.New(s.history.Start)
		}},
		{"a task acted on a job that was put later", scope, func(s *story) {
			s.dies("x-4")
			s.step(s.told("redrive"), 4, redriven("x-4"))
		}},
		{"a task acted on a job that died later", scope, func(s *story) {
			s.starts("late", &belfryv1.StartTaskRequest{State: belfryv1.JobState_JOB_STATE_DEAD,
				Act: belfryv1.TaskAct_TASK_ACT_REDRIVE})
			s.one("put x-5", s.put(&belfryv1.PutRequest{Queue: tasksQueue, Id: "x-5"}, answered))
			s.wait(3 * time.Second)
			task := s.starts("soon", &belfryv1.StartTaskRequest{State: belfryv1.JobState_JOB_STATE_DEAD,
				Act: belfryv1.TaskAct_TASK_ACT_REDRIVE})
			s.wait(3 * time.Second)
			s.kills("x-5")
			s.step(task, 0, redriven("x-5"))
		}},
		{"a task acted twice on a job", scope, func(s *story) { s.twice() }},
		{"a task acted on more jobs than it may", scope, func(s *story) { s.request("redrive").Max = 1 }},
	}
}

func mutatedTasks() []mutation {
	const complete, ends = finding.Invariant(41), finding.Invariant(42)
	return []mutation{
		{"a task counted more jobs than there were", complete, func(s *story) {
			s.rereads("count", func(t *belfryv1.Task) { t.Matched = 5 })
		}},
		{"a task counted fewer jobs than there were", complete, func(s *story) {
			s.rereads("count", func(t *belfryv1.Task) { t.Matched = 3 })
		}},
		{"a task passed over a job", complete, func(s *story) { s.request("redrive").IdPrefix = "" }},
		{"a task said that it changed more", complete, func(s *story) {
			s.rereads("redrive", func(t *belfryv1.Task) { t.Changed, t.Matched = 3, 3 })
		}},
		{"a task said that it changed less", complete, func(s *story) {
			s.rereads("redrive", func(t *belfryv1.Task) { t.Changed, t.Skipped = 1, 1 })
		}},
		{"the counts of a task do not add up", complete, func(s *story) {
			s.rereads("redrive", func(t *belfryv1.Task) { t.Skipped = 1 })
		}},
		{"a task acted after its end", ends, func(s *story) {
			s.dies("x-6")
			s.step(s.told("redrive"), 6, redriven("x-6"))
		}},
		{"a task went on after its stop", ends, func(s *story) {
			s.dies("y-6")
			s.step(s.told("stopped"), 6, &fsm.Cancel{Queue: tasksQueue, ID: "y-6"})
		}},
		{"a task that ended has other counts later", ends, func(s *story) { s.listed().Tasks[1].Changed = 1 }},
		{"a task was forgotten", ends, func(s *story) {
			s.listed().Tasks = slices.DeleteFunc(s.listed().GetTasks(), func(t *belfryv1.Task) bool {
				return t.GetId() == "count"
			})
		}},
		{"a task did not end", ends, func(s *story) {
			task := s.starts("endless", &belfryv1.StartTaskRequest{State: belfryv1.JobState_JOB_STATE_DEAD,
				Act: belfryv1.TaskAct_TASK_ACT_REDRIVE})
			s.records("list again", &belfryv1.ListTasksRequest{}, &belfryv1.ListTasksResponse{Tasks: append(
				s.listed().GetTasks(), task)})
		}},
	}
}

// twice has a task that reschedules meet a job again that has failed since.
func (s *story) twice() {
	s.one("put w", s.put(&belfryv1.PutRequest{Queue: tasksQueue, Id: "w",
		When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(time.Hour)}}, answered))
	task := s.starts("now", &belfryv1.StartTaskRequest{State: belfryv1.JobState_JOB_STATE_DELAYED,
		Act: belfryv1.TaskAct_TASK_ACT_RESCHEDULE})
	now := &fsm.Reschedule{Queue: tasksQueue, ID: "w", Given: fsm.GivenDelay}
	s.step(task, 0, now)
	s.takes("w", tasksQueue)
	s.one("nack w", s.nack(&belfryv1.NackRequest{Lease: s.leases["w"], Delay: durationpb.New(time.Hour)}, answered))
	s.step(task, 1, now)
	s.takes("w", tasksQueue)
	s.acks("w")
}

// TestTasksNearALeadersEnd: what was done about the time of a change of the catalog's leader may be
// missing from the counts, and may be done again.
func TestTasksNearALeadersEnd(t *testing.T) {
	s := newStory(t)
	at := s.history.Start.Add(s.ops["start redrive"].Returned + 50*time.Millisecond)
	s.rereads("redrive", func(t *belfryv1.Task) { t.Changed, t.Matched = 1, 1 })
	v := Check(s.ends())
	if !caughtBy(&v, 41) {
		t.Error("without another leader the counts are held to be right")
	}
	s.ends().Elections = []Election{{Node: "n1", Group: catalogGroup, Term: 2, At: at}}
	v = Check(s.ends())
	complain(t, &v)
}

// TestReadInAnEarlierFormat: soon after the format rose a reading may lack who holds a job, and later
// it may not.
func TestReadInAnEarlierFormat(t *testing.T) {
	for _, after := range []time.Duration{time.Second, time.Minute} {
		l := newLab(t, 1, 2)
		s := &story{lab: l, ops: map[string]*history.Op{}, leases: map[string]string{}}
		s.wait(after)
		s.puts("held", "orders", 0)
		s.takesFor("held", "orders", time.Minute)
		s.get("orders", "held")
		job := s.last().Response.(*belfryv1.GetResponse).GetJob()
		job.Client, job.ReservedAt, job.Attempts = "", nil, nil
		v := Check(s.ends())
		if caughtBy(&v, 34) != (after == time.Minute) {
			t.Errorf("%v after the format rose a reading without a holder is judged %v", after, v.Violations)
		}
	}
}
