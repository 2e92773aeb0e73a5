package ledger

import "github.com/belfrydb/belfry/fsm"

// Entry is one entry of a shard's log, with its commands.
type Entry struct {
	Index    uint64
	Format   fsm.Format
	At       fsm.Time  // when it was applied first, by the true clock
	Clock    fsm.Time  // shard time after it
	Commands []Command // which the caller keeps as long as the ledger
}

// Command is one command of the log with what it gave when the log was carried out.
type Command struct {
	Entry   *Entry
	Number  uint32 // in its entry
	Ordinal int    // in the log; for the caller
	Request *fsm.Request
	Command fsm.Command
	Result  fsm.Result
	// Job is what the ledger has of the job that it is about, if it is about one.
	Job *Job
	// Effect says that it changed something by the ledger.
	Effect bool
}

// Rule is the number of an invariant, as in finding.Titles of jepsen/checker.
type Rule uint8

// Report is told what the ledger looks at and what is wrong. It is called by the goroutine that
// enters entries.
type Report interface {
	// Look counts one thing that a rule was held against.
	Look(rule Rule)
	// Violated is told of a broken rule, and of the true time of the entry that breaks it.
	Violated(rule Rule, at fsm.Time, text string)
	// Count adds to a figure.
	Count(what string, n int64)
}

// Config is what a ledger needs.
type Config struct {
	// Shard is the number of the shard, for texts.
	Shard uint32
	// Limited are the namespaces that have a quota. Their jobs may wait for leases, and their usage is
	// audited.
	Limited map[string]bool
	// Commands is about how many commands there will be; 0 if that is not known.
	Commands int
	Report   Report
	// WakeMax is that of the shard; 0 means its default.
	WakeMax int
	// Nominal, if it is not nil, returns the nominal time of a schedule after another one, 0 for none;
	// false if it cannot tell.
	Nominal func(spec *fsm.ScheduleSpec, after fsm.Time) (next fsm.Time, ok bool)
	// Moved, if it is not nil, is called after each change of a job's state, due time or lease, with the
	// command that caused or noticed it. The job is changed further by later commands.
	Moved func(*Job, *Command)
}
