package cron_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cron"
)

// The walk compares rules with a second implementation, the walker. It shares nothing with the
// package: it reads no expression, since a generator makes each from the sets that it stands for; it
// knows no offsets, since it asks package time what a clock shows at each minute; and it looks at
// every minute of the years, one after the other.
//
// `go test` walks a part of it, `make cron-walk` all.
const (
	walkZones       = 60
	walkExpressions = 500
	walkYears       = 20
	walkFirstYear   = 2011 // with Apia's missing day
)

// walkZoneNames are zones whose clocks change in all the ways that there are, and some whose clocks
// do not.
var walkZoneNames = [walkZones]string{
	"UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Santiago", "Africa/Cairo",
	"America/Havana", "Europe/Dublin", "Pacific/Apia", "Africa/Casablanca", "Africa/El_Aaiun", "Asia/Gaza",
	"Asia/Hebron", "Asia/Beirut", "Asia/Tehran", "Asia/Amman", "Asia/Damascus", "Asia/Jerusalem",
	"Asia/Kathmandu", "Asia/Kolkata", "Asia/Tokyo", "Asia/Pyongyang", "Asia/Almaty", "Asia/Hovd",
	"Asia/Famagusta", "Asia/Yerevan", "Asia/Baku", "Asia/Dhaka", "Asia/Magadan", "Antarctica/Troll",
	"Antarctica/Casey", "Antarctica/Vostok", "Atlantic/Azores", "Australia/Adelaide", "Australia/Sydney",
	"Australia/Eucla", "America/St_Johns", "America/Caracas", "America/Sao_Paulo", "America/Asuncion",
	"America/Montevideo", "America/Scoresbysund", "America/Nuuk", "America/Mexico_City", "America/Cancun",
	"America/Port-au-Prince", "America/Los_Angeles", "America/Anchorage", "America/Punta_Arenas",
	"Europe/London", "Europe/Istanbul", "Europe/Moscow", "Europe/Volgograd", "Europe/Lisbon",
	"Pacific/Auckland", "Pacific/Chatham", "Pacific/Fakaofo", "Pacific/Fiji", "Pacific/Kiritimati", "Pacific/Norfolk",
}

// A walkExpression is an expression that the generator has made, and the sets that it stands for.
type walkExpression struct {
	text                         string
	second, minute, hour, months [60]bool
	day                          func(time.Time) bool // of a local date, in UTC
	fixed                        bool

	asked  time.Time // the date that day was asked for last
	answer bool
}

// shows says whether a clock that shows local, in UTC, shows a time of the expression, but for its
// seconds.
func (e *walkExpression) shows(local *walkClock) bool {
	if !e.minute[local.minute] || !e.hour[local.hour] || !e.months[local.month] {
		return false
	}
	if !local.date.Equal(e.asked) {
		e.asked, e.answer = local.date, e.day(local.date)
	}
	return e.answer
}

// A walkClock is what a clock shows.
type walkClock struct {
	at                        int64 // seconds since 1970, as if the clock showed UTC
	minute, hour, month, year int
	date                      time.Time
}

func newWalkClock(local int64) walkClock {
	t := time.Unix(local, 0).UTC()
	return walkClock{
		at: local, minute: t.Minute(), hour: t.Hour(), month: int(t.Month()), year: t.Year(),
		date: t.Truncate(24 * time.Hour),
	}
}

// A generator makes expressions.
type generator struct{ *rand.Rand }

// list makes a field of numbers from low to high: its text, and what it stands for. stars says how
// many of 100 are *.
func (g generator) list(low, high, stars int) (text string, set [60]bool) {
	if g.IntN(100) < stars {
		for v := low; v <= high; v++ {
			set[v] = true
		}
		return "*", set
	}
	var items []string
	for range 1 + g.IntN(3)*g.IntN(2) {
		first := low + g.IntN(high-low+1)
		last := first + g.IntN(high-first+1)
		step := 1 + g.IntN(min(20, high-low))
		item := ""
		switch g.IntN(6) {
		case 0:
			item, first, last = "*/"+strconv.Itoa(step), low, high
		case 1:
			item, last = fmt.Sprintf("%d/%d", first, step), high
		case 2:
			item = fmt.Sprintf("%d-%d/%d", first, last, step)
		case 3:
			item, step = fmt.Sprintf("%d-%d", first, last), 1
		default:
			item, last = strconv.Itoa(first), first
		}
		for v := first; v <= last; v += step {
			set[v] = true
		}
		items = append(items, item)
	}
	return strings.Join(items, ","), set
}

