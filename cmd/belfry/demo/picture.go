package demo

import (
	"fmt"
	"strings"
	"time"
)

const (
	columnsMin = 72
	rowsMin    = 24
	nameWidth  = 10
	stateWidth = 27
)

// ink is a colour of the picture.
type ink string

// The inks, as parameters of the terminal's select-graphic-rendition sequence.
const (
	plainInk  ink = ""
	dimInk    ink = "2"
	boldInk   ink = "1"
	brassInk  ink = "38;5;220"
	greenInk  ink = "38;5;114"
	redInk    ink = "38;5;203"
	blueInk   ink = "38;5;110"
	violetInk ink = "38;5;177"
)

// canvas collects lines and knows whether colours are allowed.
type canvas struct {
	color bool
	width int
	lines []string
}

// tint colours a text.
func (c *canvas) tint(i ink, text string) string {
	if !c.color || i == plainInk || strings.TrimSpace(text) == "" {
		return text
	}
	return "\x1b[" + string(i) + "m" + text + "\x1b[0m"
}

func (c *canvas) add(parts ...string) {
	c.lines = append(c.lines, strings.TrimRight(strings.Join(parts, ""), " "))
}

// draw renders a view for a terminal of the given size, one string a line. Every line ends before
// the last column, because terminals differ in whether they wrap there. At least two rows stay
// free, and four if there is room. The summary and the prompt follow the last picture there,
// without scrolling it. The last line is the legend.
func draw(v view, title string, columns, rows int, color bool) []string {
	c := &canvas{color: color, width: columns}
	axis := columns - nameWidth - stateWidth - 5
	clock := fmt.Sprintf("%4.1f s", min(v.now, v.length).Seconds())
	c.add(c.tint(boldInk, " BELFRY"), "  ", c.tint(dimInk, fit(title, columns-len(" BELFRY  ")-len(clock)-2)), " ",
		c.tint(boldInk, clock))
	roomy := rows >= rowsMin+8
	if roomy {
		c.add()
	}
	c.scale(v, axis)
	for _, l := range v.lanes {
		c.lane(v, l, axis)
	}
	c.ground(v, axis)
	c.chimes(v, axis)
	if roomy {
		c.add()
	}
	c.histogram(v)
	if roomy {
		c.add()
		c.events(v, rows-len(c.lines)-5)
	}
	c.legend()
	return c.lines
}

// column returns the column of the axis at which a moment lies.
func column(at, length time.Duration, axis int) int {
	return int(int64(at) * int64(axis) / int64(length))
}

// scale writes the seconds above the axis.
func (c *canvas) scale(v view, axis int) {
	line := []rune(strings.Repeat(" ", axis+4))
	for s := 0; time.Duration(s)*time.Second <= v.length; s += 5 {
		at := column(time.Duration(s)*time.Second, v.length, axis)
		for i, r := range fmt.Sprintf("%ds", s) {
			if at+i < len(line) {
				line[at+i] = r
			}
		}
	}
	c.add(strings.Repeat(" ", nameWidth+2), c.tint(dimInk, strings.TrimRight(string(line), " ")))
}

// lane draws the life of one job.
func (c *canvas) lane(v view, l lane, axis int) {
	var b strings.Builder
	for at := range axis {
		glyph, with := cell(v, l, at, axis)
		b.WriteString(c.tint(with, glyph))
	}
	text, with := state(l, v.now)
	c.add(" ", c.tint(boldInk, fit(l.job, nameWidth)), " ", b.String(), "  ",
		c.tint(with, strings.TrimRight(fit(text, stateWidth), " ")))
}

