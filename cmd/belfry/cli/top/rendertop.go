package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// picture is what `top` draws on.
type picture struct {
	columns, rows int
	server        string
	trouble       string // why what is drawn is old; empty if it is not
	blocks        bool   // whether there are characters beyond ASCII
}

// drawTop draws what was seen, and rates since before, which may be nil. It fits the picture: long
// lines are wrapped, and lists of problems, nodes and queues are cut so that each of them has room.
func drawTop(s, before *sight, f *topFlags, p picture) (lines []string) {
	c := s.Cluster
	health := "healthy"
	if n := len(c.Problems); n > 0 {
		health = render.Count(n, "problem")
	}
	lines = append(lines,
		fmt.Sprintf("belfry %s   %s   %s, %s: %s", p.server, s.at.Format(time.TimeOnly), render.Count(len(c.Nodes), "node"),
			render.Count(len(c.Shards), "shard"), health))
	if p.trouble != "" {
		lines = append(lines, wrapTo("NO ANSWER: "+p.trouble, p.columns, 2)...)
	}
	room := max(2, p.rows-len(lines)-queueRowsMin)
	var problems []string
	for _, problem := range c.Problems {
		problems = append(problems, wrapTo("  "+problem, p.columns, 4)...)
	}
	problems = firstOf(problems, max(room/2, room-len(c.Nodes)), "more lines: 'belfry cluster status' has them all")
	lines = slices.Concat(lines, problems, nodeLines(c.Nodes, max(1, room-len(problems)), p.columns), []string{""})
	lines = append(lines,
		queueLines(s, before, f, picture{p.columns, p.rows - len(lines), p.server, p.trouble, p.blocks})...)
	for i := range lines {
		lines[i] = cutTo(lines[i], p.columns)
	}
	return lines[:min(len(lines), p.rows)]
}

// queueRowsMin is how many rows the part about queues has at least, if there are so many: when jobs
// are due, sums, and a table of a heading and a few queues.
const queueRowsMin = 14

// firstOf leaves the first so many lines; the last of them says how many are missing.
func firstOf(lines []string, most int, missing string) []string {
	if len(lines) <= most {
		return lines
	}
	kept := max(0, most-1)
	return append(slices.Clone(lines[:kept]), fmt.Sprintf("  ... and %d %s", len(lines)-kept, missing))
}

// queueLines draws the queues on what is left of a picture.
func queueLines(s, before *sight, f *topFlags, p picture) (lines []string) {
	switch {
	case s.unread != nil:
		return wrapTo("queues  not known: "+cli.Explain(s.unread), p.columns, hanging)
	case s.stale:
		lines = append(lines,
			wrapTo("queues  as the replicas that answer have them, because a shard has no leader", p.columns, hanging)...)
	}
	lines = append(lines, dueLines(s.Queues.Due, s.at, p)...)
	rates := ratesOf(s, before)
	queues := slices.Clone(s.Queues.Queues)
	sortQueues(queues, rates, f.sort)
	lines = append(lines, "")
	for _, line := range sums(queues, rates, s.Queues.NextPageToken != "") {
		lines = append(lines, wrapTo(line, p.columns, hanging)...)
	}
	lines = append(lines, "")
	return append(lines, queueTable(queues, rates, picture{columns: p.columns, rows: max(0, p.rows-len(lines)-1)})...)
}

// hanging is by how much the second line of a text is indented: under the text behind words such as
// "due" and "jobs".
const hanging = 6

// wrapTo breaks a line between words where it is longer than so many columns, and indents what
// follows. A word that is longer than a line stays whole.
func wrapTo(line string, columns, indent int) (lines []string) {
	for {
		runes := []rune(line)
		if len(runes) <= columns {
			return append(lines, line)
		}
		at := -1
		for i := min(columns, len(runes)-1); i > indent; i-- {
			if runes[i] == ' ' && runes[i-1] != ' ' {
				at = i
				break
			}
		}
		if at < 0 {
			return append(lines, line)
		}
		lines = append(lines, string(runes[:at]))
		line = strings.Repeat(" ", indent) + strings.TrimLeft(string(runes[at:]), " ")
	}
}

// nodeLines shows the nodes in so many lines. Where there is no room for all, those that are not
// plainly live come first, and where a line is too long its address is left out.
func nodeLines(nodes []*belfryv1.Node, most, columns int) []string {
	if len(nodes) > most {
		nodes = slices.Clone(nodes)
		live := func(n *belfryv1.Node) bool { return nodeWord(n) == render.Word(belfryv1.NodeState_NODE_STATE_LIVE) }
		slices.SortStableFunc(nodes, func(a, b *belfryv1.Node) int {
			switch {
			case live(a) == live(b):
				return 0
			case live(b):
				return -1
			default:
				return 1
			}
		})
	}
	name, state := 12, 14
	for _, n := range nodes {
		name, state = max(name, utf8.RuneCountInString(n.Name)), max(state, utf8.RuneCountInString(nodeWord(n)))
	}
	var lines []string
	for _, n := range nodes {
		line := fmt.Sprintf("  %-*s %-*s  leads %d of %s", name, n.Name, state, nodeWord(n), n.Leads,
			render.Count(int(n.Replicas), "replica"))
		if whole := line + "  " + n.Address; utf8.RuneCountInString(whole) <= columns {
			line = whole
		}
		lines = append(lines, line)
	}
	return firstOf(lines, most, "more nodes")
}

// nodeWord says what a node does.
func nodeWord(n *belfryv1.Node) string {
	if n.Draining {
		return render.Word(n.State) + ", draining"
	}
	return render.Word(n.State)
}

// dueLines says when jobs fall due, and draws the next hour, a column a minute.
func dueLines(d *belfryv1.DueHistogram, now time.Time, p picture) (lines []string) {
	lines = wrapTo("due   "+cmp.Or(render.DueSums(d), "nothing"), p.columns, hanging)
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
	return append(lines, fmt.Sprintf("hour  %s  max %s/m", b.String(), render.Grouped(most)))
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
			all[q.Name] = rates{float64(q.Totals.GetPuts()-was.GetPuts()) / seconds,
				float64(q.Totals.GetAcks()-was.GetAcks()) / seconds}
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
	text := render.Count(len(queues), "queue")
	if more {
		text = "the first " + text + " by name"
	}
	lines := []string{fmt.Sprintf("jobs  %s delayed, %s ready, %s reserved, %s dead in %s; %s", render.Grouped(delayed),
		render.Grouped(ready), render.Grouped(reserved), render.Grouped(dead), text, render.Size(bytes))}
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
	return render.Grouped(uint64(rate + 0.5))
}

// cutTo leaves so many columns of a line.
func cutTo(line string, columns int) string {
	if utf8.RuneCountInString(line) <= columns {
		return line
	}
	return string([]rune(line)[:columns])
}
