package codec

import (
	"encoding/binary"

	"github.com/belfrydb/belfry/fsm"
)

// AppendDefinition appends what a user says of a schedule. Two schedules with equal bytes are the
// same: text cron; uvarint every, phase; text time zone; byte DST; uvarint start, end, jitter; texts
// exclude; byte catch-up; uvarint window; byte overlap; uvarint max fires; flag pause on dead; the
// content of the job; text key.
func AppendDefinition(dst []byte, spec *fsm.ScheduleSpec, policy *fsm.SchedulePolicy, job *fsm.Put) []byte {
	dst = append(AppendSpec(dst, spec), byte(policy.CatchUp))
	dst = append(binary.AppendUvarint(dst, Unsigned(policy.Window)), byte(policy.Overlap))
	dst = appendFlag(binary.AppendUvarint(dst, policy.MaxFires), policy.PauseOnDead)
	return AppendText(appendContent(dst, job), job.Key)
}

// AppendSpec appends the part of a definition that says when a schedule fires: up to exclude.
func AppendSpec(dst []byte, spec *fsm.ScheduleSpec) []byte {
	dst = AppendText(dst, spec.Cron)
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, Unsigned(spec.Every)), Unsigned(spec.Phase))
	dst = append(AppendText(dst, spec.TimeZone), spec.DST)
	for _, v := range [...]uint64{Unsigned(spec.Start), Unsigned(spec.End), Unsigned(spec.Jitter)} {
		dst = binary.AppendUvarint(dst, v)
	}
	return appendTexts(dst, spec.Exclude)
}

// definition reads what AppendDefinition appended. The body of the job aliases the input.
func (r *Reader) definition(spec *fsm.ScheduleSpec, policy *fsm.SchedulePolicy, job *fsm.Put) {
	*spec = fsm.ScheduleSpec{
		Cron: r.ownText(), Every: r.duration(), Phase: r.duration(), TimeZone: r.ownText(), DST: r.Byte(), Start: r.Time(),
		End: r.Time(), Jitter: r.duration(), Exclude: r.texts(nil),
	}
	*policy = fsm.SchedulePolicy{
		CatchUp: fsm.CatchUp(r.choice(uint64(fsm.CatchUpNone))), Window: r.duration(),
		Overlap: fsm.Overlap(r.choice(uint64(fsm.OverlapOneWaiting))), MaxFires: r.Uvarint(), PauseOnDead: r.flag(),
	}
	*job = fsm.Put{}
	r.content(job)
	job.Key = r.ownText()
}

// choice reads a byte that is at most the last choice.
func (r *Reader) choice(last uint64) byte {
	v := r.Byte()
	if uint64(v) > last {
		r.Damaged("unknown choice of a schedule")
		return 0
	}
	return v
}

// AppendSchedule appends what a shard keeps of a schedule, but for its queue: text name; uvarint
// serial, version, rule version, created, changed, next, then; flags replan, pending; text zone data;
// flag paused; text note;
// uvarint last, fired, missed, skipped, backfilled; uvarint number of jobs and the serial of each;
// uvarint number of firings, of each a byte result and uvarint nominal, at, count; then the
// definition.
func AppendSchedule(dst []byte, s *fsm.Schedule) []byte {
	dst = AppendText(dst, s.Name)
	for _, v := range [...]uint64{
		s.Serial, s.Version, s.RuleVersion, Unsigned(s.Created), Unsigned(s.Changed), Unsigned(s.Next), Unsigned(s.Then),
	} {
		dst = binary.AppendUvarint(dst, v)
	}
	dst = appendFlag(appendFlag(dst, s.Replan), s.Pending)
	dst = AppendText(appendFlag(AppendText(dst, s.ZoneData), s.Paused), s.Note)
	for _, v := range [...]uint64{
		Unsigned(s.Last), s.Counts.Fired, s.Counts.Missed, s.Counts.Skipped, s.Counts.Backfilled, uint64(len(s.Jobs)),
	} {
		dst = binary.AppendUvarint(dst, v)
	}
	for _, serial := range s.Jobs {
		dst = binary.AppendUvarint(dst, serial)
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.Recent)))
	for i := range s.Recent {
		f := &s.Recent[i]
		dst = append(dst, byte(f.Result))
		for _, v := range [...]uint64{Unsigned(f.Nominal), Unsigned(f.At), f.Count} {
			dst = binary.AppendUvarint(dst, v)
		}
	}
	return AppendDefinition(dst, &s.Spec, &s.Policy, &s.Job)
}

