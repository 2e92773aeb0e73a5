package schedules

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// store is a server that keeps schedules.
type store struct {
	mu   sync.Mutex
	held map[string]*belfryv1.Schedule // by queue and name
	// before, if not nil, may refuse a request, or change what is held. It runs with the lock.
	before func(proto.Message) error
	// changes are the requests that would change something.
	changes []proto.Message
}

func newStore(t *testing.T, held ...*belfryv1.Schedule) (*store, *clitest.Harness) {
	t.Helper()
	s := &store{held: map[string]*belfryv1.Schedule{}}
	for _, one := range held {
		s.held[one.Queue+" "+one.Name] = one
	}
	return s, newHarness(t, s.answer)
}

// notFound is the refusal of a schedule that is not there.
func notFound() error {
	return clitest.WireError(connect.CodeNotFound, "SCHEDULE_NOT_FOUND", "there is no such schedule")
}

// answer answers a request.
func (s *store) answer(r proto.Message) (proto.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.before != nil {
		if err := s.before(r); err != nil {
			return nil, err
		}
	}
	switch r := r.(type) {
	case *belfryv1.GetScheduleRequest:
		if held := s.held[r.Queue+" "+r.Name]; held != nil {
			return &belfryv1.GetScheduleResponse{Schedule: held}, nil
		}
		return nil, notFound()
	case *belfryv1.ListSchedulesRequest:
		out := &belfryv1.ListSchedulesResponse{}
		for _, held := range s.held {
			if held.Queue == r.Queue && strings.HasPrefix(held.Name, r.Prefix) {
				listed := proto.CloneOf(held)
				listed.Job.Body, listed.Job.Headers = nil, nil
				out.Schedules = append(out.Schedules, listed)
			}
		}
		slices.SortFunc(out.Schedules, func(a, b *belfryv1.Schedule) int { return strings.Compare(a.Name, b.Name) })
		return out, nil
	case *belfryv1.PreviewScheduleRequest:
		return &belfryv1.PreviewScheduleResponse{Times: times()[:1]}, nil
	case *belfryv1.DeleteScheduleRequest:
		s.changes = append(s.changes, r)
		return &belfryv1.DeleteScheduleResponse{}, s.checkVersion(r.Queue+" "+r.Name, r.IfVersion, nil)
	case *belfryv1.PutScheduleRequest:
		s.changes = append(s.changes, r)
		return s.put(r)
	}
	return nil, fmt.Errorf("unexpected %T", r)
}

// checkVersion replaces a schedule if it has the version.
func (s *store) checkVersion(key string, version uint64, next *belfryv1.Schedule) error {
	held := s.held[key]
	if version != 0 && held.GetVersion() != version {
		return clitest.WireError(connect.CodeFailedPrecondition, "VERSION_CHANGED", "it has another version")
	}
	delete(s.held, key)
	if next != nil {
		next.Version = held.GetVersion() + 1
		s.held[key] = next
	}
	return nil
}

func (s *store) put(r *belfryv1.PutScheduleRequest) (proto.Message, error) {
	key := r.Queue + " " + r.Name
	was := s.held[key]
	now := &belfryv1.Schedule{
		Queue: r.Queue, Name: r.Name, Spec: r.Spec, Policy: r.Policy, Job: &belfryv1.ScheduleJob{
			Body: &belfryv1.ScheduleJob_Text{Text: string(r.Job.GetData())}, Ttr: r.Job.Ttr, Headers: r.Job.Headers,
		},
	}
	if err := s.checkVersion(key, r.IfVersion, now); err != nil {
		return nil, err
	}
	return &belfryv1.PutScheduleResponse{Created: was == nil, Replaced: was != nil, Version: now.Version}, nil
}

