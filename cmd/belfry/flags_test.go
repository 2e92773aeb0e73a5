package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"300s": 5 * time.Minute, "5m": 5 * time.Minute, "1h30m": 90 * time.Minute, "90": 90 * time.Second, "0.25": 250 * time.Millisecond,
		"7d": 7 * 24 * time.Hour, "100ms": 100 * time.Millisecond, "0": 0,
	} {
		var optional optionalDuration
		if err := optional.Set(text); err != nil || optional.proto.AsDuration() != want {
			t.Errorf("%q is %v, %v; want %v", text, optional.proto.AsDuration(), err, want)
		}
		var d time.Duration
		flag := durationFlag{value: &d, text: "the default"}
		if err := flag.Set(text); err != nil || d != want || flag.String() != text {
			t.Errorf("%q is %v (%s), %v; want %v", text, d, &flag, err, want)
		}
	}
	for _, text := range []string{"", "soon", "5 minutes", "1y", "--", "1m1"} {
		var optional optionalDuration
		if err := optional.Set(text); err == nil || optional.proto != nil {
			t.Errorf("%q was taken for %v", text, &optional)
		}
		if err := (&durationFlag{value: new(time.Duration)}).Set(text); err == nil {
			t.Errorf("%q was taken for a duration", text)
		}
	}
}

func TestDurationList(t *testing.T) {
	var list durationList
	if err := list.Set("0s, 10s,2m,6h"); err != nil || list.String() != "0s,10s,2m0s,6h0m0s" {
		t.Errorf("got %s, %v", &list, err)
	}
	if err := list.Set("1s"); err != nil || len(list.protos) != 1 {
		t.Errorf("set again: %s, %v; want the new one only", &list, err)
	}
	for _, bad := range []string{"", "1s,,2s", "1s,soon"} {
		if err := list.Set(bad); err == nil {
			t.Errorf("%q was taken for durations", bad)
		}
	}
}

func TestMoment(t *testing.T) {
	var m moment
	if m.String() != "" {
		t.Errorf("not set, it is %q", m.String())
	}
	if err := m.Set("2030-01-31T10:00:00.5+01:00"); err != nil || m.String() != "2030-01-31T09:00:00.5Z" {
		t.Errorf("got %s, %v", &m, err)
	}
	for _, bad := range []string{"", "tomorrow", "2030-01-31", "10:00"} {
		if err := m.Set(bad); err == nil {
			t.Errorf("%q was taken for a time", bad)
		}
	}
}

func TestChoice(t *testing.T) {
	var value string
	c := newChoice(&value, "table", "json")
	if value != "table" || c.String() != "table" {
		t.Errorf("the default is %q", value)
	}
	if err := c.Set("json"); err != nil || value != "json" {
		t.Errorf("set to %q, %v", value, err)
	}
	if err := c.Set("jsn"); err == nil || !strings.Contains(err.Error(), `did you mean "json"?`) || value != "json" {
		t.Errorf("a wrong word: %v, and the value is %q", err, value)
	}
}

// TestQueueSettingsFlags gives every flag and finds every field; without flags there is none.
func TestQueueSettingsFlags(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	f := &settingsFlags{}
	f.add(flags)
	var names []string
	flags.VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	listed := settingFlags()
	if len(names) != len(listed) {
		t.Errorf("there are the flags %v, listed are %v", names, listed)
	}
	if f.given(flags) || f.build(flags).String() != "" {
		t.Errorf("without flags the settings are %v", f.build(flags))
	}
	err := flags.Parse(strings.Fields("--ttr 1s --max-attempts 0 --retry-delays 0s --dedup-window 2s --dedup-forever=false --max-in-flight 1 " +
		"--max-jobs 2 --max-bytes 3 --puts-per-second 4 --overdue drop --overdue-after 5s --expire-to gone"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := encodeJSON(f.build(flags))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"ttr":"1s","maxAttempts":0,"retryDelays":["0s"],"dedupWindow":"2s","dedupForever":false,"maxInFlight":1,"maxJobs":2,"maxBytes":"3",` +
		`"putsPerSecond":4,"overdue":{"mode":"DROP","period":null,"overdueAfter":"5s"},"expireTo":"GONE","paused":null,"pausedUntil":null}`
	if diff := cmp.Diff(withoutNulls(want), withoutNulls(string(text))); diff != "" || !f.given(flags) {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

// withoutNulls leaves out what is not set, however that is written.
func withoutNulls(json string) string {
	for _, name := range []string{"period", "paused", "pausedUntil"} {
		json = strings.ReplaceAll(json, `,"`+name+`":null`, "")
	}
	return json
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]uint64{
		"300MiB": 300 << 20, "2GiB": 2 << 30, "1.5 GiB": 3 << 29, "2Gi": 2 << 30, "300m": 300 << 20, "2g": 2 << 30, "1TiB": 1 << 40, "10KB": 10_000,
		"314572800": 300 << 20, "7b": 7, "0": 0,
	} {
		if got, ok := parseSize(text); !ok || got != want {
			t.Errorf("%q is read as %d, %v, want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "GiB", "-1GiB", "2 pears", "2GiBs", "2GG", "0x10", "1e9", "NaN", "Inf", "9999999TiB", "1_000", "2iB"} {
		if got, ok := parseSize(text); ok {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}

func TestMemoryFlag(t *testing.T) {
	h := newHarness(t, nil)
	for value, want := range map[string]string{"64MiB": `--memory: have "64MiB", want at least 96MiB`, "much": `--memory: have "much", want a size such as 300MiB`} {
		if got := h.run("serve", "--memory", value, "--print-config"); got.code != codeUsage || !strings.Contains(got.err, want) {
			t.Errorf("--memory %s: %+v, want %q", value, got, want)
		}
	}
	if got := h.run("serve", "--memory", "300MiB", "--print-config"); got.code != codeOK || !strings.Contains(got.out, "300MiB") {
		t.Errorf("%+v", got)
	}
}

// TestRetryDelaysDefault: the word goes back to the default, which is shown as such.
func TestRetryDelaysDefault(t *testing.T) {
	var f settingsFlags
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.add(flags)
	for _, tt := range []struct{ given, want string }{{"1s", ""}, {"default", "true"}} {
		if err := flags.Set("retry-delays", tt.given); err != nil {
			t.Fatal(err)
		}
		s := f.build(flags)
		if s.GetRetryDelaysDefault() != (tt.want != "") || (len(s.RetryDelays) == 0) != (tt.want != "") || f.retryDelays.String() != tt.given {
			t.Errorf("%s became %v", tt.given, s)
		}
	}
	growing := []*durationpb.Duration{durationpb.New(time.Second), durationpb.New(time.Minute)}
	for want, s := range map[string]*belfryv1.QueueSettings{
		"at once":                 {},
		"at once (default)":       {RetryDelaysDefault: proto.Bool(true)},
		"1s, 1m":                  {RetryDelays: growing, RetryDelaysDefault: proto.Bool(false)},
		"1s, 1m, ±10 % (default)": {RetryDelays: growing, RetryDelaysDefault: proto.Bool(true)},
	} {
		if got := retryDelays(s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
