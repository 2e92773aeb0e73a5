package schedule

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/cron"
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// The limits of this service.
const (
	nameBytesMax  = 128
	windowMin     = time.Second
	windowMax     = wire.Year
	timesAnswered = 10
	previewMax    = 100
	backfillMax   = 10_000
	everyMin      = time.Second
	everyMax      = 292 * wire.Year // a time.Duration cannot be much longer
	jitterMax     = 24 * time.Hour
	// timesEnd is the beginning of the year 2200: package cron knows no firing from then on.
	timesEnd = fsm.Time(7_258_118_400 * time.Second)
)

// problems collects the faults of the parts of a request, so that its error names all of them.
type problems struct {
	request *check.Request
	all     []*fault.Error
}

// part checks a part of the request, and keeps its first fault.
func (p *problems) part(checks func(c *check.Request)) {
	c := p.request.Another()
	if checks(c); c.Err != nil {
		p.all = append(p.all, c.Err)
	}
}

// fail makes one fault of all, which has the field and the reason of the first.
func (p *problems) fail() {
	if len(p.all) == 0 {
		return
	}
	f := *p.all[0]
	for _, other := range p.all[1:] {
		f.Message += "; " + other.Message
	}
	p.request.Fail(&f)
}

// nameFlaw returns what is wrong with the name of a schedule, "" if nothing is.
func nameFlaw(name string) string {
	if name == "" {
		return "a schedule's name is required: 1 to " + strconv.Itoa(nameBytesMax) + " bytes"
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return `a part between slashes is empty, "." or ".."`
		}
		for i := range len(part) {
			if !check.NameByte(part[i]) {
				return "only letters, digits and the characters . _ : / - are allowed in a schedule's name"
			}
		}
	}
	return ""
}

// checkName checks the name of a schedule.
func checkName(c *check.Request, field, name string) string {
	if len(name) > nameBytesMax {
		c.Fail(fault.TooLarge(field, len(name), nameBytesMax))
	} else if flaw := nameFlaw(name); flaw != "" {
		c.Fail(fault.Invalid(field, "%s", flaw))
	}
	return name
}

// duration converts a duration whose range package cron checks. Only one that a time.Duration cannot be
// is refused here, because cron would name another one.
func duration(c *check.Request, field string, d *durationpb.Duration, least, most time.Duration) time.Duration {
	if d.CheckValid() != nil || !check.Holds(d) {
		c.Span(field, d, least, most)
	}
	return d.AsDuration()
}

// exactTime checks and converts a time of a schedule.
func exactTime(c *check.Request, field string, t *timestamppb.Timestamp) fsm.Time {
	return c.ExactTime(field, t, timesEnd)
}

// spec checks and converts a spec, and returns its rule.
func (s *Service) spec(c *check.Request, in *belfryv1.ScheduleSpec) (fsm.ScheduleSpec, *cron.Rule) {
	if in == nil {
		c.Fail(fault.Invalid("spec", "required: with cron or every"))
		return fsm.ScheduleSpec{}, nil
	}
	spec := fsm.ScheduleSpec{
		Cron: in.GetCron(), Every: duration(c, "spec.every", in.GetEvery(), everyMin, everyMax),
		Phase: duration(c, "spec.phase", in.GetPhase(), 0, everyMax), TimeZone: in.GetTimeZone(),
		Start: exactTime(c, "spec.start", in.GetStart()), End: exactTime(c, "spec.end", in.GetEnd()),
		Jitter: duration(c, "spec.jitter", in.GetJitter(), 0, jitterMax), Exclude: in.GetExclude(),
	}
	if in.GetEvery() != nil && spec.Every == 0 { // package cron takes 0 as not given
		c.Span("spec.every", in.GetEvery(), everyMin, everyMax)
	}
	switch in.GetDst() {
	case belfryv1.DST_DST_UNSPECIFIED, belfryv1.DST_DST_ONCE:
		spec.DST = uint8(cron.Once)
	case belfryv1.DST_DST_LITERAL:
		spec.DST = uint8(cron.Literal)
	case belfryv1.DST_DST_SKIP:
		spec.DST = uint8(cron.Skip)
	default:
		c.Fail(fault.Invalid("spec.dst", "want one of ONCE, LITERAL, SKIP, not %s", codec.QuotedEnum(in.GetDst())))
	}
	if c.Err != nil {
		return spec, nil
	}
	rule, err := s.calendars.Rule(&spec)
	if err != nil {
		c.Fail(specFault(err))
	}
	return spec, rule
}

