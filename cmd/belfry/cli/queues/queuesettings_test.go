package queues

import (
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

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
	err := flags.Parse(strings.Fields(
		"--ttr 1s --max-attempts 0 --retry-delays 0s --dedup-window 2s --dedup-forever=false --max-in-flight 1 " +
			"--max-jobs 2 --max-bytes 3 --puts-per-second 4 --overdue drop --overdue-after 5s --expire-to gone"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := cli.EncodeJSON(f.build(flags))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"ttr":"1s","maxAttempts":0,"retryDelays":["0s"],"dedupWindow":"2s","dedupForever":false,` +
		`"maxInFlight":1,"maxJobs":2,"maxBytes":"3","putsPerSecond":4,` +
		`"overdue":{"mode":"DROP","period":null,"overdueAfter":"5s"},"expireTo":"GONE","paused":null,"pausedUntil":null}`
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
		if s.GetRetryDelaysDefault() != (tt.want != "") || (len(s.RetryDelays) == 0) != (tt.want != "") ||
			f.retryDelays.String() != tt.given {
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