// ofMonth makes a field of days of the month.
func (g generator) ofMonth() (text string, has func(time.Time) bool) {
	n := 1 + g.IntN(31)
	last := func(t time.Time) time.Time { return t.AddDate(0, 1, -t.Day()) }
	weekend := func(t time.Time) bool { return t.Weekday() == time.Saturday || t.Weekday() == time.Sunday }
	switch g.IntN(12) {
	case 0:
		return "L", func(t time.Time) bool { return t.AddDate(0, 0, 1).Day() == 1 }
	case 1:
		return fmt.Sprintf("L-%d", n-1), func(t time.Time) bool { return t.Day() == last(t).Day()-(n-1) }
	case 2:
		return "LW", func(t time.Time) bool {
			if weekend(t) {
				return false
			}
			for u := t.AddDate(0, 0, 1); u.Month() == t.Month(); u = u.AddDate(0, 0, 1) {
				if !weekend(u) {
					return false
				}
			}
			return true
		}
	case 3:
		return fmt.Sprintf("%dW", n), func(t time.Time) bool { return t.Day() == nearestWorkday(t, n) }
	default:
		text, set := g.list(1, 31, 50)
		return text, func(t time.Time) bool { return set[t.Day()] }
	}
}

// nearestWorkday returns the workday of t's month that is nearest to day n of it, 0 without such a
// day. No two are equally near.
func nearestWorkday(t time.Time, n int) int {
	first := t.AddDate(0, 0, 1-t.Day())
	if first.AddDate(0, 0, n-1).Month() != first.Month() {
		return 0
	}
	best, distance := 0, 99
	for d := first; d.Month() == first.Month(); d = d.AddDate(0, 0, 1) {
		away := max(d.Day()-n, n-d.Day())
		if d.Weekday() != time.Saturday && d.Weekday() != time.Sunday && away < distance {
			best, distance = d.Day(), away
		}
	}
	return best
}

// ofWeek makes a field of days of the week.
func (g generator) ofWeek() (text string, has func(time.Time) bool) {
	names := []string{"Sun", "MON", "tue", "Wed", "THU", "fri", "SAT"}
	n := g.IntN(7)
	switch g.IntN(12) {
	case 0:
		k := 1 + g.IntN(5)
		return fmt.Sprintf("%d#%d", n, k), func(t time.Time) bool {
			return int(t.Weekday()) == n && t.AddDate(0, 0, -7*(k-1)).Month() == t.Month() &&
				t.AddDate(0, 0, -7*k).Month() != t.Month()
		}
	case 1:
		return names[n] + "L", func(t time.Time) bool {
			return int(t.Weekday()) == n && t.AddDate(0, 0, 7).Month() != t.Month()
		}
	case 2:
		return names[n], func(t time.Time) bool { return int(t.Weekday()) == n }
	case 3:
		m := n + g.IntN(8-n) // to 7, which is Sunday
		return fmt.Sprintf("%d-%d", n, m), func(t time.Time) bool {
			w := int(t.Weekday())
			return n <= w && w <= m || w == 0 && m == 7
		}
	default:
		text, set := g.list(0, 6, 70)
		return text, func(t time.Time) bool { return set[t.Weekday()] }
	}
}

// expression makes an expression. One in ten has seconds. Most fire some times a day, as those of
// users do; a few fire each minute.
func (g generator) expression() *walkExpression {
	e := &walkExpression{}
	var fields [6]string
	stars := g.IntN(100)
	fields[0], e.second[0] = "0", true
	seconds := g.IntN(10) == 0
	if seconds {
		fields[0], e.second = g.list(0, 59, 0)
	}
	if g.IntN(4) == 0 {
		fields[1], e.minute = g.list(0, 59, stars/8)
	} else {
		minute := g.IntN(60)
		fields[1], e.minute[minute] = strconv.Itoa(minute), true
	}
	fields[2], e.hour = g.list(0, 23, stars/2)
	month, hasMonthDay := g.ofMonth()
	fields[4], e.months = g.list(1, 12, 70)
	week, hasWeekDay := g.ofWeek()
	fields[3], fields[5] = month, week
	both := month[0] == '*' || week[0] == '*'
	e.day = func(t time.Time) bool {
		if both {
			return hasMonthDay(t) && hasWeekDay(t)
		}
		return hasMonthDay(t) || hasWeekDay(t)
	}
	e.fixed = !strings.ContainsAny(fields[0]+fields[1]+fields[2], "*/")
	first := 1
	if seconds {
		first = 0
	}
	e.text = strings.Join(fields[first:], " ")
	return e
}

