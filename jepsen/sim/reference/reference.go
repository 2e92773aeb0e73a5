// Package reference has the reference ledger, fsm/model/ledger, judge the log of a simulated shard. It
// tells of what the ledger of the simulator leaves out: keys, replaced jobs and schedules.
package reference

import (
	"bytes"
	"fmt"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/fsm/model/ledger"
	"github.com/belfrydb/belfry/jepsen/sim/tally"
)

// Config is what a judge gets of its shard.
type Config struct {
	Shard  uint32
	Format fsm.Format
	// Keyed reports whether a queue has keys.
	Keyed func(queue string) bool
	// Machine returns the machine that has applied the whole log.
	Machine func() *machine.Machine
	// Tally counts what was checked.
	Tally *tally.Tally
	// Violated receives the first broken rule of an entry. Rules of the ledger have names as "I43".
	Violated func(rule, text string)
}

// Judge judges the log of a shard.
type Judge struct {
	cfg    Config
	ledger *ledger.Shard
	// rule and text are the first violation that is not reported yet, empty if there is none.
	rule, text string
}

// The rules about grants of a key. A grant that breaks one of them also leaves out of order, and may take
// a serial that the ledger has given away; these two say why.
const (
	keyLimit = "I43"
	keyOrder = "I44"
)

// New returns the judge of a shard without jobs.
func New(cfg Config) *Judge {
	j := &Judge{cfg: cfg}
	j.ledger = ledger.New(ledger.Config{Shard: cfg.Shard, Report: j, Nominal: Nominal, Moved: j.moved})
	return j
}

// Ledger returns the ledger, to be read.
func (j *Judge) Ledger() *ledger.Shard { return j.ledger }

// Enter judges an entry, whose index and times are given, and returns its commands. What is wrong is
// reported by Report.
func (j *Judge) Enter(e ledger.Entry, requests []fsm.Request, told []fsm.Result) []ledger.Command {
	e.Format = j.cfg.Format
	for i := range requests {
		for _, c := range requests[i].Commands {
			n := len(e.Commands)
			e.Commands = append(e.Commands, ledger.Command{Entry: &e, Number: uint32(n), Request: &requests[i], Command: c,
				Result: told[n]})
		}
	}
	j.ledger.Enter(&e)
	for i := range e.Commands {
		j.count(&e.Commands[i])
	}
	return e.Commands
}

// count counts the operations on jobs with a key, but for grants, which moved counts.
func (j *Judge) count(c *ledger.Command) {
	switch k := c.Command.(type) {
	case *fsm.Put:
		if code := c.Result.Code; k.Key != "" && !c.Result.Replayed && code != fsm.RequestExpired && code != fsm.Invalid {
			j.cfg.Tally[tally.KeyedPuts]++
		}
	case *fsm.Ack:
		if c.Effect && c.Job.Put.Key != "" {
			j.cfg.Tally[tally.KeyedAcks]++
		}
	}
}

// moved is told of each change of a job. What was granted must be what was put last.
func (j *Judge) moved(a *ledger.Job, c *ledger.Command) {
	if _, ok := c.Command.(*fsm.Reserve); !ok || a.State != fsm.Reserved {
		return
	}
	k := &a.Queue.Settings.Keys
	if a.Put.Key != "" && k.Limit() > 0 {
		j.cfg.Tally[tally.KeyedGrants]++
	}
	if a.Put.Key != "" && k.Ordered {
		j.cfg.Tally[tally.OrderedGrants]++
	}
	for _, g := range c.Result.Grants {
		if g.Serial != a.Serial {
			continue
		}
		ref := fsm.Ref{Queue: g.Queue, Partition: g.Partition, Serial: g.Serial, Fence: g.Fence}
		if job, ok := j.cfg.Machine().Held(ref); ok && !bytes.Equal(job.Body, a.Put.Body) {
			j.violated("what is handed out is what was put", "job %d has body %x, last put was %x", a.Serial, job.Body,
				a.Put.Body)
		}
	}
}

// Look implements ledger.Report.
func (*Judge) Look(ledger.Rule) {}

// Violated implements ledger.Report.
func (j *Judge) Violated(rule ledger.Rule, _ fsm.Time, text string) {
	name := fmt.Sprintf("I%d", rule)
	if isKeys := name == keyLimit || name == keyOrder; isKeys && j.rule != keyLimit && j.rule != keyOrder {
		j.rule = ""
	}
	j.violated(name, "%s", text)
}

// Count implements ledger.Report.
func (j *Judge) Count(what string, n int64) {
	if count, ok := tally.OfLedger(what); ok {
		j.cfg.Tally[count] += uint64(n)
	}
}

func (j *Judge) violated(rule, format string, args ...any) {
	if j.rule == "" {
		j.rule, j.text = rule, fmt.Sprintf(format, args...)
	}
}

// Report reports what was wrong since the last report.
func (j *Judge) Report() {
	if j.rule != "" {
		j.cfg.Violated(j.rule, j.text)
	}
}

// Held returns the jobs that the queues with keys hold.
func (j *Judge) Held() (jobs []*ledger.Job) {
	for _, a := range j.ledger.Jobs() {
		if a.State.Held() && j.cfg.Keyed(a.Queue.Name) {
			jobs = append(jobs, a)
		}
	}
	return jobs
}

// Owns reports whether a job is of a queue with keys.
func (j *Judge) Owns(serial uint64) bool {
	a := j.ledger.Job(serial)
	return a != nil && j.cfg.Keyed(a.Queue.Name)
}

// Audit holds the counters of the machine against the ledger, and when it has something to do: deadline
// is when something falls due, and firing when the next schedule fires; 0 for never.
func (j *Judge) Audit(deadline, firing fsm.Time) {
	m := j.cfg.Machine()
	j.ledger.Audit(m)
	for _, a := range j.Held() {
		at := a.Due
		switch {
		case a.State == fsm.Reserved:
			at = a.Until
		case a.State == fsm.Dead:
			continue
		case a.TTL != 0 && (a.State == fsm.Ready || a.TTL < at):
			at = a.TTL
		}
		if at > m.Clock() && (deadline == 0 || deadline > at) {
			j.violated("somebody wakes up", "job %d of shard %d has something to happen at %d, the machine wakes up at %d",
				a.Serial, j.cfg.Shard, at, deadline)
		}
	}
	if want := j.ledger.NextFiring(); firing != want {
		j.violated("schedules fire when their time has come", "the machine of shard %d fires one at %d, it is to fire at %d",
			j.cfg.Shard, firing, want)
	}
	j.Report()
}

// Close checks that the queues with keys have handed out all their jobs.
func (j *Judge) Close() {
	for _, a := range j.Held() {
		j.violated("nothing is lost", "job %d of %s in shard %d was never handed out: state %d, due %d", a.Serial,
			a.Queue.Name, j.cfg.Shard, a.State, a.Due)
	}
	j.Report()
}