// every returns a schedule of q.
func every(name string, d time.Duration) *belfryv1.Schedule {
	return &belfryv1.Schedule{
		Queue: "q", Name: name, Version: 4, Spec: &belfryv1.ScheduleSpec{
			Rule: &belfryv1.ScheduleSpec_Every{Every: clitest.In(d)}, Dst: belfryv1.DST_DST_ONCE,
		}, Policy: &belfryv1.SchedulePolicy{ // as the server answers what was not set
			CatchUp: belfryv1.CatchUp_CATCH_UP_LATEST, Window: clitest.In(24 * time.Hour),
			Overlap: belfryv1.Overlap_OVERLAP_ALLOW,
		},
		Job: &belfryv1.ScheduleJob{Body: &belfryv1.ScheduleJob_Text{Text: "x"}},
	}
}

// applied is a file that creates new, changes old and leaves same.
const applied = `
queue: q
schedules:
  - {name: new, spec: {cron: "@daily"}, job: {text: x}}
  - {name: old, spec: {every: 1h}, job: {text: x, ttr: 1m}}
  - {name: same, spec: {every: 1h}, job: {text: x}}
`

// appliedPlan is what it is said to do.
const appliedPlan = "" +
	"create new in q: @daily, next 2030-01-31T11:00:00+01:00 CET (in 1h)\n" +
	"change old in q, next 2030-01-31T11:00:00+01:00 CET (in 1h)\n" +
	"    spec.every  2h → 1h\n" +
	"    job.ttr     - → 1m\n"

// fixture is a store with what the file changes, leaves and does not name.
func fixture(t *testing.T) (*store, *clitest.Harness, string) {
	t.Helper()
	s, h := newStore(t, every("old", 2*time.Hour), every("same", time.Hour), every("more", time.Minute))
	return s, h, clitest.WriteFile(t, "f.yaml", applied)
}

// outcome checks what a command left behind.
func outcome(t *testing.T, got, want clitest.Outcome) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
}