// A walk is the walker's state for one expression: the minutes that matched, in order.
type walk struct {
	expression *walkExpression
	rule       *cron.Rule
	dst        cron.DST
	last       time.Time // what the rule said last
	fired      int
}

// check compares what the rule says comes next with at.
func (w *walk) check(at int64) error {
	next, ok := w.rule.Next(w.last)
	if !ok || next.Unix() != at {
		return fmt.Errorf("%q in %v with %v: after %v comes %v, %v; the walker found %v", w.expression.text,
			w.rule.Zone(), w.dst, w.last.UTC(), next, ok, time.Unix(at, 0).In(w.rule.Zone()))
	}
	w.last = next
	w.fired++
	return nil
}

// minute looks at the minute of real time that begins at at, when the clock shows local, and has
// shown or passed all times before passed.
func (w *walk) minute(at int64, local *walkClock, gap []walkClock, repeated bool) error {
	follows := w.dst == cron.Literal || w.dst == cron.Once && !w.expression.fixed
	moved := false
	if w.dst == cron.Once && w.expression.fixed {
		for i := range gap {
			moved = moved || w.expression.shows(&gap[i])
		}
	}
	if moved {
		if err := w.check(at); err != nil {
			return err
		}
	}
	if repeated && !follows || !w.expression.shows(local) {
		return nil
	}
	for s, has := range w.expression.second {
		if has && (s > 0 || !moved) {
			if err := w.check(at + int64(s)); err != nil {
				return err
			}
		}
	}
	return nil
}

// walkZone walks the minutes of years in a zone, and returns how many firings there were.
func walkZone(zone *time.Location, from, to time.Time, walks []*walk) (fired int, err error) {
	show := func(at int64) int64 {
		_, offset := time.Unix(at, 0).In(zone).Zone()
		return at + int64(offset)
	}
	start := from.Unix()
	passed := show(start) // the clock has shown or passed all minutes before it
	for _, w := range walks {
		w.last = from.Add(-time.Nanosecond)
	}
	for at := start; at < to.Unix(); at += 60 {
		local := newWalkClock(show(at))
		if local.at%60 != 0 {
			return fired, fmt.Errorf("at %d the clock of %v shows seconds", at, zone)
		}
		var gap []walkClock
		for missed := passed; missed < local.at; missed += 60 {
			gap = append(gap, newWalkClock(missed))
		}
		repeated := local.at < passed
		passed = max(passed, local.at+60)
		for _, w := range walks {
			if len(gap) == 0 && !w.expression.minute[local.minute] {
				continue
			}
			if err := w.minute(at, &local, gap, repeated); err != nil {
				return fired, err
			}
		}
	}
	for _, w := range walks {
		fired += w.fired
		if next, ok := w.rule.Next(w.last); ok && next.Before(to) {
			return fired, fmt.Errorf("%q in %v with %v: after %v comes %v; the walker found none until %v",
				w.expression.text, zone, w.dst, w.last, next, to)
		}
	}
	return fired, nil
}

// walksOf makes n expressions from a seed, and the rules for them.
func walksOf(t testing.TB, seed uint64, n int, zone string) (walks []*walk) {
	g := generator{rand.New(rand.NewPCG(seed, 0))}
	for len(walks) < n {
		w := &walk{expression: g.expression(), dst: cron.DST(g.IntN(3))}
		if g.IntN(2) == 0 {
			w.dst = cron.Once
		}
		rule, err := cron.Compile(&cron.Spec{Cron: w.expression.text, TimeZone: zone, DST: w.dst}, zones(t))
		if err != nil {
			if strings.Contains(err.Error(), "never fires") {
				continue
			}
			t.Fatal(err)
		}
		w.rule = rule
		walks = append(walks, w)
	}
	return walks
}

