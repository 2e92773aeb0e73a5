package schedules

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// inJSON writes a mapping as JSON, which is YAML on one line.
func inJSON(t *testing.T, m mapping) string {
	t.Helper()
	var value any
	if err := m.Decode(&value); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// text draws a text that is hard to write as YAML.
func text(t *rapid.T, label string) string {
	return rapid.OneOf(
		rapid.String(),
		rapid.StringOf(rapid.SampledFrom([]rune("a:#-'\"\\ \t\n\r*&!|>{}[]%@`~\x00\x85\u2028\ufeff\uffff\U0010ffff😀1e.="))),
		rapid.SampledFrom([]string{"", "null", "~", "true", "on", "No", "1", "0x1f", "1e3", ".inf", "2030-01-01", "<<", "=",
			"a\n", "\na", " a", "a\n\n", "a\n b", "- a", "a: b", "#", "12:30:45", "\t"}),
	).Draw(t, label)
}

// drawDuration draws a duration as schedules have them.
func drawDuration(t *rapid.T, label string) *durationpb.Duration {
	if rapid.Bool().Draw(t, label+" set") {
		return durationpb.New(time.Duration(rapid.Int64Range(1, int64(100*365*24*time.Hour)).Draw(t, label)))
	}
	return nil
}

// drawTime draws a time.
func drawTime(t *rapid.T, label string) *timestamppb.Timestamp {
	if rapid.Bool().Draw(t, label+" set") {
		return &timestamppb.Timestamp{
			Seconds: rapid.Int64Range(1, 1<<33).Draw(t, label), Nanos: rapid.Int32Range(0, 999_999_999).Draw(t, label+" ns"),
		}
	}
	return nil
}

// drawContent draws a content.
func drawContent(t *rapid.T) content {
	c := content{
		spec: &belfryv1.ScheduleSpec{
			Rule: &belfryv1.ScheduleSpec_Cron{Cron: "x" + text(t, "cron")}, TimeZone: text(t, "zone"),
			Dst:   belfryv1.DST(rapid.Int32Range(0, 3).Draw(t, "dst")),
			Start: drawTime(t, "start"), End: drawTime(t, "end"), Jitter: drawDuration(t, "jitter"),
			Exclude: rapid.SliceOf(rapid.Custom(func(t *rapid.T) string { return text(t, "exclude") })).Draw(t, "all"),
		},
		policy: &belfryv1.SchedulePolicy{
			CatchUp: belfryv1.CatchUp(rapid.Int32Range(0, 3).Draw(t, "catch-up")),
			Overlap: belfryv1.Overlap(rapid.Int32Range(0, 3).Draw(t, "overlap")), Window: drawDuration(t, "window"),
			MaxFires: rapid.Uint64().Draw(t, "fires"), PauseOnDead: rapid.Bool().Draw(t, "dead"),
		},
		job: &belfryv1.ScheduleJob{
			Headers: map[string]string{}, Key: text(t, "key"), Ttr: drawDuration(t, "ttr"), Ttl: drawDuration(t, "ttl"),
		},
	}
	if rapid.Bool().Draw(t, "every") {
		every := time.Duration(rapid.Int64Range(1, 1<<60).Draw(t, "n"))
		c.spec.Rule = &belfryv1.ScheduleSpec_Every{Every: durationpb.New(every)}
		c.spec.Phase = drawDuration(t, "phase")
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "headers") {
		c.job.Headers[text(t, "header")+strings.Repeat("x", i)] = text(t, "value")
	}
	if rapid.Bool().Draw(t, "numbers") {
		c.job.Priority = new(rapid.Int64Range(-128, 1<<32-1).Draw(t, "priority"))
		c.job.MaxAttempts = new(rapid.Uint32().Draw(t, "attempts"))
		c.job.RetryDelays = []*durationpb.Duration{durationpb.New(0), durationpb.New(time.Second)}
	}
	switch rapid.IntRange(0, 2).Draw(t, "body") {
	case 1:
		c.job.Body = &belfryv1.ScheduleJob_Text{Text: text(t, "text") + "."}
	case 2:
		c.job.Body = &belfryv1.ScheduleJob_Data{Data: append(rapid.SliceOf(rapid.Byte()).Draw(t, "data"), 0xff)}
	}
	return c
}

// TestExportComesBack: what an export writes is read as what it was, in YAML and in JSON, however hard
// its texts are to write.
func TestExportComesBack(t *testing.T) {
	merge := whole(true)
	merge.job.Headers = map[string]string{"<<": "a", "~": "", "on": "\x7f\ufeff\U0010ffff"}
	for _, c := range []content{merge, whole(false), {job: &belfryv1.ScheduleJob{
		Body: &belfryv1.ScheduleJob_Text{Text: " a\n\n b\n"},
	}, spec: merge.spec, policy: merge.policy}} {
		checkComesBack(t, c)
	}
	rapid.Check(t, func(t *rapid.T) { checkComesBack(t, drawContent(t)) })
}

// checkComesBack writes a content in both forms, and reads it again.
func checkComesBack(t rapid.TB, c content) {
	t.Helper()
	group := groupNode(scope{queue: "q"}, []*belfryv1.Schedule{
		{Name: "on", Spec: c.spec, Policy: c.policy, Job: c.job},
	})
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(group); err != nil {
		t.Fatal(err)
	}
	var value any
	if err := group.Decode(&value); err != nil {
		t.Fatal(err)
	}
	inJSON, err := escapedJSON(value)
	if err != nil {
		t.Fatal(err)
	}
	for _, written := range []string{out.String(), string(inJSON)} {
		d := &definitions{}
		if err := d.add("f.yaml", []byte(written)); err != nil {
			t.Fatalf("%v in\n%s", err, written)
		}
		if got := differences(c, d.entries[0].content()); len(got) > 0 || d.entries[0].name != "on" {
			t.Fatalf("%q, %v: written as\n%s", d.entries[0].name, got, written)
		}
		want, got := c.full(), d.entries[0].content().full()
		for _, pair := range [][2]proto.Message{{want.spec, got.spec}, {want.policy, got.policy}, {want.job, got.job}} {
			if diff := cmp.Diff(pair[0], pair[1], protocmp.Transform()); diff != "" {
				t.Fatalf("(-was +is):\n%s\nwritten as\n%s", diff, written)
			}
		}
	}
}

// TestDifferences: fields are named in their order, and defaults are those that the server shows.
func TestDifferences(t *testing.T) {
	held := whole(false)
	job := proto.CloneOf(held.job)
	job.Headers = map[string]string{"a": "", "c": "3"}
	job.RetryDelays = durations(time.Second, time.Hour)
	job.Priority = nil
	job.Body = &belfryv1.ScheduleJob_Data{Data: []byte("all shops\x1b")}
	after := content{
		spec: &belfryv1.ScheduleSpec{Rule: &belfryv1.ScheduleSpec_Every{Every: durationpb.New(25 * time.Hour)}},
		policy: &belfryv1.SchedulePolicy{
			Overlap: belfryv1.Overlap_OVERLAP_ONE_WAITING, Window: durationpb.New(90 * time.Second),
		},
		job: job,
	}
	want := []difference{
		{"spec.cron", "30 2 * * *", ""}, {"spec.every", "", "25h"}, {"spec.phase", "1ms", ""},
		{"spec.timeZone", "Europe/Berlin", ""}, {"spec.dst", "SKIP", "ONCE"},
		{"spec.start", "2030-01-31T08:00:00Z", ""}, {"spec.end", "2030-01-31T10:00:00Z", ""}, {"spec.jitter", "1m", ""},
		{"spec.exclude", "* * 24 12 *", ""}, {"policy.catchUp", "ALL", "LATEST"}, {"policy.window", "1h", "1m30s"},
		{"policy.maxFires", "1000", ""}, {"policy.pauseOnDead", "true", ""}, {"job.priority", "3", ""},
		{"job.headers.a", "1", `""`}, {"job.headers.b", "2", ""}, {"job.headers.c", "", "3"},
		{"job.retryDelays", "1s, 1m", "1s, 1h"}, {"job.body", "all shops", "all shops·"},
	}
	if diff := cmp.Diff(want, differences(held, after)); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
	for name, pair := range map[string][2]content{
		"what is not set": {{spec: &belfryv1.ScheduleSpec{}}, defaults()},
		"a zero duration": {{spec: &belfryv1.ScheduleSpec{
			Jitter: durationpb.New(0), Phase: durationpb.New(0),
		}}, {}},
		"the forms of a body": {
			{job: &belfryv1.ScheduleJob{Body: &belfryv1.ScheduleJob_Text{Text: "x"}}},
			{job: &belfryv1.ScheduleJob{Body: &belfryv1.ScheduleJob_Data{Data: []byte("x")}}},
		},
	} {
		if got := differences(pair[0], pair[1]); len(got) > 0 {
			t.Errorf("%s makes a difference: %v", name, got)
		}
	}
}

// TestLongValues: values that begin alike are shown from where they differ.
func TestLongValues(t *testing.T) {
	body := func(text string) content {
		return content{job: &belfryv1.ScheduleJob{Body: &belfryv1.ScheduleJob_Data{Data: []byte(text)}}}
	}
	same := strings.Repeat("ä", 700)
	for name, tt := range map[string]struct{ before, after, old, new string }{
		"the end":    {same + "é!", same + "è!", "(1.4 KiB) …é!", "(1.4 KiB) …è!"},
		"one longer": {same, same + "x", "(1.4 KiB) …", "(1.4 KiB) …x"},
		"not text":   {"\xff\x00", "\xff\x01", "(2 bytes) …·", "(2 bytes) …·"},
		"the start":  {"a" + same, "b" + same, "a" + same[:118] + "…", "b" + same[:118] + "…"},
	} {
		want := []difference{{"job.body", tt.old, tt.new}}
		if diff := cmp.Diff(want, differences(body(tt.before), body(tt.after))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
