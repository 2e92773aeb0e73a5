package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	barColumns   = 30
	barPeriod    = 100 * time.Millisecond
	plainPeriod  = 5 * time.Second
	clearLine    = "\r\x1b[K"
	fullBlock    = "█"
	eighthBlocks = " ▏▎▍▌▋▊▉"
)

// progress shows how far a long command is: a bar on a terminal, a plain line every 5 seconds elsewhere.
type progress struct {
	out      io.Writer
	terminal bool
	now      func() time.Time
	began    time.Time
	shown    time.Time
	total    int64 // bytes; 0 if not known
	drawn    bool
}

// newProgress returns a progress over total bytes, 0 if their number is not known. It writes to standard error.
func newProgress(sys *system, total int64) *progress {
	now := sys.now()
	return &progress{out: sys.err, terminal: sys.errTerminal, now: sys.now, began: now, shown: now, total: total}
}

// update shows that so many jobs are put and so many bytes of the input are used, unless that was done a moment ago.
func (p *progress) update(jobs uint64, bytes int64) {
	now := p.now()
	period := plainPeriod
	if p.terminal {
		period = barPeriod
	}
	if now.Sub(p.shown) < period {
		return
	}
	p.shown = now
	p.write(p.line(now, jobs, bytes))
}

// bytes is update for work that is counted in bytes only.
func (p *progress) bytes(done int64) { p.update(0, done) }

// write shows a text: on a terminal in place of the one before, elsewhere as a line.
func (p *progress) write(text string) {
	if p.terminal {
		fmt.Fprint(p.out, clearLine, text)
		p.drawn = true
		return
	}
	fmt.Fprintln(p.out, text)
}

// line describes the progress: bar and time left only if the total is known.
func (p *progress) line(now time.Time, jobs uint64, bytes int64) string {
	elapsed := now.Sub(p.began)
	rate := float64(jobs) / max(elapsed.Seconds(), 1e-3)
	text := fmt.Sprintf("%s jobs  %s/s", grouped(jobs), grouped(uint64(rate)))
	if jobs == 0 && bytes > 0 {
		text = fmt.Sprintf("%.1f MiB  %.1f MiB/s", float64(bytes)/(1<<20), float64(bytes)/(1<<20)/max(elapsed.Seconds(), 1e-3))
	}
	if p.total <= 0 {
		return text
	}
	share := min(1, float64(bytes)/float64(p.total))
	left := time.Duration(0)
	if share > 0 {
		left = time.Duration(float64(elapsed) * (1 - share) / share)
	}
	text = fmt.Sprintf("%3.0f %%  %s  %v left", 100*share, text, left.Round(time.Second))
	if p.terminal {
		return bar(share) + " " + text
	}
	return text
}

// clear takes the bar off the screen, so that a line can be written; the next update draws it again.
func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.out, clearLine)
		p.drawn = false
	}
}

// end takes the bar off the screen for good.
func (p *progress) end() { p.clear() }

// bar draws a share of 0 to 1 in eighths of a column.
func bar(share float64) string {
	n := int(share*barColumns*8 + 0.5)
	return eighths(n) + strings.Repeat("░", barColumns-(n+7)/8)
}

// eighths draws so many eighths of a column.
func eighths(n int) string {
	text := strings.Repeat(fullBlock, n/8)
	if rest := n % 8; rest > 0 {
		text += string([]rune(eighthBlocks)[rest])
	}
	return text
}

// grouped writes a number with commas between its thousands.
func grouped(n uint64) string {
	digits := fmt.Sprint(n)
	var text strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			text.WriteByte(',')
		}
		text.WriteRune(d)
	}
	return text.String()
}
