package schedule

import (
	"cmp"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/cron"
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/wire"
)

// localForm is a nominal time as a clock shows it.
const localForm = "2006-01-02T15:04:05.999-07:00 MST"

// local writes a time as a clock in a time zone shows it; nothing if there is none, or no such zone.
func local(zones *cron.Zones, at fsm.Time, zone string) string {
	found, err := zones.Load(cmp.Or(zone, "UTC"))
	if err != nil || at == 0 {
		return ""
	}
	return time.Unix(0, int64(at)).In(found.Location()).Format(localForm)
}

// wireSchedule converts a schedule.
func (s *Service) wireSchedule(v *fsm.Schedule) *belfryv1.Schedule {
	out := &belfryv1.Schedule{
		Queue: v.Queue, Name: v.Name, Version: v.Version, Spec: wireSpec(&v.Spec), Policy: wirePolicy(&v.Policy),
		Job: wireJob(&v.Job), CreatedAt: wire.CeilTime(v.Created), ChangedAt: wire.CeilTime(v.Changed),
		Next: wire.CeilTime(v.Next), Paused: v.Paused, Note: v.Note, ZoneData: v.ZoneData,
		NextLocal: local(s.calendars.Zones(), v.Next, v.Spec.TimeZone),
		Counts: &belfryv1.ScheduleCounts{
			Fired: v.Counts.Fired, Missed: v.Counts.Missed, Skipped: v.Counts.Skipped, Backfilled: v.Counts.Backfilled,
		},
	}
	for i := range v.Recent {
		f := &v.Recent[i]
		out.Recent = append(out.Recent, &belfryv1.Firing{
			Result:  belfryv1.FiringResult(f.Result), // the same numbers
			Nominal: wire.ExactTime(f.Nominal), At: wire.CeilTime(f.At), Count: f.Count,
		})
	}
	return out
}

func wireSpec(v *fsm.ScheduleSpec) *belfryv1.ScheduleSpec {
	out := &belfryv1.ScheduleSpec{
		TimeZone: v.TimeZone, Dst: belfryv1.DST(v.DST) + belfryv1.DST_DST_ONCE, Start: wire.ExactTime(v.Start),
		End: wire.ExactTime(v.End), Exclude: v.Exclude, Phase: optional(v.Phase), Jitter: optional(v.Jitter),
	}
	if v.Every > 0 {
		out.Rule = &belfryv1.ScheduleSpec_Every{Every: durationpb.New(v.Every)}
	} else {
		out.Rule = &belfryv1.ScheduleSpec_Cron{Cron: v.Cron}
	}
	return out
}

func wirePolicy(v *fsm.SchedulePolicy) *belfryv1.SchedulePolicy {
	window := v.Window
	if window == 0 {
		window = fsm.DefaultScheduleWindow
	}
	return &belfryv1.SchedulePolicy{
		CatchUp: belfryv1.CatchUp(v.CatchUp) + belfryv1.CatchUp_CATCH_UP_LATEST, Window: durationpb.New(window),
		Overlap:  belfryv1.Overlap(v.Overlap) + belfryv1.Overlap_OVERLAP_ALLOW,
		MaxFires: v.MaxFires, PauseOnDead: v.PauseOnDead,
	}
}

// wireJob converts what the jobs of a schedule are.
func wireJob(v *fsm.Put) *belfryv1.ScheduleJob {
	out := &belfryv1.ScheduleJob{Key: v.Key}
	if v.Given.Has(fsm.GivenTTR) {
		out.Ttr = durationpb.New(v.TTR)
	}
	if v.Given.Has(fsm.GivenPriority) {
		out.Priority = proto.Int64(v.Priority)
	}
	if v.Given.Has(fsm.GivenMaxAttempts) {
		out.MaxAttempts = proto.Uint32(v.MaxAttempts)
	}
	if v.Given.Has(fsm.GivenRetryDelays) {
		out.RetryDelays = wire.Durations(v.RetryDelays)
	}
	if v.Given.Has(fsm.GivenTTL) {
		out.Ttl = durationpb.New(v.TTL)
	}
	for _, h := range v.Headers {
		if out.Headers == nil {
			out.Headers = map[string]string{}
		}
		out.Headers[h.Name] = h.Value
	}
	switch {
	case len(v.Body) == 0:
	case utf8.Valid(v.Body):
		out.Body = &belfryv1.ScheduleJob_Text{Text: string(v.Body)}
	default:
		out.Body = &belfryv1.ScheduleJob_Data{Data: v.Body}
	}
	return out
}

// optional returns nil for 0.
func optional(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
