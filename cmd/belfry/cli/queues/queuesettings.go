package queues

import (
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// settingsFlags are the settings of a queue as flags.
type settingsFlags struct {
	ttr, dedupWindow            cli.OptionalDuration
	overduePeriod, overdueAfter cli.OptionalDuration
	retryDelays                 scheduleFlag
	overdue, expireTo           string
	dedupForever                bool
	maxAttempts, maxInFlight    uint32
	maxJobs, putsPerSecond      uint32
	maxBytes                    uint64
	keys                        keyFlags
}

// scheduleFlag is a flag that takes retry delays, or the word that goes back to the default.
type scheduleFlag struct {
	cli.DurationList
	isDefault bool
}

func (f *scheduleFlag) String() string {
	if f.isDefault {
		return "default"
	}
	return f.DurationList.String()
}

// Set reads a value.
func (f *scheduleFlag) Set(text string) error {
	if f.isDefault = text == "default"; f.isDefault {
		f.Protos = nil
		return nil
	}
	return f.DurationList.Set(text)
}

// add adds the flags in the order in which a reader wants them.
func (f *settingsFlags) add(flags *pflag.FlagSet) {
	flags.Var(&f.ttr, flag.TTR, "time to run: the length of a lease")
	flags.Uint32Var(&f.maxAttempts, flag.MaxAttempts, 16, "how many failed attempts make a job dead, 0 for no limit")
	flags.Var(&f.retryDelays, flag.RetryDelays,
		"what follows the n-th failed attempt, such as 1s,10s,2m; the last repeats; 0s for at once; default for "+
			"1s,5s,30s,2m,10m,30m,1h ±10 %")
	flags.Var(&f.dedupWindow, flag.DedupWindow, "how long the id of an ended job is remembered")
	flags.BoolVar(&f.dedupForever, flag.DedupForever, false, "remember ids without end")
	flags.Uint32Var(&f.maxInFlight, flag.MaxInFlight, 0, "how many jobs may be reserved at one time, 0 for no limit")
	flags.Uint32Var(&f.maxJobs, flag.MaxJobs, 0, "how many jobs the queue may hold, 0 for no limit")
	flags.Uint64Var(&f.maxBytes, flag.MaxBytes, 0, "how many bytes the queue may hold, 0 for no limit")
	flags.Uint32Var(&f.putsPerSecond, flag.PutsPerSecond, 0, "how many puts a second are let in, 0 for no limit")
	flags.Var(cli.Choice(&f.overdue, "fire", "spread", "drop"), flag.Overdue,
		"what happens to jobs that fell due in an outage: fire, spread or drop")
	flags.Var(&f.overduePeriod, flag.OverduePeriod, "over how long spread spreads them")
	flags.Var(&f.overdueAfter, flag.OverdueAfter,
		"how long an outage must last for spread or drop, from the first deadline that it missed")
	flags.Var(cli.Choice(&f.expireTo, "gone", "dead"), flag.ExpireTo, "what becomes of a job whose TTL ends: gone or dead")
	f.keys.add(flags)
	for name, field := range map[string]string{
		flag.TTR: "ttr", flag.MaxAttempts: "maxAttempts", flag.RetryDelays: "retryDelays", flag.DedupWindow: "dedupWindow",
		flag.DedupForever: "dedupForever", flag.MaxInFlight: "maxInFlight", flag.MaxJobs: "maxJobs",
		flag.MaxBytes: "maxBytes", flag.PutsPerSecond: "putsPerSecond", flag.Overdue: "overdue",
		flag.OverduePeriod: "overdue.period", flag.OverdueAfter: "overdue.overdueAfter", flag.ExpireTo: "expireTo",
		flag.KeyConcurrency: "keyConcurrency", flag.KeyRate: "keyRate", flag.KeyBurst: "keyRate.burst",
		flag.KeyOrdered: "keyOrdered", flag.KeyFair: "keyFair", flag.HoldOnDead: "holdOnDead", flag.NoKeys: "noKeys",
	} {
		cli.SetsField(flags, name, "settings."+field)
	}
}

// settingFlags are the flags of settingsFlags.
func settingFlags() []string {
	return []string{"ttr", "max-attempts", "retry-delays", "dedup-window", "dedup-forever", "max-in-flight", "max-jobs",
		"max-bytes",
		"puts-per-second", "overdue", "overdue-period", "overdue-after", "expire-to", "key-concurrency", "key-rate",
		"key-burst", "key-ordered", "key-fair", "hold-on-dead", "no-keys"}
}

// given reports whether any setting is.
func (f *settingsFlags) given(flags *pflag.FlagSet) bool {
	for _, name := range settingFlags() {
		if flags.Changed(name) {
			return true
		}
	}
	return false
}

// build returns the settings that were given, and no others.
func (f *settingsFlags) build(flags *pflag.FlagSet) *belfryv1.QueueSettings {
	settings := &belfryv1.QueueSettings{
		Ttr: f.ttr.Proto, RetryDelays: f.retryDelays.Protos, DedupWindow: f.dedupWindow.Proto,
		DedupForever:  ifGiven(flags, flag.DedupForever, f.dedupForever),
		MaxAttempts:   ifGiven(flags, flag.MaxAttempts, f.maxAttempts),
		MaxInFlight:   ifGiven(flags, flag.MaxInFlight, f.maxInFlight),
		MaxJobs:       ifGiven(flags, flag.MaxJobs, f.maxJobs),
		MaxBytes:      ifGiven(flags, flag.MaxBytes, f.maxBytes),
		PutsPerSecond: ifGiven(flags, flag.PutsPerSecond, f.putsPerSecond),
	}
	if f.retryDelays.isDefault {
		settings.RetryDelaysDefault = proto.Bool(true)
	}
	if f.overdueGiven(flags) > 0 {
		mode := belfryv1.OverdueMode_value["OVERDUE_MODE_"+strings.ToUpper(f.overdue)]
		settings.Overdue = &belfryv1.OverduePolicy{
			Mode: belfryv1.OverdueMode(mode), Period: f.overduePeriod.Proto, OverdueAfter: f.overdueAfter.Proto,
		}
	}
	if flags.Changed(flag.ExpireTo) {
		settings.ExpireTo = belfryv1.ExpireTo(belfryv1.ExpireTo_value["EXPIRE_TO_"+strings.ToUpper(f.expireTo)]).Enum()
	}
	f.keys.build(flags, settings)
	return settings
}

// overdueGiven says how many of the three flags of the overdue policy were given. The server takes
// a policy as a whole.
func (f *settingsFlags) overdueGiven(flags *pflag.FlagSet) (n int) {
	for _, name := range []string{"overdue", "overdue-period", "overdue-after"} {
		if flags.Changed(name) {
			n++
		}
	}
	return n
}

// change returns what was given as a change of the settings in force, which current reads: what is
// not given of the overdue policy and of the rate of keys stays.
func (f *settingsFlags) change(flags *pflag.FlagSet,
	current func() (*belfryv1.QueueSettings, error)) (*belfryv1.QueueSettings, error) {
	settings := f.build(flags)
	n := f.overdueGiven(flags)
	if (n == 0 || n == 3) && !f.keys.partOfRate(flags) {
		return settings, nil
	}
	inForce, err := current()
	if err != nil {
		return nil, err
	}
	f.keys.completeRate(flags, settings.KeyRate, inForce.GetKeyRate())
	if n == 0 || n == 3 {
		return settings, nil
	}
	policy, before := settings.Overdue, inForce.GetOverdue()
	if !flags.Changed(flag.Overdue) && before.GetMode() != belfryv1.OverdueMode_OVERDUE_MODE_UNSPECIFIED {
		policy.Mode = before.GetMode()
	}
	if policy.Period == nil && policy.Mode == belfryv1.OverdueMode_OVERDUE_MODE_SPREAD {
		policy.Period = before.GetPeriod()
	}
	if policy.OverdueAfter == nil {
		policy.OverdueAfter = before.GetOverdueAfter()
	}
	return settings, nil
}

// ifGiven returns a pointer to the value of a flag that was given, else nil.
func ifGiven[T any](flags *pflag.FlagSet, name string, value T) *T {
	if !flags.Changed(name) {
		return nil
	}
	return &value
}
