package metrics

import "github.com/belfrydb/belfry/fsm"

// dueHelp is the help of belfry_jobs_due.
const dueHelp = "Jobs by how soon they fall due, from the beginning of the present minute, hour or day of UTC: " +
	"within=\"1h\" counts those within=\"1m\" does, and so on; \"later\" is what is not within 30d, \"overdue\" what " +
	"is due already, be it ready or not yet."

// within is the number of jobs that fall due within a time.
type within struct {
	label string
	jobs  uint64
}

// dueWithin returns the samples of belfry_jobs_due.
func dueWithin(v *fsm.Due) [6]within {
	return [6]within{{"overdue", v.Overdue}, {"1m", v.Minute}, {"1h", v.Hour}, {"1d", v.Day}, {"30d", v.Month},
		{"later", v.Later}}
}
