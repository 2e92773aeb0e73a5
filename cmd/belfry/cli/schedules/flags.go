package schedules

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// specFlags say when a schedule fires.
type specFlags struct {
	cron, timeZone, dst  string
	every, phase, jitter cli.OptionalDuration
	start, end           cli.MomentValue
	exclude              []string
}

func (f *specFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.cron, flag.Cron, "",
		"when it fires: minute, hour, day of the month, month, day of the week, with seconds before them if there are "+
			"six; or @daily and the like")
	flags.Var(&f.every, flag.Every, "instead of --cron: how often, counted from 1970 on, at least 1s")
	flags.Var(&f.phase, flag.Phase, "with --every: so much later")
	flags.StringVar(&f.timeZone, flag.TimeZone, "", "of --cron and --exclude, such as Europe/Berlin; UTC if not given")
	flags.Var(cli.Choice(&f.dst, "once", "literal", "skip"), flag.DST,
		"local times that a change of the clock leaves out or repeats: once, literal or skip")
	flags.Var(&f.jitter, flag.Jitter, "how long after its nominal time a job may be due, at most 24h")
	flags.StringArrayVar(&f.exclude, flag.Exclude, nil, "an expression of times without a firing; may be repeated")
	flags.Var(&f.start, flag.Start, "no firing before this time (RFC 3339)")
	flags.Var(&f.end, flag.End, "no firing after this time (RFC 3339)")
	for _, name := range []string{
		flag.Cron, flag.Every, flag.Phase, flag.DST, flag.Jitter, flag.Exclude, flag.Start, flag.End,
	} {
		cli.SetsField(flags, name, "spec."+name)
	}
	cli.SetsField(flags, flag.TimeZone, "spec.timeZone")
}

// build returns the rule that the flags describe.
func (f *specFlags) build(flags *pflag.FlagSet) (*belfryv1.ScheduleSpec, error) {
	spec := &belfryv1.ScheduleSpec{
		Phase: f.phase.Proto, TimeZone: f.timeZone, Start: f.start.Proto, End: f.end.Proto, Jitter: f.jitter.Proto,
		Exclude: f.exclude,
	}
	if flags.Changed(flag.DST) {
		spec.Dst = belfryv1.DST(wordOf(belfryv1.DST_value, "DST_", f.dst))
	}
	switch {
	case f.cron != "" && f.every.Proto != nil:
		return nil, cli.Usagef("--cron and --every exclude each other")
	case f.cron != "":
		spec.Rule = &belfryv1.ScheduleSpec_Cron{Cron: f.cron}
	case f.every.Proto != nil:
		spec.Rule = &belfryv1.ScheduleSpec_Every{Every: f.every.Proto}
	default:
		return nil, cli.Usagef("--cron or --every is required")
	}
	return spec, nil
}

// policyFlags say what becomes of firings that cannot happen as planned.
type policyFlags struct {
	catchUp, overlap string
	window           cli.OptionalDuration
	maxFires         uint64
	pauseOnDead      bool
}

func (f *policyFlags) add(flags *pflag.FlagSet) {
	flags.Var(cli.Choice(&f.catchUp, "latest", "all", "none"), flag.CatchUp,
		"what happens of the firings of an outage or a pause: latest, all or none")
	flags.Var(&f.window, flag.Window, "how late a firing may be, 1s to 1 year; not given, 24h")
	flags.Var(cli.Choice(&f.overlap, "allow", "skip", "one-waiting"), flag.Overlap,
		"while an earlier job has not ended: allow, skip, or one-waiting (one beside the reserved ones)")
	flags.Uint64Var(&f.maxFires, flag.MaxFires, 0, "ends the schedule after so many jobs; 0 for no limit")
	flags.BoolVar(&f.pauseOnDead, flag.PauseOnDead, false, "pause it when one of its jobs becomes dead")
	cli.SetsField(flags, flag.CatchUp, "policy.catchUp")
	cli.SetsField(flags, flag.Overlap, "policy.overlap")
	cli.SetsField(flags, flag.Window, "policy.window")
	cli.SetsField(flags, flag.MaxFires, "policy.maxFires")
}

// build returns the policy that the flags describe.
func (f *policyFlags) build() *belfryv1.SchedulePolicy {
	overlap := strings.ReplaceAll(f.overlap, "-", "_")
	return &belfryv1.SchedulePolicy{
		CatchUp: belfryv1.CatchUp(wordOf(belfryv1.CatchUp_value, "CATCH_UP_", f.catchUp)), Window: f.window.Proto,
		Overlap:  belfryv1.Overlap(wordOf(belfryv1.Overlap_value, "OVERLAP_", overlap)),
		MaxFires: f.maxFires, PauseOnDead: f.pauseOnDead,
	}
}

// jobFlags say what the jobs of a schedule are.
type jobFlags struct {
	ttr, ttl    cli.OptionalDuration
	retryDelays cli.DurationList
	priority    int64
	maxAttempts uint32
	headers     []string
	key         string
}

func (f *jobFlags) add(flags *pflag.FlagSet) {
	flags.Var(&f.ttr, flag.TTR, "time to run: the length of the leases of its jobs")
	flags.Int64Var(&f.priority, flag.Priority, 0, "of its jobs: -128 to 4294967295, lower leaves first")
	flags.Uint32Var(&f.maxAttempts, flag.MaxAttempts, 0, "how many failed attempts make a job dead, 0 for no limit")
	flags.Var(&f.retryDelays, flag.RetryDelays,
		"what follows the n-th failed attempt of a job, such as 1s,10s,2m; not given, those of the queue")
	flags.Var(&f.ttl, flag.TTL, "how long a job may wait for a consumer")
	flags.StringArrayVarP(&f.headers, flag.Header, "H", nil, "a header `name=value` of its jobs; may be repeated")
	flags.StringVar(&f.key, flag.Key, "", "the key of its jobs")
	for name, field := range map[string]string{
		flag.TTR: "ttr", flag.Priority: "priority", flag.MaxAttempts: "maxAttempts", flag.RetryDelays: "retryDelays",
		flag.TTL: "ttl", flag.Header: "headers", flag.Key: "key",
	} {
		cli.SetsField(flags, name, "job."+field)
	}
}

// build returns the job that the flags describe, without its body.
func (f *jobFlags) build(flags *pflag.FlagSet) (*belfryv1.PutRequest, error) {
	headers, err := cli.ParseHeaders(f.headers)
	if err != nil {
		return nil, err
	}
	job := &belfryv1.PutRequest{
		Ttr: f.ttr.Proto, Ttl: f.ttl.Proto, RetryDelays: f.retryDelays.Protos, Headers: headers, Key: f.key,
	}
	if flags.Changed(flag.Priority) {
		job.Priority = &f.priority
	}
	if flags.Changed(flag.MaxAttempts) {
		job.MaxAttempts = &f.maxAttempts
	}
	return job, nil
}

// wordOf returns the number of the value that a word stands for in an enum of the API.
func wordOf(values map[string]int32, prefix, word string) int32 {
	return values[prefix+strings.ToUpper(word)]
}
