package cron

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Limits of a Spec.
const (
	textBytesMax = 256            // of an expression
	excludesMax  = 32             // of a rule
	zoneBytesMax = 64             // of the name of a zone; IANA's longest has 32
	everyMin     = time.Second    // below it, a rate of jobs is what is meant
	jitterMax    = 24 * time.Hour // a firing must stay near the time that it is named after
)

// A Spec says when a schedule fires, as a user writes it. Exactly one of Cron and Every is set.
type Spec struct {
	Cron     string        // an expression; the package's documentation has the syntax
	Every    time.Duration // whole milliseconds, at least a second: fires at 1970 + n·Every + Phase
	Phase    time.Duration // with Every: whole milliseconds, at least 0 and less than Every
	TimeZone string        // of Cron and Exclude: the name of an IANA zone; empty means UTC
	DST      DST           // of Cron
	Start    time.Time     // no firing before it; the zero time for no bound
	End      time.Time     // no firing after it; the zero time for no bound
	Jitter   time.Duration // whole milliseconds from 0 to 24 h; JitterOf chooses within it
	Exclude  []string      // expressions: a firing at a time of one of them does not happen
}

// A FieldError is a problem of one field of a Spec.
type FieldError struct {
	Field   string // as JSON has it, such as "jitter" or "exclude[2]"
	Problem string // what was written, and what may be
}

// Error returns the field and its problem.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// A problemList collects the problems of a Spec.
type problemList []error

func (p *problemList) add(field, format string, args ...any) {
	*p = append(*p, &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)})
}

// Compile checks spec and returns the rule that it describes, with zone data from zones, which must
// not be nil. The error has all problems of spec: it joins a *FieldError for each (see errors.Join).
// The same spec and data give the same rule. Any goroutine may call it.
func Compile(spec *Spec, zones *Zones) (*Rule, error) {
	var problems problemList
	zone := compileZone(spec.TimeZone, zones, &problems)
	r := &Rule{zone: zone, dst: spec.DST, jitter: spec.Jitter, phase: spec.Phase.Milliseconds()}
	if spec.DST > Skip {
		problems.add("dst", "%d is no policy: ONCE, LITERAL or SKIP", spec.DST)
	}
	switch {
	case spec.Cron != "" && spec.Every != 0:
		problems.add("cron", "cron and every are both set; a schedule has one of them")
	case spec.Cron == "" && spec.Every == 0:
		problems.add("cron", "neither cron nor every is set; a schedule has one of them")
	case spec.Cron != "":
		r.expression = compileExpression("cron", spec.Cron, &problems)
		if spec.Phase != 0 {
			problems.add("phase", "%v is set without every, which it shifts", spec.Phase)
		}
	default:
		r.compileEvery(spec, &problems)
	}
	r.compileBounds(spec, &problems)
	r.compileExcludes(spec.Exclude, &problems)
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	if len(r.excludes) > 0 {
		if problem := r.findEmptyDays(); problem != "" {
			return nil, errors.Join(&FieldError{Field: "exclude", Problem: problem})
		}
	}
	r.warnings = r.findWarnings()
	return r, nil
}

func compileZone(name string, zones *Zones, problems *problemList) *Zone {
	if len(name) > zoneBytesMax {
		problems.add("timeZone", "has %d bytes; the name of a zone has at most %d", len(name), zoneBytesMax)
		return nil
	}
	if name == "" {
		name = "UTC"
	}
	zone, err := zones.Load(name)
	if err != nil {
		problems.add("timeZone", "%v", err)
	}
	return zone
}

// compileExpression returns the expression of a text, or nil and its problems.
func compileExpression(field, text string, problems *problemList) *expression {
	if len(text) > textBytesMax {
		problems.add(field, "has %d bytes; an expression has at most %d", len(text), textBytesMax)
		return nil
	}
	e, wrong := parse(text)
	for _, problem := range wrong {
		problems.add(field, "%s", problem)
	}
	if len(wrong) > 0 {
		return nil
	}
	if _, ok := e.firstDay(); !ok {
		problems.add(field, "%q never fires: no month that it names has such a day", text)
		return nil
	}
	return e
}

func (r *Rule) compileEvery(spec *Spec, problems *problemList) {
	r.every = spec.Every.Milliseconds()
	r.expression = everySecond()
	switch {
	case spec.Every < everyMin:
		problems.add("every", "%v is less than %v", spec.Every, everyMin)
	case spec.Every%time.Millisecond != 0:
		problems.add("every", "%v is not in whole milliseconds", spec.Every)
	}
	switch {
	case spec.Phase < 0:
		problems.add("phase", "%v is negative; it is at least 0 and less than every", spec.Phase)
	case spec.Phase%time.Millisecond != 0:
		problems.add("phase", "%v is not in whole milliseconds", spec.Phase)
	case spec.Phase >= spec.Every && spec.Every >= everyMin:
		problems.add("phase", "%v is not less than every, which is %v", spec.Phase, spec.Every)
	}
}

func (r *Rule) compileBounds(spec *Spec, problems *problemList) {
	r.start, r.end = horizonFirst*1000, horizonEnd*1000-1
	inHorizon := func(field string, t time.Time) bool {
		if s := t.Unix(); s < horizonFirst || s >= horizonEnd {
			problems.add(field, "is in the year %d; schedules know the years 1900 to 2199", t.UTC().Year())
			return false
		}
		return true
	}
	start, end := !spec.Start.IsZero(), !spec.End.IsZero()
	if start && inHorizon("start", spec.Start) {
		r.start = ceilMilli(spec.Start)
	}
	if end && inHorizon("end", spec.End) {
		r.end = spec.End.UnixMilli()
	}
	if start && end && !spec.End.After(spec.Start) {
		problems.add("end", "%s is not after start, %s",
			spec.End.UTC().Format(time.RFC3339Nano), spec.Start.UTC().Format(time.RFC3339Nano))
	}
	switch {
	case spec.Jitter < 0 || spec.Jitter > jitterMax:
		problems.add("jitter", "%v is not in 0-24h: a firing would be on another day than its name says", spec.Jitter)
	case spec.Jitter%time.Millisecond != 0:
		problems.add("jitter", "%v is not in whole milliseconds", spec.Jitter)
	}
}

func (r *Rule) compileExcludes(texts []string, problems *problemList) {
	if len(texts) > excludesMax {
		problems.add("exclude", "has %d expressions; at most %d are allowed", len(texts), excludesMax)
		return
	}
	for i, text := range texts {
		field := "exclude[" + strconv.Itoa(i) + "]"
		if e := compileExpression(field, text, problems); e != nil {
			if !e.seconds {
				e.second = 1<<60 - 1 // an exclude without seconds has all those of its minutes
			}
			r.excludes = append(r.excludes, e)
		}
	}
}

// findEmptyDays finds the sets of excludes that leave nothing of a day. It returns a problem if nothing
// is left of the whole rule.
func (r *Rule) findEmptyDays() (problem string) {
	empty, all, ok := emptyDays(r.expression, r.excludes)
	if !ok {
		return fmt.Sprintf("has more than %d combinations of expressions that have a day in common", excludeSetsMax)
	}
	r.empty = empty
	if !all && r.every > 0 {
		_, left := r.everyNext(cycleFirst * daySeconds * 1000)
		all = !left
	}
	if all {
		return "leaves out every firing"
	}
	return ""
}

// ceilMilli returns the first millisecond that is not before t.
func ceilMilli(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms
}
