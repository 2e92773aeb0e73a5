// Package calendar gives the schedules of a shard the calendars of package cron. See DESIGN.md beside
// this file.
package calendar

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/belfrydb/belfry/cron"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/schedules"
)

// expressionsMax bounds the rules that are kept compiled, by their expressions.
const expressionsMax = 10_000

// Calendars finds the calendar of a schedule. Any goroutine may use it.
type Calendars struct {
	zones   *cron.Zones
	compile func(spec *cron.Spec, zones *cron.Zones) (*cron.Rule, error)

	mu          sync.Mutex
	rules       map[string]*cron.Rule // by ruleKey
	expressions int                   // of rules
}

// New returns calendars with the given time-zone data.
func New(zones *cron.Zones) *Calendars {
	return &Calendars{zones: zones, compile: cron.Compile, rules: map[string]*cron.Rule{}}
}

// Zones returns the time-zone data.
func (c *Calendars) Zones() *cron.Zones { return c.zones }

// Of returns the calendar of a schedule. The error is cron.Compile's.
func (c *Calendars) Of(name string, spec *fsm.ScheduleSpec) (schedules.Calendar, error) {
	rule, err := c.Rule(spec)
	if err != nil {
		return nil, err
	}
	return &calendar{rule: rule, name: name, jitter: spec.Jitter, data: c.zones.Version()}, nil
}

// OfSchedule returns the calendar of a schedule that is stored. The error is cron.Compile's.
func (c *Calendars) OfSchedule(v *fsm.Schedule) (schedules.Calendar, error) {
	return c.Of(v.Name, &v.Spec)
}

// SpecOf returns a spec in the form of package cron.
func SpecOf(spec *fsm.ScheduleSpec) *cron.Spec {
	return &cron.Spec{
		Cron: spec.Cron, Every: spec.Every, Phase: spec.Phase, TimeZone: spec.TimeZone, DST: cron.DST(spec.DST),
		Start: timeOf(spec.Start), End: timeOf(spec.End), Jitter: spec.Jitter, Exclude: spec.Exclude,
	}
}

// Rule compiles a spec, or returns the rule that was compiled before. The error is cron.Compile's.
func (c *Calendars) Rule(spec *fsm.ScheduleSpec) (*cron.Rule, error) {
	key := ruleKey(spec)
	if rule := c.kept(key); rule != nil {
		return rule, nil
	}
	rule, err := c.compile(SpecOf(spec), c.zones) // may take long, and the schedulers need the lock
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept := c.rules[key]; kept != nil {
		return kept, nil
	}
	n := 1 + len(spec.Exclude)
	if c.expressions+n > expressionsMax {
		clear(c.rules)
		c.expressions = 0
	}
	c.rules[key] = rule
	c.expressions += n
	return rule, nil
}

// kept returns the rule that was compiled before, nil if there is none.
func (c *Calendars) kept(key string) *cron.Rule {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rules[key]
}

func ruleKey(spec *fsm.ScheduleSpec) string {
	return fmt.Sprintf("%s\x00%d\x00%d\x00%s\x00%d\x00%d\x00%d\x00%d\x00%s", spec.Cron, spec.Every, spec.Phase,
		spec.TimeZone, spec.DST, spec.Start, spec.End, spec.Jitter, strings.Join(spec.Exclude, "\x00"))
}

// calendar is the calendar of one schedule.
type calendar struct {
	rule   *cron.Rule
	name   string
	jitter time.Duration
	data   string
}

// Next implements schedules.Calendar.
func (c *calendar) Next(t fsm.Time) fsm.Time {
	next, ok := c.rule.Next(time.Unix(0, int64(t)))
	if !ok {
		return 0
	}
	return fsm.Time(next.UnixNano())
}

// Due implements schedules.Calendar.
func (c *calendar) Due(nominal fsm.Time) fsm.Time {
	return nominal.Add(cron.JitterOf(c.name, time.Unix(0, int64(nominal)), c.jitter))
}

// ZoneData implements schedules.Calendar.
func (c *calendar) ZoneData() string { return c.data }

func timeOf(t fsm.Time) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(t)).UTC()
}
