package schedules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// read reads a file that has no mistake.
func read(t *testing.T, text string) *definitions {
	t.Helper()
	d := &definitions{}
	if err := d.add("f.yaml", []byte(text)); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return d
}

// TestForms: a document is a schedule, a group, or a list of both; references and merges are followed.
func TestForms(t *testing.T) {
	d := read(t, `
queue: reports
name: alone
spec: {every: 1h}
---
# an empty document
---
queue: sync
prefix: shop-
schedules:
  - &seven
    name: shop-7
    spec: {every: 15m}
    job: &job {text: seven, priority: 3}
  - <<: *seven
    name: shop-8
    job: {<<: *job, text: eight}
---
- {queue: reports, name: listed, spec: {every: 1m}, job: *job}
- queue: empty
  schedules: []
- queue: none
  schedules:
`)
	var names []string
	for _, e := range d.entries {
		names = append(names, fmt.Sprintf("%s/%s every %v: %q %d", e.queue, e.name, e.spec.GetEvery().AsDuration(),
			e.job.GetText(), e.job.GetPriority()))
	}
	want := []string{
		`reports/alone every 1h0m0s: "" 0`, `sync/shop-7 every 15m0s: "seven" 3`, `sync/shop-8 every 15m0s: "eight" 3`,
		`reports/listed every 1m0s: "seven" 3`,
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("schedules (-want +got):\n%s", diff)
	}
	scopes := []scope{
		{"reports", "", "f.yaml:2"}, {"sync", "shop-", "f.yaml:8"}, {"empty", "", "f.yaml:20"}, {"none", "", "f.yaml:22"},
	}
	if diff := cmp.Diff(scopes, d.scopes, cmp.AllowUnexported(scope{})); diff != "" {
		t.Errorf("scopes (-want +got):\n%s", diff)
	}
	if list := read(t, `[{"queue":"q","name":"json","spec":{"cron":"* * * * *"}}]`).entries; len(list) != 1 ||
		list[0].spec.GetCron() != "* * * * *" {
		t.Errorf("JSON is no YAML: %v", list)
	}
}

// TestMistakes: each mistake of a file is named with its line and field.
func TestMistakes(t *testing.T) {
	const named, hourly = "queue: q\nname: x\n", "queue: q\nname: x\nspec: {every: 1h}\n"
	for _, tt := range []struct{ text, want string }{
		{hourly + "jbo: {}", `f.yaml:4: jbo: unknown key; did you mean "job"?`},
		{"queue: q\nschedules: []\nzzzzzz: 1", "f.yaml:3: zzzzzz: unknown key; the keys here are queue, prefix, sched"},
		{named + "spec:\n  every: 1h\n  tz: x", "f.yaml:5: spec.tz: unknown field; "},
		{named + "spec:\n  timezone: x", `f.yaml:4: spec.timezone: unknown field; did you mean "timeZone"?`},
		{named + "spec:\n  time_zone: [x]", "f.yaml:4: spec.timeZone: want a value, not a list"},
		{named + "spec: {every: 1h, cron: '* *'}", "f.yaml:3: spec.every: not together with cron"},
		{named + "spec: {every: often}", "f.yaml:3: spec.every: "},
		{named + "spec:\n  every: 1h\n  dst: both", "f.yaml:5: spec.dst: want one of"},
		{named + "spec: {start: 2030-01-01}", "f.yaml:3: spec.start: want a time such as"},
		{hourly + "job:\n  id: x", "f.yaml:5: job.id: unknown field; "},
		{hourly + "job:\n  priority: high", "f.yaml:5: job.priority: "},
		{hourly + "job:\n  text:", "f.yaml:5: job.text: want a value, not nothing; leave out"},
		{hourly + "job:\n  data: plain text", "f.yaml:5: job.data: want base64, not "},
		{hourly + "job:\n  retryDelays:\n  - 1s\n  - soon", "f.yaml:7: job.retryDelays[1]: "},
		{hourly + "job:\n  retryDelays: 1s", `f.yaml:5: job.retryDelays: want a list, not "1s"`},
		{hourly + "job:\n  headers: [a]", "f.yaml:5: want a mapping of texts for job.headers, not a li"},
		{hourly + "job:\n  headers:\n    a: [1]", "f.yaml:6: job.headers.a: want a text, not a list"},
		{hourly + "policy: SKIP", `f.yaml:4: want a mapping of the fields of policy, not "SKIP"`},
		{hourly + "policy:\n  pauseOnDead: yes", "f.yaml:5: policy.pauseOnDead: want true or false"},
		{named + "spec: {}", "f.yaml:1: spec: cron or every is required"},
		{"queue: q\nname: x", "f.yaml:1: spec: cron or every is required"},
		{"name: x\nspec: {every: 1h}", "f.yaml:1: queue: required"},
		{"queue: q\nspec: {every: 1h}", "f.yaml:1: name: required"},
		{"queue: [q]\nname: x\nspec: {every: 1h}", "f.yaml:1: queue: want a text, not a list"},
		{"queue: q\nname:\nspec: {every: 1h}", "f.yaml:2: name: want a text, not nothing"},
		{named + "name: y", "f.yaml:3: name: is also at line 2"},
		{"queue: q\n? [a]\n: b", "f.yaml:2: a key is a text, not a list"},
		{"queue: q\nschedules: x", `f.yaml:2: schedules: want a list, not "x"`},
		{"queue: q\nschedules:\n- x", `f.yaml:3: want a schedule, not "x"`},
		{"- - x", "f.yaml:1: want a schedule, or a mapping with schedules, not a list"},
		{"just a text", "f.yaml:1: want a schedule, or a mapping with schedules, not "},
		{"&a {queue: q, <<: *a}", "f.yaml:1: <<: want a mapping, and at most 8 that merge one another"},
		{"<<: x", "f.yaml:1: <<: want a mapping"},
		{
			named + "spec:\n  cron: */5 * * *",
			"f.yaml: line 4: did not find expected alphabetic or numeric character; quote",
		},
		{named + "spec:\n  cron: *five", "quote a value that begins with *"},
		{
			"{queue: q, prefix: a-, schedules: [{name: b, spec: {every: 1h}}]}",
			`f.yaml:1: name: "b" does not begin with the pre`,
		},
		{"- &x {queue: q, name: x, spec: {every: 1h}}\n- *x", "f.yaml:1: x in q is also at f.yaml:1"},
	} {
		if err := (&definitions{}).add("f.yaml", []byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.text, err, tt.want)
		}
	}
	err := (&definitions{}).add("f.yaml", []byte("queue: q\nname: x\nspec: {evry: 1h}\npolicy: {overlap: none}"))
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("two mistakes: %v", err)
	}
}