// cell returns what a lane shows in one column of the axis.
func cell(v view, l lane, at, axis int) (string, ink) {
	from := time.Duration(int64(v.length) * int64(at) / int64(axis))
	to := time.Duration(int64(v.length) * int64(at+1) / int64(axis))
	last, happened := event{}, false
	for _, e := range l.events {
		if e.at >= to {
			break
		}
		// Of several events in one column the one that tells most is shown; behind it goes on what came
		// last.
		if !happened || last.at < from || e.is.weight() >= last.is.weight() {
			last, happened = e, true
		}
	}
	end, ok := l.last()
	if from > v.now {
		if ok && end.due >= from && end.due < to {
			return "◇", brassInk
		}
		return " ", plainInk
	}
	if !happened {
		return " ", plainInk
	}
	if last.at >= from {
		return mark(last.is)
	}
	return trail(last.is)
}

// mark returns the sign of an event.
func mark(is kind) (string, ink) {
	switch is {
	case wasPut:
		return "├", blueInk
	case wasPutAgain:
		return "=", blueInk
	case wasRescheduled:
		return "»", violetInk
	case rang:
		return "◆", brassInk
	case wasExtended:
		return "+", brassInk
	case wasRefused:
		return "━", brassInk
	case hasFailed:
		return "✗", redInk
	case hasLapsed:
		return "!", redInk
	case wasDone:
		return "✓", greenInk
	case wasCancelled:
		return "⊘", violetInk
	case hasDied:
		return "†", redInk
	default: // wasRedriven
		return "↻", violetInk
	}
}

// trail returns what a lane shows after an event until the next.
func trail(is kind) (string, ink) {
	switch is {
	case rang, wasExtended, wasRefused:
		return "━", brassInk
	case wasDone, wasCancelled:
		return " ", plainInk
	case hasDied:
		return "┄", redInk
	default:
		return "─", dimInk
	}
}

// state says in words where a job is.
func state(l lane, now time.Duration) (string, ink) {
	e, ok := l.last()
	if !ok {
		return "", plainInk
	}
	switch e.is {
	case rang:
		if e.text != "" {
			return fmt.Sprintf("%s has it, fence %d", e.by, e.fence), brassInk
		}
		return fmt.Sprintf("%s has it, %s late", e.by, millis(e.late)), brassInk
	case wasExtended, wasRefused:
		return e.by + ", " + e.text, brassInk
	case hasLapsed:
		return e.by + " is gone", redInk
	case wasDone:
		return "done, " + lateOf(l), greenInk
	case wasCancelled:
		return "cancelled: " + e.text, violetInk
	case hasDied:
		return fmt.Sprintf("dead after %d attempts", e.attempt), redInk
	case hasFailed:
		return fmt.Sprintf("%s, again in %.1f s", e.text, max(0, e.due-now).Seconds()), redInk
	default:
		return fmt.Sprintf("%s, in %.1f s", l.about, max(0, e.due-now).Seconds()), dimInk
	}
}

// lateOf says how late a job that is done rang, at worst if it rang several times.
func lateOf(l lane) string {
	var worst time.Duration
	rings := 0
	for _, e := range l.events {
		if e.is == rang && e.text == "" {
			rings++
			worst = max(worst, e.late)
		}
	}
	if rings > 1 {
		return "at most " + millis(worst) + " late"
	}
	return millis(worst) + " late"
}

