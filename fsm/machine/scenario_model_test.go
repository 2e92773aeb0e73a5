package machine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model"
)

// shard is what the reference model and the machine have in common.
type shard interface {
	Apply(stamp fsm.Time, requests []fsm.Request) []fsm.Result
	Job(queue, id string, now fsm.Time) (fsm.Job, bool)
	Queue(name string, now fsm.Time) (fsm.Queue, bool)
	Recall(r *fsm.Request, now fsm.Time) ([]fsm.Grant, fsm.Code)
	NextDeadline() (fsm.Time, bool)
	Clock() fsm.Time
	Digest() uint64
}

// modelShard is the model; its clock is a field there.
type modelShard struct{ *model.Model }

func (s modelShard) Clock() fsm.Time { return s.Model.Clock }

// start is the time at which every scenario begins; it is a whole number of milliseconds, as times
// in UUIDs are.
const start = fsm.Time(1_800_000_000_000_000_000)

// ms is the unit of due times, lease ends and ttls.
const ms = time.Millisecond

// after is a time, told as the distance from start.
func after(d time.Duration) fsm.Time { return start + fsm.Time(d) }

// scenario is a rule told as an example: entries in order, and what they must answer. Every
// scenario runs against the model and against the machine.
type scenario struct {
	name  string
	cfg   fsm.Config
	steps []step
}

// step is one entry with one request, and what must be true after it.
type step struct {
	at     time.Duration
	format fsm.Format // of this entry and those after it; 0 for that of the one before
	id     string     // of the request
	client string     // of the request
	do     []fsm.Command
	want   []fsm.Result
	// held tells the stored state of jobs of queue "q" after the entry; StateNone stands for a job
	// that is not held.
	held map[string]fsm.State
	// look checks more, if there is more to check.
	look func(t *testing.T, s shard)
}

func runScenarios(t *testing.T, scenarios []scenario) {
	t.Helper()
	for _, implementation := range implementations() {
		t.Run(implementation.name, func(t *testing.T) {
			for _, sc := range scenarios {
				t.Run(sc.name, func(t *testing.T) { sc.run(t, implementation.open(t, sc.cfg)) })
			}
		})
	}
}

func (sc *scenario) run(t *testing.T, s shard) {
	t.Helper()
	for i, step := range sc.steps {
		if step.format != 0 {
			speak(s, step.format)
		}
		got := s.Apply(after(step.at), []fsm.Request{{Caller: "test", ID: step.id, Client: step.client, Commands: step.do}})
		if diff := cmp.Diff(step.want, got, resultOptions()...); diff != "" {
			t.Fatalf("step %d: results (-want +got):\n%s", i, diff)
		}
		for id, want := range step.held {
			job, _ := s.Job("q", id, s.Clock())
			if job.State != want {
				t.Errorf("step %d: job %q is in state %d, want %d", i, id, job.State, want)
			}
		}
		if step.look != nil {
			step.look(t, s)
		}
	}
}

func resultOptions() []cmp.Option {
	return []cmp.Option{cmpopts.IgnoreUnexported(fsm.Result{}), cmpopts.EquateEmpty()}
}

// The commands and results below are the short forms that the scenarios are written in. Queue "q"
// is an ordinary one.

func do(commands ...fsm.Command) []fsm.Command { return commands }

func results(list ...fsm.Result) []fsm.Result { return list }

// okay is the plain result of a command that has nothing to tell.
func okay() fsm.Result { return fsm.Result{} }

func acked() fsm.Result { return fsm.Result{State: fsm.Acked} }

func opened() fsm.Result { return fsm.Result{Created: true} }

func reserved() fsm.Result { return fsm.Result{Code: fsm.JobReserved, State: fsm.Reserved} }

func code(c fsm.Code) fsm.Result { return fsm.Result{Code: c} }

