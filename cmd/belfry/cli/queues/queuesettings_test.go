package queues

import (
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
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
			"--max-jobs 2 --max-bytes 3 --puts-per-second 4 --overdue drop --overdue-after 5s --expire-to gone " +
			"--key-concurrency 5 --key-rate 10/1m --key-burst 20 --key-ordered=false --key-fair --hold-on-dead --no-keys"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := cli.EncodeJSON(f.build(flags))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"ttr":"1s","maxAttempts":0,"retryDelays":["0s"],"dedupWindow":"2s","dedupForever":false,` +
		`"maxInFlight":1,"maxJobs":2,"maxBytes":"3","putsPerSecond":4,` +
		`"overdue":{"mode":"DROP","period":null,"overdueAfter":"5s"},"expireTo":"GONE","paused":null,"pausedUntil":null,` +
		`"keyConcurrency":5,"keyRate":{"count":10,"per":"60s","burst":20},"keyOrdered":false,"keyFair":true,` +
		`"holdOnDead":true,"noKeys":true}`
	if diff := cmp.Diff(withoutNulls(want), withoutNulls(string(text))); diff != "" || !f.given(flags) {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

// TestSettingsAreNamedAsFlags: a refusal of the server names the flags that set the fields.
func TestSettingsAreNamedAsFlags(t *testing.T) {
	for field, name := range map[string]string{
		"ttr": "ttr", "maxAttempts": "max-attempts", "retryDelays[3]": "retry-delays", "dedupWindow": "dedup-window",
		"dedupForever": "dedup-forever", "maxInFlight": "max-in-flight", "maxJobs": "max-jobs", "maxBytes": "max-bytes",
		"putsPerSecond": "puts-per-second", "overdue.mode": "overdue", "overdue.period": "overdue-period",
		"overdue.overdueAfter": "overdue-after", "expireTo": "expire-to", "keyConcurrency": "key-concurrency",
		"keyRate.count": "key-rate", "keyRate.per": "key-rate", "keyRate.burst": "key-burst", "keyOrdered": "key-ordered",
		"keyFair": "key-fair", "holdOnDead": "hold-on-dead", "noKeys": "no-keys",
	} {
		field = "settings." + field
		h := clitest.New(t, clitest.Commands(Commands), func(proto.Message) (proto.Message, error) {
			return nil, clitest.InvalidField(field, field+": out of range")
		})
		h.Run("queue", "create", "q", "--ttr", "1s").Holds(t, cli.CodeUsage, "belfry: INVALID: --"+name+": out of range")
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

// TestKeyRateIsCompleted: the server takes a rate as a whole, so what was not given comes from the rate
// in force.
func TestKeyRateIsCompleted(t *testing.T) {
	inForce := &belfryv1.KeyRate{Count: 10, Per: durationpb.New(time.Minute), Burst: 20}
	for given, want := range map[string]*belfryv1.KeyRate{
		"--key-rate 5/1s":               {Count: 5, Per: durationpb.New(time.Second), Burst: 20},
		"--key-rate 5/1s --key-burst 0": {Count: 5, Per: durationpb.New(time.Second)},
		"--key-burst 30":                {Count: 10, Per: durationpb.New(time.Minute), Burst: 30},
		"--key-rate 0":                  {},
		"--max-jobs 1":                  nil,
	} {
		var f settingsFlags
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.add(flags)
		if err := flags.Parse(strings.Fields(given)); err != nil {
			t.Fatal(err)
		}
		got, err := f.change(flags, func() (*belfryv1.QueueSettings, error) {
			return &belfryv1.QueueSettings{KeyRate: inForce}, nil
		})
		if err != nil || !proto.Equal(got.KeyRate, want) {
			t.Errorf("%s: %v, %v, want %v", given, got.GetKeyRate(), err, want)
		}
	}
}

func TestKeySettingsText(t *testing.T) {
	for want, s := range map[string]*belfryv1.QueueSettings{
		"no limits": {KeyRate: &belfryv1.KeyRate{}},
		"2,000 reserved at one time; in put order": {KeyConcurrency: proto.Uint32(2000), KeyOrdered: proto.Bool(true)},
		"10 every 1m; take turns; held by a dead job; refused": {
			KeyRate: &belfryv1.KeyRate{Count: 10, Per: durationpb.New(time.Minute)}, KeyFair: proto.Bool(true),
			HoldOnDead: proto.Bool(true), NoKeys: proto.Bool(true),
		},
		"10 every 1m, up to 20 at once": {KeyRate: &belfryv1.KeyRate{Count: 10, Per: durationpb.New(time.Minute), Burst: 20}},
	} {
		if got := keySettings(s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