// specFault returns the fault of all problems of a spec.
func specFault(err error) *fault.Error {
	var out *fault.Error
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, one := range all {
		field, ok := errors.AsType[*cron.FieldError](one)
		if !ok {
			return fault.Invalid("spec", "%s", err)
		}
		f := fault.Invalid("spec."+field.Field, "%s", field.Problem)
		if out == nil {
			out = f
			continue
		}
		out.Message += "; " + f.Message
	}
	return out
}

// policy checks and converts a policy.
func policy(c *check.Request, in *belfryv1.SchedulePolicy) fsm.SchedulePolicy {
	p := fsm.SchedulePolicy{MaxFires: in.GetMaxFires(), PauseOnDead: in.GetPauseOnDead()}
	p.Window, _ = c.Span("policy.window", in.GetWindow(), windowMin, windowMax)
	switch in.GetCatchUp() {
	case belfryv1.CatchUp_CATCH_UP_UNSPECIFIED, belfryv1.CatchUp_CATCH_UP_LATEST:
	case belfryv1.CatchUp_CATCH_UP_ALL:
		p.CatchUp = fsm.CatchUpAll
	case belfryv1.CatchUp_CATCH_UP_NONE:
		p.CatchUp = fsm.CatchUpNone
	default:
		c.Fail(fault.Invalid("policy.catchUp", "want one of LATEST, ALL, NONE, not %s", codec.QuotedEnum(in.GetCatchUp())))
	}
	switch in.GetOverlap() {
	case belfryv1.Overlap_OVERLAP_UNSPECIFIED, belfryv1.Overlap_OVERLAP_ALLOW:
	case belfryv1.Overlap_OVERLAP_SKIP:
		p.Overlap = fsm.OverlapSkip
	case belfryv1.Overlap_OVERLAP_ONE_WAITING:
		p.Overlap = fsm.OverlapOneWaiting
	default:
		c.Fail(fault.Invalid("policy.overlap", "want one of ALLOW, SKIP, ONE_WAITING, not %s",
			codec.QuotedEnum(in.GetOverlap())))
	}
	return p
}

// jobFields are the fields of a PutRequest that the jobs of a schedule may have.
const jobFields = " ttr priority text data headers max_attempts retry_delays ttl key "

// job checks and converts what the jobs of a schedule are. Their queue is checked elsewhere.
func job(c *check.Request, in *belfryv1.PutRequest) fsm.Put {
	in.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !strings.Contains(jobFields, " "+string(field.Name())+" ") {
			c.Fail(fault.Invalid("job."+field.JSONName(), "the jobs of a schedule have none of their own"))
		}
		return true
	})
	for _, name := range [...]string{fsm.HeaderNominal, fsm.HeaderSchedule} {
		if _, there := in.GetHeaders()[name]; there {
			c.Fail(fault.Invalid("job.headers", "the schedule itself sets %s", name))
		}
	}
	var put fsm.Put
	if c.Err != nil {
		return put
	}
	named := proto.CloneOf(in)
	if named == nil {
		named = &belfryv1.PutRequest{}
	}
	named.Queue = "any"
	inner := &check.Request{Limits: c.Limits, Now: c.Now}
	inner.Put(named, &put)
	if f := inner.Err; f != nil {
		f.Field, f.Message = "job."+f.Field, "job."+f.Message
		c.Fail(f)
	}
	put.Queue = ""
	return put
}