// TestWalk walks the first BELFRY_CRON_WALK zones with all expressions and years; without it, a year
// of each zone with few expressions, another year for each, up to 2188. The expressions follow from
// the seed and the zone.
func TestWalk(t *testing.T) {
	names, expressions, years := walkZoneNames[:], 12, 1
	seed := uint64(1)
	whole := os.Getenv("BELFRY_CRON_WALK") != ""
	if whole {
		n, err := strconv.Atoi(os.Getenv("BELFRY_CRON_WALK"))
		if err != nil || n < 1 || n > walkZones {
			t.Fatalf("BELFRY_CRON_WALK is no number of zones from 1 to %d", walkZones)
		}
		names, expressions, years = names[:n], walkExpressions, walkYears
		if text := os.Getenv("BELFRY_CRON_SEED"); text != "" {
			if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	var mu sync.Mutex
	fired, minutes := 0, int64(0)
	t.Run("zones", func(t *testing.T) {
		for i, name := range names {
			first := walkFirstYear
			if !whole {
				first += 3 * i // up to 2188: after 2037 only rules say when clocks change
				if i%walkStride != 0 {
					continue
				}
			}
			from := time.Date(first, 1, 1, 0, 0, 0, 0, time.UTC)
			to := time.Date(first+years, 1, 1, 0, 0, 0, 0, time.UTC)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				zone := compile(t, &cron.Spec{Cron: "@daily", TimeZone: name}).Zone()
				n, err := walkZone(zone, from, to, walksOf(t, seed+uint64(i)<<32, expressions, name))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				fired += n
				minutes += int64(to.Sub(from)/time.Minute) * int64(expressions)
				if whole {
					t.Logf("%s %s: %d firings so far", time.Now().Format(time.TimeOnly), name, fired)
				}
			})
		}
	})
	t.Logf("%d expressions in each zone, %d years from seed %d: %d minutes, %d firings",
		expressions, years, seed, minutes, fired)
	if fired == 0 {
		t.Error("nothing fired")
	}
}

// TestWalkerOnTable proves the walker by the table that was worked out by hand.
func TestWalkerOnTable(t *testing.T) {
	// The expressions of the table without Monrovia's, whose clock shows seconds.
	for _, row := range dstTable {
		if row.zone == "Africa/Monrovia" {
			continue
		}
		for dst, want := range map[cron.DST][]string{cron.Once: row.once, cron.Literal: row.literal, cron.Skip: row.skip} {
			w := &walk{expression: plainExpression(t, row.cron), dst: dst}
			w.rule = compile(t, &cron.Spec{Cron: row.cron, TimeZone: row.zone, DST: dst})
			from, to := at(t, row.from), at(t, row.to)
			if _, err := walkZone(w.rule.Zone(), from.Add(time.Minute), to.Add(time.Minute), []*walk{w}); err != nil {
				t.Errorf("%s: %v", row.name, err)
			}
			if w.fired != len(want) {
				t.Errorf("%s with %v: the walker found %d firings; the table has %d", row.name, dst, w.fired, len(want))
			}
		}
	}
}

// plainExpression reads minutes and hours of an expression of the table: numbers, commas, ranges and
// steps.
func plainExpression(t *testing.T, text string) *walkExpression {
	t.Helper()
	fields := strings.Fields(text)
	if !slices.Equal(fields[2:], []string{"*", "*", "*"}) {
		t.Fatalf("%q has days", text)
	}
	e := &walkExpression{text: text, day: func(time.Time) bool { return true }}
	e.fixed = !strings.ContainsAny(fields[0]+fields[1], "*/")
	e.second[0] = true
	for v := range e.months {
		e.months[v] = true
	}
	for i, set := range []*[60]bool{&e.minute, &e.hour} {
		for _, item := range strings.Split(fields[i], ",") {
			span, step, _ := strings.Cut(item, "/")
			first, last, ranged := strings.Cut(span, "-")
			low, _ := strconv.Atoi(first)
			high, _ := strconv.Atoi(last)
			by, _ := strconv.Atoi(step)
			switch {
			case first == "*":
				low, high = 0, 59
			case !ranged:
				high = low
			}
			for v := low; v <= high; v += max(by, 1) {
				set[v] = true
			}
		}
	}
	return e
}