// millis writes how late a job was.
func millis(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

// ground draws the axis with a mark where we are, and where a node stopped or came back.
func (c *canvas) ground(v view, axis int) {
	now := min(column(v.now, v.length, axis), axis-1)
	var b strings.Builder
	for at := range axis {
		glyph, with := "─", dimInk
		for _, t := range v.turns {
			if column(t.at, v.length, axis) == at {
				glyph, with = turnMark(t)
			}
		}
		if at == now {
			glyph, with = "▲", boldInk
		}
		b.WriteString(c.tint(with, glyph))
	}
	label, text, with := "", "", plainInk
	if n := len(v.turns); n > 0 {
		label = "nodes"
		_, with = turnMark(v.turns[n-1])
		if text = v.turns[n-1].node + " is back"; v.turns[n-1].stopped {
			text = v.turns[n-1].node + ", the leader, is stopped"
		}
	}
	c.add(" ", c.tint(boldInk, fit(label, nameWidth)), " ", b.String(), "  ",
		c.tint(with, strings.TrimRight(fit(text, stateWidth), " ")))
}

// turnMark returns the sign of a node that stopped or came back.
func turnMark(t turn) (string, ink) {
	if t.stopped {
		return "■", redInk
	}
	return "□", greenInk
}

// chimes draws how many jobs of the choir rang when.
func (c *canvas) chimes(v view, axis int) {
	counts := make([]int, axis)
	most := 1
	for _, at := range v.rings {
		i := min(max(column(at, v.length, axis), 0), axis-1)
		counts[i]++
		most = max(most, counts[i])
	}
	levels := []rune(" ▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, n := range counts {
		b.WriteRune(levels[(n*(len(levels)-1)+most-1)/most])
	}
	c.add(" ", c.tint(boldInk, fit("choir", nameWidth)), " ", c.tint(brassInk, b.String()), "  ",
		c.tint(dimInk, fmt.Sprintf("%d of %d have rung", len(v.rings), v.choir)))
}

// histogram draws how late all jobs rang.
func (c *canvas) histogram(v view) {
	bounds := []time.Duration{500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
		10 * time.Millisecond}
	counts := make([]int, len(bounds)+1)
	for _, d := range v.late {
		i := 0
		for i < len(bounds) && d > bounds[i] {
			i++
		}
		counts[i]++
	}
	most := 1
	for _, n := range counts {
		most = max(most, n)
	}
	summary := "how late they rang"
	if len(v.late) > 0 {
		summary = fmt.Sprintf("how late they rang: p50 %s  p99 %s  max %s", millis(quantile(v.late, 0.5)),
			millis(quantile(v.late, 0.99)), millis(quantile(v.late, 1)))
	}
	c.add(" ", c.tint(boldInk, summary))
	columns := c.width - 2*nameWidth - 2
	for i, n := range counts {
		label := "more"
		if i < len(bounds) {
			label = "≤ " + strings.TrimSuffix(millis(bounds[i]), ".0 ms")
			label = strings.TrimSuffix(label, " ms") + " ms"
		}
		bar := strings.Repeat("█", (n*columns+most-1)/most)
		c.add(strings.Repeat(" ", nameWidth-len([]rune(label))+1), c.tint(dimInk, label), " ", c.tint(brassInk, bar), " ",
			fmt.Sprint(n))
	}
}

// events lists what happened last.
func (c *canvas) events(v view, lines int) {
	lines = max(lines, 0)
	log := v.log[max(0, len(v.log)-lines):]
	for _, e := range log {
		c.add(" ", fit(sentence(e), c.width-2))
	}
	for range lines - len(log) {
		c.add()
	}
}

// legend explains the signs, as many as fit.
func (c *canvas) legend() {
	signs := []struct {
		is   kind
		text string
	}{
		{wasPut, "put"},
		{rang, "rang"},
		{wasDone, "done"},
		{hasFailed, "failed"},
		{wasExtended, "extended"},
		{hasLapsed, "lapsed"},
		{hasDied, "dead"},
		{wasRedriven, "redriven"},
		{wasCancelled, "cancelled"},
	}
	var b strings.Builder
	width := 0
	for _, s := range signs {
		if width += len(" x ") + len(s.text); width >= c.width {
			break
		}
		glyph, with := mark(s.is)
		b.WriteString(" " + c.tint(with, glyph) + " " + c.tint(dimInk, s.text))
	}
	c.add(b.String())
}

// fit pads a text with spaces to a width, or cuts it.
func fit(text string, width int) string {
	runes := []rune(text)
	if len(runes) > width {
		return string(runes[:max(0, width-1)]) + "…"
	}
	return text + strings.Repeat(" ", width-len(runes))
}
