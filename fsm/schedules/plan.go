package schedules

import "github.com/belfrydb/belfry/fsm"

// planJobsMax bounds the jobs that one plan puts.
const planJobsMax = 1_000

// Calendar finds the nominal times of a schedule.
type Calendar interface {
	// Next returns the first nominal time after t, 0 if there is none.
	Next(t fsm.Time) fsm.Time
	// Due returns when the job of a nominal time is due: not before it.
	Due(nominal fsm.Time) fsm.Time
	// ZoneData is the version of the time-zone data.
	ZoneData() string
}

// Plan returns what a leader proposes for a schedule whose Next has come at time now: commands that
// apply one after the other. It looks at no more than so many nominal times. There may be more to do
// afterwards: then the last one leaves a Next that has come as well. lags says that the plan ends before
// now, because the nominal times are many.
func Plan(s *fsm.Schedule, now fsm.Time, calendar Calendar, most int) (plan []*fsm.Fire, lags bool) {
	if s.Pending {
		return []*fsm.Fire{pending(s, now, calendar)}, false
	}
	if s.Replan || s.ZoneData != calendar.ZoneData() {
		if next := calendar.Next(max(s.Last, min(s.Changed, s.Next-1))); next != s.Next || s.Replan {
			return []*fsm.Fire{fire(s, s.Next, calendar, next)}, false
		}
	}
	p := planner{schedule: s, calendar: calendar, nominal: s.Next, oldest: now - fsm.Time(Window(s))}
	at := s.Next
	for looked := 0; at != 0 && at <= now && looked < most && len(p.fires) < planJobsMax; looked++ {
		next := calendar.Next(at)
		last := next == 0 || next > now
		switch {
		case at < p.oldest, !last && s.Policy.CatchUp != fsm.CatchUpAll:
			p.missed++
			p.lastMissed = at
		default:
			p.put(at, next)
		}
		at = next
	}
	if p.missed > 0 {
		p.add(fire(s, p.nominal, calendar, at))
	}
	return p.fires, at != 0 && at <= now
}

// pending returns the command that deals with the pending firing of a schedule.
func pending(s *fsm.Schedule, now fsm.Time, calendar Calendar) *fsm.Fire {
	f := fire(s, s.Next, calendar, 0)
	if s.Then > s.Next && !s.Replan {
		f.Next = s.Then
	}
	last := f.Next == 0 || f.Next > now
	if s.Next < now-fsm.Time(Window(s)) || !last && s.Policy.CatchUp != fsm.CatchUpAll {
		f.Missed, f.LastMissed = 1, s.Next
	} else {
		f.Put, f.Due = s.Next, calendar.Due(s.Next)
	}
	return f
}

// planner has the commands of a plan.
type planner struct {
	schedule   *fsm.Schedule
	calendar   Calendar
	oldest     fsm.Time // firings before it are missed
	nominal    fsm.Time // the next that the commands so far leave
	missed     uint64
	lastMissed fsm.Time
	fires      []*fsm.Fire
}

// put adds a command that puts the job of a nominal time.
func (p *planner) put(at, next fsm.Time) {
	f := fire(p.schedule, p.nominal, p.calendar, next)
	f.Put, f.Due = at, p.calendar.Due(at)
	p.add(f)
}

// add adds a command, which passes over what was missed before it.
func (p *planner) add(f *fsm.Fire) {
	f.Missed, f.LastMissed = p.missed, p.lastMissed
	p.missed, p.lastMissed, p.nominal = 0, 0, f.Next
	p.fires = append(p.fires, f)
}

func fire(s *fsm.Schedule, nominal fsm.Time, calendar Calendar, next fsm.Time) *fsm.Fire {
	return &fsm.Fire{
		Queue: s.Queue, Name: s.Name, Serial: s.Serial, Version: s.Version, Nominal: nominal, Next: next,
		ZoneData: calendar.ZoneData(),
	}
}