// Schedule reads what AppendSchedule appended. The body of its job aliases the input.
func (r *Reader) Schedule() fsm.Schedule {
	s := fsm.Schedule{
		Name: r.ownText(), Serial: r.Serial(), Version: r.Uvarint(), RuleVersion: r.Uvarint(), Created: r.Time(),
		Changed: r.Time(), Next: r.Time(), Then: r.Time(), Replan: r.flag(), Pending: r.flag(), ZoneData: r.Text(),
		Paused: r.flag(), Note: r.Text(), Last: r.Time(),
		Counts: fsm.ScheduleCounts{Fired: r.Uvarint(), Missed: r.Uvarint(), Skipped: r.Uvarint(), Backfilled: r.Uvarint()},
	}
	for n := r.Length(1); n > 0; n-- {
		s.Jobs = append(s.Jobs, r.Uvarint())
	}
	for n := r.Length(4); n > 0; n-- {
		s.Recent = append(s.Recent, fsm.Firing{
			Result: fsm.FiringResult(r.Byte()), Nominal: r.Time(), At: r.Time(), Count: r.Uvarint(),
		})
	}
	if len(s.Jobs) > fsm.ScheduleJobsKept || len(s.Recent) > fsm.FiringsKept {
		r.Damaged("schedule with too many jobs or firings")
	}
	r.definition(&s.Spec, &s.Policy, &s.Job)
	return s
}

// appendSchedules appends the schedules of a reading.
func appendSchedules(dst []byte, list []fsm.Schedule) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for i := range list {
		dst = AppendSchedule(AppendText(dst, list[i].Queue), &list[i])
	}
	return dst
}

// scheduleBytesMin is the least bytes of a schedule of a reading.
const scheduleBytesMin = 33

func (r *Reader) schedules() []fsm.Schedule {
	n := r.Length(scheduleBytesMin)
	if n == 0 {
		return nil
	}
	list := make([]fsm.Schedule, n)
	for i := range list {
		queue := r.Text()
		list[i] = r.Schedule()
		list[i].Queue = queue
	}
	return list
}

func appendScheduleCommand(dst []byte, c fsm.Command) []byte {
	switch c := c.(type) {
	case *fsm.PutSchedule:
		dst = AppendText(appendPartition(dst, c.Queue, c.Partition, c.Partitions), c.Name)
		for _, v := range [...]uint64{c.IfVersion, Unsigned(c.Next), Unsigned(c.NextAfter)} {
			dst = binary.AppendUvarint(dst, v)
		}
		return AppendDefinition(AppendText(dst, c.ZoneData), &c.Spec, &c.Policy, &c.Job)
	case *fsm.DeleteSchedule:
		dst = appendFlag(AppendText(AppendText(dst, c.Queue), c.Name), c.CancelWaiting)
		return binary.AppendUvarint(dst, c.IfVersion)
	case *fsm.PauseSchedules:
		return AppendText(appendFlag(appendTexts(AppendText(dst, c.Queue), c.Names), c.Resume), c.Note)
	case *fsm.Fire:
		dst = AppendText(AppendText(dst, c.Queue), c.Name)
		for _, v := range [...]uint64{
			c.Serial, c.Version, Unsigned(c.Nominal), c.Missed, Unsigned(c.LastMissed), Unsigned(c.Put), Unsigned(c.Due),
			Unsigned(c.Next),
		} {
			dst = binary.AppendUvarint(dst, v)
		}
		return AppendText(dst, c.ZoneData)
	case *fsm.RunSchedule:
		dst = AppendText(AppendText(dst, c.Queue), c.Name)
		dst = binary.AppendUvarint(dst, uint64(len(c.Times)))
		for _, t := range c.Times {
			dst = binary.AppendUvarint(dst, Unsigned(t))
		}
		return dst
	}
	panic("fsm: command without an encoding")
}

// readScheduleCommand decodes the fields of a command about schedules. These are few, so each is
// allocated.
func readScheduleCommand(kind fsm.Kind, r *Reader) fsm.Command {
	switch kind {
	case fsm.KindPutSchedule:
		c := &fsm.PutSchedule{
			Queue: r.Text(), Partition: r.Uint32(), Partitions: r.Uint32(), Name: r.ownText(), IfVersion: r.Uvarint(),
			Next: r.Time(), NextAfter: r.Time(), ZoneData: r.Text(),
		}
		r.definition(&c.Spec, &c.Policy, &c.Job)
		return c
	case fsm.KindDeleteSchedule:
		return &fsm.DeleteSchedule{Queue: r.Text(), Name: r.ownText(), CancelWaiting: r.flag(), IfVersion: r.Uvarint()}
	case fsm.KindPauseSchedules:
		return &fsm.PauseSchedules{Queue: r.Text(), Names: r.texts(nil), Resume: r.flag(), Note: r.Text()}
	case fsm.KindFire:
		return &fsm.Fire{
			Queue: r.Text(), Name: r.ownText(), Serial: r.Uvarint(), Version: r.Uvarint(), Nominal: r.Time(),
			Missed: r.Uvarint(), LastMissed: r.Time(), Put: r.Time(), Due: r.Time(), Next: r.Time(), ZoneData: r.Text(),
		}
	case fsm.KindRunSchedule:
		c := &fsm.RunSchedule{Queue: r.Text(), Name: r.ownText()}
		for n := r.Length(1); n > 0; n-- {
			c.Times = append(c.Times, r.Time())
		}
		return c
	default:
		return nil
	}
}
