package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// picture is what `top` draws on.
type picture struct {
	columns, rows int
	server        string
	trouble       string // why what is drawn is old; empty if it is not
	blocks        bool   // whether there are characters beyond ASCII
}

// drawTop draws what was seen, and rates since before, which may be nil.
func drawTop(s, before *sight, f *topFlags, p picture) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	c := s.Cluster
	health := "healthy"
	if n := len(c.Problems); n > 0 {
		health = count(n, "problem")
	}
	add("belfry %s   %s   %s, %s: %s", p.server, s.at.Format(time.TimeOnly), count(len(c.Nodes), "node"), count(len(c.Shards), "shard"), health)
	if p.trouble != "" {
		add("NO ANSWER: %s", p.trouble)
	}
	for _, problem := range c.Problems {
		add("  %s", problem)
	}
	for _, n := range c.Nodes {
		add("  %-12s %-14s  leads %d of %s  %s", n.Name, nodeWord(n), n.Leads, count(int(n.Replicas), "replica"), n.Address)
	}
	lines = append(lines, "")
	lines = append(lines, queueLines(s, before, f, picture{p.columns, p.rows - len(lines), p.server, p.trouble, p.blocks})...)
	for i := range lines {
		lines[i] = cutTo(lines[i], p.columns)
	}
	return lines[:min(len(lines), p.rows)]
}

// queueLines draws the queues on what is left of a picture.
func queueLines(s, before *sight, f *topFlags, p picture) (lines []string) {
	switch {
	case s.unread != nil:
		return []string{"queues  not known: " + explain(s.unread)}
	case s.stale:
		lines = append(lines, "queues  as the replicas that answer have them, because a shard has no leader")
	}
	lines = append(lines, dueLines(s.Queues.Due, s.at, p)...)
	rates := ratesOf(s, before)
	queues := slices.Clone(s.Queues.Queues)
	sortQueues(queues, rates, f.sort)
	lines = append(lines, "")
	lines = append(lines, sums(queues, rates, s.Queues.NextPageToken != "")...)
	lines = append(lines, "")
	return append(lines, queueTable(queues, rates, max(0, p.rows-len(lines)-1))...)
}

// nodeWord says what a node does.
func nodeWord(n *belfryv1.Node) string {
	if n.Draining {
		return word(n.State) + ", draining"
	}
	return word(n.State)
}

// dueLines says when jobs fall due, and draws the next hour, a column a minute.
func dueLines(d *belfryv1.DueHistogram, now time.Time, p picture) (lines []string) {
	due := cmp.Or(dueSums(d), "nothing")
	lines = append(lines, "due   "+due)
	if d.GetNextHour() == 0 {
		return lines
	}
	var minutes [60]uint64
	first, most := now.Truncate(time.Minute), uint64(1)
	for _, slice := range d.Minutes {
		if i := int(slice.GetStart().AsTime().Sub(first) / time.Minute); i >= 0 && i < len(minutes) {
			minutes[i] = uint64(slice.GetJobs())
			most = max(most, minutes[i])
		}
	}
	var b strings.Builder
	for _, n := range minutes {
		b.WriteRune(p.level(n, most))
	}
	return append(lines, fmt.Sprintf("hour  %s  max %s/m", b.String(), grouped(most)))
}

// level draws a share in one column; what is not 0 can be seen.
func (p picture) level(n, most uint64) rune {
	levels := []rune(" .:-=+*#@")
	if p.blocks {
		levels = []rune(" ▁▂▃▄▅▆▇█")
	}
	if n == 0 {
		return levels[0]
	}
	return levels[max(1, int(float64(n)/float64(most)*float64(len(levels)-1)+0.5))]
}

// rates are what happened to a queue's jobs a second.
type rates struct{ put, acked float64 }

// ratesOf compares totals by queue. A queue that was deleted and made again meanwhile has none.
func ratesOf(s, before *sight) map[string]rates {
	if !s.hasTotals() || !before.hasTotals() {
		return nil
	}
	seconds := s.at.Sub(before.at).Seconds()
	old := make(map[string]*belfryv1.QueueTotals, len(before.Queues.Queues))
	for _, q := range before.Queues.Queues {
		old[q.Name] = q.Totals
	}
	all := make(map[string]rates, len(s.Queues.Queues))
	for _, q := range s.Queues.Queues {
		was := old[q.Name]
		if q.Totals.GetPuts() >= was.GetPuts() && q.Totals.GetAcks() >= was.GetAcks() && seconds > 0 {
			all[q.Name] = rates{float64(q.Totals.GetPuts()-was.GetPuts()) / seconds, float64(q.Totals.GetAcks()-was.GetAcks()) / seconds}
		}
	}
	return all
}

