package schedules

import (
	"strconv"
	"strings"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// Nominal is the calendar of the schedules of a run, said once more: those that fire every so often, and
// those of each n-th second of a minute. It is false for others.
func Nominal(s *fsm.ScheduleSpec, after fsm.Time) (next fsm.Time, ok bool) {
	period, phase := s.Every, s.Phase
	if rest, found := strings.CutPrefix(s.Cron, "*/"); found {
		n, every, _ := strings.Cut(rest, " ")
		seconds, err := strconv.Atoi(n)
		if err != nil || seconds < 1 || 60%seconds != 0 || every != "* * * * *" {
			return 0, false
		}
		period = time.Duration(seconds) * time.Second
	}
	if period <= 0 || len(s.Exclude) > 0 {
		return 0, false
	}
	after = max(after, s.Start-1)
	n := (after.Sub(fsm.Time(phase)) + period) / period
	next = fsm.Time(phase + n*period)
	if s.End != 0 && next > s.End {
		return 0, true
	}
	return next, true
}