// TestApply: it shows the difference, changes it with the versions that it read, and a repeat changes
// nothing.
func TestApply(t *testing.T) {
	s, h, file := fixture(t)
	outcome(t, h.Run("schedule", "apply", "-f", file, "--dry-run"),
		clitest.Left(cli.CodeDiffers, appliedPlan+"1 to create, 1 to change, 0 to delete, 1 unchanged\n", ""))
	if len(s.changes) > 0 {
		t.Errorf("a dry run sent %v", s.changes)
	}
	outcome(t, h.Run("schedule", "apply", "-f", file, "--prune", "--yes"), clitest.Left(0, appliedPlan+
		"delete more in q: every 1m\n1 to create, 1 to change, 1 to delete, 1 unchanged\n"+
		"created new in q, version 1\nchanged old in q, version 5\ndeleted more in q\n"+
		"1 created, 1 changed, 1 deleted, 1 unchanged\n", ""))
	body := &belfryv1.PutRequest_Data{Data: []byte("x")}
	want := []proto.Message{
		&belfryv1.PutScheduleRequest{
			Queue: "q", Name: "new", Spec: &belfryv1.ScheduleSpec{Rule: &belfryv1.ScheduleSpec_Cron{Cron: "@daily"}},
			Policy: &belfryv1.SchedulePolicy{}, Job: &belfryv1.PutRequest{Body: body},
		},
		&belfryv1.PutScheduleRequest{
			Queue: "q", Name: "old", Spec: &belfryv1.ScheduleSpec{
				Rule: &belfryv1.ScheduleSpec_Every{Every: clitest.In(time.Hour)},
			}, Policy: &belfryv1.SchedulePolicy{}, Job: &belfryv1.PutRequest{Body: body, Ttr: clitest.In(time.Minute)},
			IfVersion: 4,
		},
		&belfryv1.DeleteScheduleRequest{Queue: "q", Name: "more", IfVersion: 4},
	}
	if diff := cmp.Diff(want, s.changes, protocmp.Transform()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	nothing := clitest.Left(0, "nothing to do, 3 unchanged\n", "")
	outcome(t, h.Run("schedule", "apply", "-f", file, "--prune", "--yes"), nothing)
	outcome(t, h.Run("schedule", "apply", "-f", file, "--dry-run"), nothing)
	export := h.Run("schedule", "export", "q")
	h.System.In = strings.NewReader(export.Out)
	outcome(t, h.Run("schedule", "apply", "-f", "-", "--prune"), nothing)
}

// TestApplyAsks: without --yes a person decides; without a person nothing is changed.
func TestApplyAsks(t *testing.T) {
	s, h, file := fixture(t)
	h.Run("schedule", "apply", "-f", file).Holds(t, cli.CodeUsage, "create new", "nothing was changed", "say --yes")
	h.System.InTerminal, h.System.In = true, strings.NewReader("no\n")
	h.Run("schedule", "apply", "-f", file).Holds(t, cli.CodeError, "create new", "nothing was changed")
	h.System.In = strings.NewReader("no\n")
	got := h.Run("schedule", "apply", "-f", file, "-o", "json")
	if got.Out != "" || !strings.Contains(got.Err, "create new") {
		t.Errorf("in JSON, a question without what it is about: %+v", got)
	}
	if len(s.changes) > 0 {
		t.Errorf("sent %v", s.changes)
	}
	h.System.In = strings.NewReader("yes\n")
	if got := h.Run("schedule", "apply", "-f", file); got.Code != 0 || len(s.changes) != 2 {
		t.Errorf("%+v, sent %v", got, s.changes)
	}
}

// TestApplyInJSON: the output is one value with what was done, and the lists are never null.
func TestApplyInJSON(t *testing.T) {
	s, h, file := fixture(t)
	const fields = `{"queue":"q","name":"old","fields":[{"field":"spec.every","old":"2h","new":"1h"},` +
		`{"field":"job.ttr","new":"1m"}]}`
	want := `{"created":[{"queue":"q","name":"new"}],"changed":[` + fields + `],"deleted":[],"unchanged":1`
	outcome(t, h.Run("schedule", "apply", "-f", file, "--dry-run", "-o", "json"),
		clitest.Left(cli.CodeDiffers, want+"}\n", ""))
	s.before = func(r proto.Message) error {
		if put, ok := r.(*belfryv1.PutScheduleRequest); ok && put.Name == "new" {
			return clitest.WireError(connect.CodeResourceExhausted, "QUOTA", "too many schedules")
		}
		return nil
	}
	outcome(t, h.Run("schedule", "apply", "-f", file, "--yes", "-o", "json"), clitest.Left(cli.CodePartly,
		`{"created":[],"changed":[`+fields+`],"deleted":[],"unchanged":1,"failed":[{"queue":"q","name":"new",`+
			`"error":"QUOTA: too many schedules"}]}`+"\n",
		"belfry: new in q: QUOTA: too many schedules\nbelfry: 1 schedule failed; apply the file again for the rest\n"))
}

// TestApplyHalfway: what failed is said for each schedule, the others are done, and a repeat does the
// rest. What was changed since it was read is left as it is.
func TestApplyHalfway(t *testing.T) {
	s, h, file := fixture(t)
	gets := 0
	s.before = func(r proto.Message) error {
		switch r := r.(type) {
		case *belfryv1.GetScheduleRequest:
			if gets++; gets == 4 { // the last look before new is created
				s.held["q new"] = every("new", time.Second)
			}
		case *belfryv1.PutScheduleRequest:
			s.held["q "+r.Name].Version++
		}
		return nil
	}
	const since = " since it was read, so it was left as it is; apply the file again\n"
	got := h.Run("schedule", "apply", "-f", file, "--prune", "--yes")
	wantErr := "belfry: new in q: it was created" + since + "belfry: old in q: it was changed" + since +
		"belfry: 2 schedules failed; apply the file again for the rest\n"
	if got.Code != cli.CodePartly || got.Err != wantErr ||
		!strings.HasSuffix(got.Out, "deleted more in q\n0 created, 0 changed, 1 deleted, 1 unchanged, 2 failed\n") {
		t.Errorf("%+v", got)
	}
	if every := s.held["q new"].Spec.GetEvery().AsDuration(); every != time.Second {
		t.Errorf("what was created meanwhile was replaced: every %v", every)
	}
	got = h.Run("schedule", "apply", "-f", file, "--yes")
	if got.Code != cli.CodeConflict || !strings.Contains(got.Out, "0 created, 0 changed, 0 deleted, 1 unchanged, 2 fa") {
		t.Errorf("a repeat that also fails: %+v", got)
	}
	s.before = nil
	h.Run("schedule", "apply", "-f", file, "--yes").Holds(t, 0, "0 created, 2 changed, 0 deleted, 1 unchanged\n")
}

// refusePuts refuses each PutSchedule of a name that begins so.
func refusePuts(prefix string, code connect.Code, reason, message string) func(proto.Message) error {
	return func(r proto.Message) error {
		if put, ok := r.(*belfryv1.PutScheduleRequest); ok && strings.HasPrefix(put.Name, prefix) {
			return clitest.WireError(code, reason, message)
		}
		return nil
	}
}

// TestApplyStops: what ends one change for a reason that holds for all ends the command.
func TestApplyStops(t *testing.T) {
	s, h, file := fixture(t)
	s.before = refusePuts("", connect.CodeUnauthenticated, "UNAUTHENTICATED", "the token is not known")
	got := h.Run("schedule", "apply", "-f", file, "--prune", "--yes")
	want := "belfry: new in q: UNAUTHENTICATED: the token is not known; the token's file is named with --token-file or " +
		"BELFRY_TOKEN_FILE\nbelfry: old in q: not tried\n" +
		"belfry: more in q: not tried\n"
	if got.Code != cli.CodeForbidden || got.Err != want || len(s.changes) > 0 {
		t.Errorf("%+v, sent %v", got, s.changes)
	}
	s.before = func(r proto.Message) error {
		if _, ok := r.(*belfryv1.GetScheduleRequest); ok {
			return clitest.WireError(connect.CodePermissionDenied, "FORBIDDEN", "the token may not")
		}
		return nil
	}
	h.Run("schedule", "apply", "-f", file, "--yes").Holds(t, cli.CodeForbidden, "FORBIDDEN: the token may not")
}

// TestApplyToSomeQueues: a token may be for some queues only, so what is forbidden does not end the
// others.
func TestApplyToSomeQueues(t *testing.T) {
	s, h, file := fixture(t)
	s.before = refusePuts("new", connect.CodePermissionDenied, "FORBIDDEN", "the token may not")
	got := h.Run("schedule", "apply", "-f", file, "--prune", "--yes")
	want := "belfry: new in q: FORBIDDEN: the token may not\n" +
		"belfry: 1 schedule failed; apply the file again for the rest\n"
	if got.Code != cli.CodePartly || got.Err != want || len(s.changes) != 2 {
		t.Errorf("%+v, sent %v", got, s.changes)
	}
}

// TestApplyIsInterrupted: Ctrl-C ends the command between two changes, and it says what was not tried.
func TestApplyIsInterrupted(t *testing.T) {
	s, h, file := fixture(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	s.before = func(r proto.Message) error {
		if _, ok := r.(*belfryv1.PutScheduleRequest); ok {
			cancel(cli.Interruption{Signal: syscall.SIGINT})
			return clitest.WireError(connect.CodeUnavailable, "UNKNOWN_OUTCOME", "too late")
		}
		return nil
	}
	got := h.RunContext(ctx, "schedule", "apply", "-f", file, "--prune", "--yes")
	if got.Code != cli.CodeSignal+int(syscall.SIGINT) || len(s.changes) > 0 ||
		!strings.Contains(got.Err, "belfry: old in q: not tried\nbelfry: more in q: not tried\n") {
		t.Errorf("%+v, sent %v", got, s.changes)
	}
}

// TestApplyRaces: a schedule that is gone before it is deleted is what was wanted. One that is created
// at the same moment is replaced, and that is said.
func TestApplyRaces(t *testing.T) {
	s, h, file := fixture(t)
	s.before = func(r proto.Message) error {
		switch r := r.(type) {
		case *belfryv1.PutScheduleRequest:
			if r.Name == "new" {
				s.held["q new"] = every("new", time.Second)
			}
		case *belfryv1.DeleteScheduleRequest:
			return notFound()
		}
		return nil
	}
	h.Run("schedule", "apply", "-f", file, "--prune", "--yes").Holds(t, 0, "deleted more in q\n",
		"replaced what was created at the same time: new in q, version 5\n")
}

// TestApplyNamesLines: what the server refuses is named with its line in the file, before anything is
// changed if the rule is wrong, else for the schedule.
func TestApplyNamesLines(t *testing.T) {
	s, h, file := fixture(t)
	s.before = func(r proto.Message) error {
		if p, ok := r.(*belfryv1.PreviewScheduleRequest); ok && p.Name == "new" {
			return clitest.InvalidField("spec.cron", "spec.cron: it never fires")
		}
		if g, ok := r.(*belfryv1.GetScheduleRequest); ok && g.Name == "same" {
			return clitest.InvalidField("name", "name: it is bad")
		}
		return nil
	}
	outcome(t, h.Run("schedule", "apply", "-f", file, "--yes"), clitest.Left(cli.CodeUsage, "",
		"belfry: "+file+":4: spec.cron: it never fires\n"+file+":6: name: it is bad\n"))
	s.before = func(r proto.Message) error {
		if p, ok := r.(*belfryv1.PutScheduleRequest); ok && p.Name == "old" {
			return clitest.InvalidField("job.retryDelays[3]", "job.retryDelays[3]: too long")
		}
		return nil
	}
	h.Run("schedule", "apply", "-f", file, "--yes").Holds(t, cli.CodePartly,
		"belfry: old in q: "+file+":5: job.retryDelays[3]: too long\n")
}

// TestApplyChecksFirst: the server checks all of each schedule that is new or differs, also in a dry run, and
// all bad ones are named at once. A token that may not change the queue has the rest checked.
func TestApplyChecksFirst(t *testing.T) {
	s, h, file := fixture(t)
	var checked []*belfryv1.PreviewScheduleRequest
	s.before = func(r proto.Message) error {
		p, ok := r.(*belfryv1.PreviewScheduleRequest)
		switch {
		case !ok:
			return nil
		case p.Queue != "" && p.Name == "old":
			return clitest.WireError(connect.CodePermissionDenied, "FORBIDDEN", "not for this queue")
		}
		checked = append(checked, p)
		field := map[string]string{"new": "job.text", "old": "policy.window"}[p.Name]
		return clitest.InvalidField(field, field+": it is bad")
	}
	want := clitest.Left(cli.CodeUsage, "",
		"belfry: "+file+":4: job.text: it is bad\n"+file+":5: policy.window: it is bad\n")
	outcome(t, h.Run("schedule", "apply", "-f", file, "--dry-run"), want)
	outcome(t, h.Run("schedule", "apply", "-f", file, "--yes"), want)
	slices.SortFunc(checked, func(a, b *belfryv1.PreviewScheduleRequest) int { return strings.Compare(a.Name, b.Name) })
	body := &belfryv1.PutRequest_Text{Text: "x"}
	sent := &belfryv1.PreviewScheduleRequest{
		Queue: "q", Name: "new", Spec: &belfryv1.ScheduleSpec{Rule: &belfryv1.ScheduleSpec_Cron{Cron: "@daily"}},
		Policy: &belfryv1.SchedulePolicy{}, Job: &belfryv1.PutRequest{Body: body}, Count: 1,
	}
	later := &belfryv1.PreviewScheduleRequest{
		Name: "old", Spec: &belfryv1.ScheduleSpec{Rule: &belfryv1.ScheduleSpec_Every{Every: clitest.In(time.Hour)}},
		Policy: sent.Policy, Job: &belfryv1.PutRequest{Body: body, Ttr: clitest.In(time.Minute)}, Count: 1,
	}
	if diff := cmp.Diff([]*belfryv1.PreviewScheduleRequest{sent, sent, later, later}, checked,
		protocmp.Transform()); diff != "" {
		t.Errorf("previews (-want +got):\n%s", diff)
	}
	if len(s.changes) > 0 {
		t.Errorf("sent %v", s.changes)
	}
}

// TestApplyWarns: what a rule may mean that was not intended is said before the question.
func TestApplyWarns(t *testing.T) {
	_, h, file := fixture(t)
	answer := h.Answer
	h.Answer = func(r proto.Message) (proto.Message, error) {
		if _, ok := r.(*belfryv1.PreviewScheduleRequest); ok {
			return &belfryv1.PreviewScheduleResponse{Warnings: []string{"this is rare"}}, nil
		}
		return answer(r)
	}
	got := h.Run("schedule", "apply", "-f", file, "--dry-run")
	if want := "belfry: warning: new in q: this is rare\nbelfry: warning: old in q: this is rare\n"; got.Err != want ||
		!strings.Contains(got.Out, "create new in q: @daily, which does not fire any more\n") {
		t.Errorf("%+v", got)
	}
}

// TestPruneScopes: only what the files claim is deleted: queues, or the beginnings of names.
func TestPruneScopes(t *testing.T) {
	held := func() []*belfryv1.Schedule {
		other := every("shop-1", time.Hour)
		other.Queue = "other"
		return []*belfryv1.Schedule{every("shop-1", time.Hour), every("shop-2", time.Hour), every("else", time.Hour), other}
	}
	const shop2 = "name: shop-2, spec: {every: 1h}, job: {text: x}"
	for name, tt := range map[string]struct{ file, want string }{
		"a queue":  {"{queue: q, schedules: []}", "else shop-1 shop-2"},
		"a prefix": {"{queue: q, prefix: shop-, schedules: []}", "shop-1 shop-2"},
		"two prefixes": {
			"{queue: q, prefix: shop-, schedules: []}\n---\n{queue: q, prefix: sh, schedules: []}", "shop-1 shop-2",
		},
		"a schedule":     {"{queue: q, " + shop2 + "}", "else shop-1"},
		"another queue":  {"{queue: empty, schedules: []}", ""},
		"within a group": {"{prefix: shop-, schedules: [{queue: q, " + shop2 + "}]}", "shop-1"},
	} {
		s, h := newStore(t, held()...)
		h.Run("schedule", "apply", "-f", clitest.WriteFile(t, "f.yaml", tt.file), "--prune", "--yes").Holds(t, 0)
		var deleted []string
		for _, r := range s.changes {
			deleted = append(deleted, r.(*belfryv1.DeleteScheduleRequest).Name)
		}
		slices.Sort(deleted) // several are deleted at one time
		if got := strings.Join(deleted, " "); got != tt.want {
			t.Errorf("%s: deleted %q, want %q", name, got, tt.want)
		}
	}
	s, h := newStore(t, held()...)
	one := clitest.WriteFile(t, "one.yaml", "{queue: q, prefix: shop-, schedules: []}")
	two := clitest.WriteFile(t, "two.yaml", "{queue: q, name: shop-2, spec: {every: 1h}, job: {text: x}}")
	h.Run("schedule", "apply", "-f", one, "-f", two, "--prune", "--yes").Holds(t, cli.CodeUsage,
		one+`:1: queue: q has the prefix "shop-" here, and none at `+two+":1")
	h.Run("schedule", "apply", "-f", one, "-f", two, "--yes").Holds(t, 0, "nothing to do, 1 unchanged\n")
	if len(s.changes) > 0 {
		t.Errorf("sent %v", s.changes)
	}
}

// TestApplyRefuses: files that cannot be read or say nothing.
func TestApplyRefuses(t *testing.T) {
	_, h := newStore(t)
	h.Run("schedule", "apply").Holds(t, cli.CodeUsage, "--file is required")
	h.Run("schedule", "apply", "-f", "/nosuch/f.yaml").Holds(t, cli.CodeUsage, "--file: open /nosuch/f.yaml")
	empty := clitest.WriteFile(t, "f.yaml", "# nothing\n")
	h.Run("schedule", "apply", "-f", empty).Holds(t, cli.CodeUsage, "names no schedule and no queue")
	h.System.In = strings.NewReader("queue: q\nname: x\nspec: {evry: 1h}")
	outcome(t, h.Run("schedule", "apply", "-f", "-"), clitest.Left(cli.CodeUsage, "",
		"belfry: standard input:3: spec.evry: unknown field; did you mean \"every\"?\n"))
	if len(h.Requests) > 0 {
		t.Errorf("sent %v", h.Requests)
	}
}

// TestApplyChecksEmptyGroups: a group without schedules may claim a queue that is none, or names that no
// schedule can have.
func TestApplyChecksEmptyGroups(t *testing.T) {
	s, h := newStore(t)
	s.before = func(r proto.Message) error {
		if r, ok := r.(*belfryv1.ListSchedulesRequest); ok && r.Queue == "bad name" {
			return clitest.InvalidField("queue", "queue: only letters are allowed")
		}
		return nil
	}
	bad := clitest.WriteFile(t, "f.yaml", "{queue: q, schedules: []}\n---\n{queue: bad name, schedules: []}\n")
	outcome(t, h.Run("schedule", "apply", "-f", bad), clitest.Left(cli.CodeUsage, "",
		"belfry: "+bad+":3: queue: only letters are allowed\n"))
	h.Requests = nil
	bad = clitest.WriteFile(t, "f.yaml", "queue: q\nprefix: '*bad*'\nschedules: []\n")
	outcome(t, h.Run("schedule", "apply", "-f", bad), clitest.Left(cli.CodeUsage, "", "belfry: "+bad+
		":2: prefix: no name begins with \"*bad*\": only letters, digits and the characters . _ : / - are allowed\n"))
	if len(h.Requests) > 0 {
		t.Errorf("sent %v", h.Requests)
	}
}

// TestExport: what it writes, of one queue and of several, and that a prefix is part of it.
func TestExport(t *testing.T) {
	whole := full()
	_, h := newStore(t, whole, every("shop-1", time.Hour), every("else", 90*time.Minute))
	want := `queue: q
prefix: shop-
schedules:
  - name: shop-1
    spec:
      every: 1h
    job:
      text: x
---
queue: reports
prefix: shop-
schedules: []
`
	outcome(t, h.Run("schedule", "export", "q", "reports", "--prefix", "shop-"), clitest.Left(0, want, ""))
	outcome(t, h.Run("schedule", "export", "q", "--prefix", "shop-", "-o", "json"), clitest.Left(0,
		`[{"prefix":"shop-","queue":"q","schedules":[{"job":{"text":"x"},"name":"shop-1","spec":{"every":"1h"}}]}]`+"\n", ""))
	want = `queue: reports
schedules:
  - name: nightly
    spec:
      cron: 30 2 * * *
      timeZone: Europe/Berlin
      start: "2030-01-31T08:00:00Z"
      end: "2030-01-31T10:00:00Z"
      jitter: 1m
      exclude:
        - '* * 24 12 *'
    policy:
      catchUp: ALL
      window: 1h
      overlap: ONE_WAITING
      maxFires: 1000
      pauseOnDead: true
    job:
      ttr: 1m
      priority: 3
      text: all shops
      headers:
        a: "1"
        b: "2"
      maxAttempts: 5
      retryDelays:
        - 1s
        - 1m
      ttl: 1h
      key: k
`
	outcome(t, h.Run("schedule", "export", "reports"), clitest.Left(0, want, ""))
	h.Run("schedule", "export").Holds(t, cli.CodeUsage, "missing argument: QUEUE")
}