// sortQueues brings those to the front that --sort names; of equal ones the first by name.
func sortQueues(queues []*belfryv1.Queue, rates map[string]rates, by string) {
	weight := func(q *belfryv1.Queue) float64 {
		switch by {
		case "delayed":
			return float64(q.Counts.GetDelayed())
		case "reserved":
			return float64(q.Counts.GetReserved())
		case "dead":
			return float64(q.Counts.GetDead())
		case "put":
			return rates[q.Name].put
		case "acked":
			return rates[q.Name].acked
		case "hour":
			return float64(q.Due.GetNextHour())
		case "name":
			return 0
		default:
			return float64(q.Counts.GetReady())
		}
	}
	slices.SortStableFunc(queues, func(a, b *belfryv1.Queue) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), strings.Compare(a.Name, b.Name))
	})
}

// sums says how much there is in all queues.
func sums(queues []*belfryv1.Queue, of map[string]rates, more bool) []string {
	var delayed, ready, reserved, dead, bytes uint64
	var all rates
	for _, q := range queues {
		delayed, ready = delayed+uint64(q.Counts.GetDelayed()), ready+uint64(q.Counts.GetReady())
		reserved, dead, bytes = reserved+uint64(q.Counts.GetReserved()), dead+uint64(q.Counts.GetDead()), bytes+q.Bytes
		all.put, all.acked = all.put+of[q.Name].put, all.acked+of[q.Name].acked
	}
	text := count(len(queues), "queue")
	if more {
		text = "the first " + text + " by name"
	}
	lines := []string{fmt.Sprintf("jobs  %s delayed, %s ready, %s reserved, %s dead in %s; %s", grouped(delayed), grouped(ready), grouped(reserved), grouped(dead), text, size(bytes))}
	if of != nil {
		lines = append(lines, fmt.Sprintf("rate  %s put, %s acked a second", perSecond(all.put), perSecond(all.acked)))
	}
	return lines
}

// perSecond writes a rate.
func perSecond(rate float64) string {
	if rate > 0 && rate < 10 {
		return fmt.Sprintf("%.1f", rate)
	}
	return grouped(uint64(rate + 0.5))
}

// queueNameMax is how many columns the name of a queue has at most, so that there is room for its numbers.
const queueNameMax = 28

// queueTable shows so many of the queues as there are lines for.
func queueTable(queues []*belfryv1.Queue, of map[string]rates, rows int) []string {
	lines := [][]string{{"QUEUE", "READY", "OLDEST", "LATE P99", "DELAYED", "HOUR", "RESERVED", "DEAD", "PUT/S", "ACKED/S"}}
	for _, q := range queues[:min(len(queues), rows)] {
		name, oldest, put, acked, late := q.Name, "-", "-", "-", "-"
		if q.OldestReadyAge != nil {
			oldest = length(q.OldestReadyAge)
		}
		if rate, ok := of[q.Name]; ok {
			put, acked = perSecond(rate.put), perSecond(rate.acked)
		}
		if q.Lateness != nil {
			late = length(q.Lateness.P99)
		}
		if q.Settings.GetPaused() {
			name = "(paused) " + name
		}
		if utf8.RuneCountInString(name) > queueNameMax {
			name = cutTo(name, queueNameMax-2) + ".."
		}
		lines = append(lines, []string{
			name, jobs(q.Counts.GetReady()), oldest, late, jobs(q.Counts.GetDelayed()), jobs(q.Due.GetNextHour()), jobs(q.Counts.GetReserved()), jobs(q.Counts.GetDead()), put, acked,
		})
	}
	return aligned(lines)
}

// aligned writes cells in columns: the first to the left, the others to the right.
func aligned(lines [][]string) (out []string) {
	widths := make([]int, len(lines[0]))
	for _, cells := range lines {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, cells := range lines {
		text := fmt.Sprintf("%-*s", widths[0], cells[0])
		for i, cell := range cells[1:] {
			text += fmt.Sprintf("  %*s", widths[i+1], cell)
		}
		out = append(out, text)
	}
	return out
}

// cutTo leaves so many columns of a line.
func cutTo(line string, columns int) string {
	if utf8.RuneCountInString(line) <= columns {
		return line
	}
	return string([]rune(line)[:columns])
}