// put puts a job that is due at once.
func put(id string, options ...func(*fsm.Put)) *fsm.Put {
	p := &fsm.Put{Queue: "q", Partitions: 1, ID: id}
	for _, option := range options {
		option(p)
	}
	return p
}

func delay(d time.Duration) func(*fsm.Put) {
	return func(p *fsm.Put) { p.Given, p.Delay = p.Given|fsm.GivenDelay, d }
}

func dueAt(t fsm.Time) func(*fsm.Put) {
	return func(p *fsm.Put) { p.Given, p.DueAt = p.Given|fsm.GivenDueAt, t }
}

func ttl(d time.Duration) func(*fsm.Put) {
	return func(p *fsm.Put) { p.Given, p.TTL = p.Given|fsm.GivenTTL, d }
}

func ttr(d time.Duration) func(*fsm.Put) {
	return func(p *fsm.Put) { p.Given, p.TTR = p.Given|fsm.GivenTTR, d }
}

func priority(n int64) func(*fsm.Put) {
	return func(p *fsm.Put) { p.Given, p.Priority = p.Given|fsm.GivenPriority, n }
}

func attempts(n uint32) func(*fsm.Put) {
	return func(p *fsm.Put) { p.Given, p.MaxAttempts = p.Given|fsm.GivenMaxAttempts, n }
}

func retries(list ...time.Duration) func(*fsm.Put) {
	return func(p *fsm.Put) { p.Given, p.RetryDelays = p.Given|fsm.GivenRetryDelays, list }
}

func body(text string) func(*fsm.Put) { return func(p *fsm.Put) { p.Body = []byte(text) } }

func again(p *fsm.Put) { p.Again = true }

func into(queue string, partition, partitions uint32) func(*fsm.Put) {
	return func(p *fsm.Put) { p.Queue, p.Partition, p.Partitions = queue, partition, partitions }
}

func reserve(n uint32) *fsm.Reserve { return &fsm.Reserve{Queues: []string{"q"}, Max: n} }

// ref names the lease of a job of queue "q".
func ref(serial, fence uint64) fsm.Ref { return fsm.Ref{Queue: "q", Serial: serial, Fence: fence} }

func ack(serial, fence uint64) *fsm.Ack { return &fsm.Ack{Ref: ref(serial, fence)} }

func nack(serial, fence uint64) *fsm.Nack { return &fsm.Nack{Ref: ref(serial, fence)} }

func cancel(id string) *fsm.Cancel { return &fsm.Cancel{Queue: "q", ID: id} }

func configure(version uint64, s fsm.Settings) *fsm.Configure {
	return &fsm.Configure{Queue: "q", Partitions: 1, Version: version, Settings: s}
}

// created is the result of a put that made a job of queue "q".
func created(serial uint64, state fsm.State, due time.Duration) fsm.Result {
	return fsm.Result{Created: true, State: state, Serial: serial, Due: after(due)}
}

// met is the result of a put that met an earlier one.
func met(serial uint64, state fsm.State, due time.Duration) fsm.Result {
	return fsm.Result{State: state, Serial: serial, Due: after(due)}
}

func granted(grants ...fsm.Grant) fsm.Result { return fsm.Result{Grants: grants} }

// lease is the grant of the first lease of a job of queue "q".
func lease(serial, fence uint64, due, until time.Duration) fsm.Grant {
	return fsm.Grant{Queue: "q", Serial: serial, Fence: fence, Attempt: 1, Due: after(due), Until: after(until)}
}

func attempt(n uint32, g fsm.Grant) fsm.Grant {
	g.Attempt = n
	return g
}

// waiting is the result of a nack, a release or a reschedule that leaves the job waiting.
func waiting(state fsm.State, due time.Duration) fsm.Result {
	return fsm.Result{State: state, Due: after(due)}
}

func ended(state fsm.State) fsm.Result { return fsm.Result{State: state} }

func count(n uint64) fsm.Result { return fsm.Result{Count: n} }