// whole has each field of a content. Oneofs have the second of their fields if last is set.
func whole(last bool) content {
	f := full()
	if last {
		f.Spec.Rule = &belfryv1.ScheduleSpec_Every{Every: durationpb.New(90 * time.Minute)}
		f.Spec.Phase = durationpb.New(time.Millisecond)
		f.Job.Body = &belfryv1.ScheduleJob_Data{Data: []byte{0xff, 0}}
	}
	f.Spec.Dst, f.Spec.Phase = belfryv1.DST_DST_SKIP, durationpb.New(time.Millisecond)
	return content{f.Spec, f.Policy, f.Job}
}

// TestEveryFieldHasAKey: each field of a schedule can be set in a file, arrives in the request, and is a
// difference. So a field that the messages get later fails here.
func TestEveryFieldHasAKey(t *testing.T) {
	for _, last := range []bool{false, true} {
		all := whole(last)
		keys, parts := all.parts()
		for i, part := range parts {
			fields := part.Descriptor().Fields()
			for n := range fields.Len() {
				field := fields.Get(n)
				one := field.ContainingOneof()
				if one != nil && !one.IsSynthetic() && part.WhichOneof(one) != field {
					continue
				}
				if !part.Has(field) {
					t.Fatalf("the test has no %s.%s", keys[i], field.Name())
				}
				checkKey(t, keys[i], part, field)
			}
		}
	}
}

// checkKey checks a field with the value that a message has.
func checkKey(t *testing.T, key string, part protoreflect.Message, field protoreflect.FieldDescriptor) {
	t.Helper()
	only := part.New()
	only.Set(field, part.Get(field))
	value := messageNode(only)
	spec := "{every: 1h, "
	if field.ContainingOneof() != nil && key == keySpec {
		spec = "{"
	}
	text := "queue: q\nname: x\nspec: " + spec + "}\n"
	line := inJSON(t, value)
	if key == keySpec {
		text = "queue: q\nname: x\nspec: " + spec + strings.TrimPrefix(line, "{") + "\n"
	} else {
		text += key + ": " + line + "\n"
	}
	e := read(t, text).entries[0]
	_, got := e.content().parts()
	which := map[string]int{keySpec: 0, keyPolicy: 1, keyJob: 2}[key]
	if !got[which].Get(field).Equal(part.Get(field)) {
		t.Errorf("%s.%s is %v, want %v", key, field.JSONName(), got[which].Get(field), part.Get(field))
	}
	before := e.content()
	_, parts := content{proto.CloneOf(e.spec), proto.CloneOf(e.policy), proto.CloneOf(e.job)}.parts()
	parts[which].Clear(field)
	after := content{
		parts[0].Interface().(*belfryv1.ScheduleSpec), parts[1].Interface().(*belfryv1.SchedulePolicy),
		parts[2].Interface().(*belfryv1.ScheduleJob),
	}
	if len(differences(before, after)) == 0 {
		t.Errorf("%s.%s makes no difference", key, field.JSONName())
	}
	request, without := before.put("q", "x"), after.put("q", "x")
	if proto.Equal(request, without) {
		t.Errorf("%s.%s is not in the request %v", key, field.JSONName(), request)
	}
}

// TestRequest: what a file says is what is put.
func TestRequest(t *testing.T) {
	all := whole(false)
	priority, attempts := int64(3), uint32(5)
	want := &belfryv1.PutScheduleRequest{
		Queue: "q", Name: "x", Spec: all.spec, Policy: all.policy, Job: &belfryv1.PutRequest{
			Body: &belfryv1.PutRequest_Data{Data: []byte("all shops")}, Headers: map[string]string{"b": "2", "a": "1"},
			Key: "k", Ttr: durationpb.New(time.Minute), Ttl: durationpb.New(time.Hour), Priority: &priority,
			MaxAttempts: &attempts, RetryDelays: durations(time.Second, time.Minute),
		},
	}
	if diff := cmp.Diff(want, all.put("q", "x"), protocmp.Transform()); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}
