package cron

import (
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// findWarnings returns what is valid in a rule, and may mean something else than intended.
func (r *Rule) findWarnings() (warnings []string) {
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	if text := r.zone.warning(); text != "" {
		warn("%s", text)
	}
	if r.every > 0 {
		if r.dst != Once {
			warn("dst has no effect on every, which counts real time")
		}
		if r.zone.name != "UTC" && len(r.excludes) == 0 {
			warn("timeZone has no effect on every, which counts real time")
		}
	} else if text := r.expression.warning(); text != "" {
		warn("%s", text)
	}
	if _, ok := r.Next(time.UnixMilli(r.start - 1)); !ok {
		warn("there is no firing between start and end, in this zone and with this dst")
	}
	return warnings
}

// warning returns what may surprise about the days of an expression, or "".
func (e *expression) warning() string {
	month, week := e.text[fieldDayOfMonth], e.text[fieldDayOfWeek]
	short := bits.TrailingZeros32(e.days.ofMonth) >= 29 && e.days.fromLast|e.days.nearest == 0 && !e.days.lastWorkday
	switch {
	case month != "*" && week != "*" && !e.days.anyOfMonth && !e.days.anyOfWeek:
		return fmt.Sprintf("day of month %q and day of week %q are both set: a day that either has is a match", month, week)
	case month != "*" && week != "*":
		return fmt.Sprintf("day of month %q and day of week %q: one begins with *, so a match is a day that both have",
			month, week)
	case short && week == "*":
		return fmt.Sprintf("day of month %q: months without such a day are left out; L is the last day of each", month)
	default:
		return ""
	}
}

// warning returns what may surprise about a zone, or "".
func (z *Zone) warning() string {
	if strings.HasPrefix(z.name, "Etc/GMT") && strings.ContainsAny(z.name, "+-") {
		return fmt.Sprintf("timeZone %q is UTC%s: such names have the sign reversed", z.name, z.offsetText())
	}
	switch z.name {
	case "EST", "MST", "HST", "EST5EDT", "CST6CDT", "MST7MDT", "PST8PDT", "WET", "CET", "MET", "EET":
	default:
		return ""
	}
	text := fmt.Sprintf("timeZone %q is taken as the IANA zone of that name", z.name)
	if last := z.spans[len(z.spans)-1]; last.end-last.start > 10*366*daySeconds {
		text += ", which is UTC" + z.offsetText() + " all year"
	}
	return text + "; a name such as America/New_York says which region's clock is meant"
}

// offsetText returns the last offset of the zone, as in "-05:00".
func (z *Zone) offsetText() string {
	return time.Unix(z.spans[len(z.spans)-1].start, 0).In(z.location).Format("-07:00")
}
