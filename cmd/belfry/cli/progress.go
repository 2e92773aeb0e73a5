package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
)

const (
	barPeriod   = 100 * time.Millisecond
	plainPeriod = 5 * time.Second
)

// ClearLine moves the cursor of a terminal to the start of the line, and clears the line.
const ClearLine = "\r\x1b[K"

// Progress shows how far a long command is: a bar on a terminal, a plain line every 5 seconds
// elsewhere.
type Progress struct {
	out      io.Writer
	terminal bool
	now      func() time.Time
	began    time.Time
	shown    time.Time
	Total    int64 // bytes; 0 if not known
	drawn    bool
}

// NewProgress returns a progress over total bytes, 0 if their number is not known. It writes to
// standard error.
func NewProgress(sys *System, total int64) *Progress {
	now := sys.Now()
	return &Progress{out: sys.Err, terminal: sys.ErrTerminal, now: sys.Now, began: now, shown: now, Total: total}
}

// Update shows that so many jobs are put and so many bytes of the input are used, unless that was
// done a moment ago.
func (p *Progress) Update(jobs uint64, bytes int64) {
	p.Show(func(now time.Time) string { return p.line(now, jobs, bytes) })
}

// Show shows a text, unless one was shown a moment ago.
func (p *Progress) Show(text func(now time.Time) string) {
	now := p.now()
	period := plainPeriod
	if p.terminal {
		period = barPeriod
	}
	if now.Sub(p.shown) < period {
		return
	}
	p.shown = now
	p.Write(text(now))
}

// Bytes is update for work that is counted in bytes only.
func (p *Progress) Bytes(done int64) { p.Update(0, done) }

// Write shows a text: on a terminal in place of the one before, elsewhere as a line.
func (p *Progress) Write(text string) {
	if p.terminal {
		fmt.Fprint(p.out, ClearLine, text)
		p.drawn = true
		return
	}
	fmt.Fprintln(p.out, text)
}

// line describes the progress: bar and time left only if the total is known.
func (p *Progress) line(now time.Time, jobs uint64, bytes int64) string {
	elapsed := now.Sub(p.began)
	rate := float64(jobs) / max(elapsed.Seconds(), 1e-3)
	text := fmt.Sprintf("%s jobs  %s/s", render.Grouped(jobs), render.Grouped(uint64(rate)))
	if jobs == 0 && bytes > 0 {
		text = fmt.Sprintf("%.1f MiB  %.1f MiB/s", float64(bytes)/(1<<20),
			float64(bytes)/(1<<20)/max(elapsed.Seconds(), 1e-3))
	}
	if p.Total <= 0 {
		return text
	}
	share := min(1, float64(bytes)/float64(p.Total))
	left := time.Duration(0)
	if share > 0 {
		left = time.Duration(float64(elapsed) * (1 - share) / share)
	}
	text = fmt.Sprintf("%3.0f %%  %s  %v left", 100*share, text, left.Round(time.Second))
	if p.terminal {
		return render.Bar(share) + " " + text
	}
	return text
}

// Clear takes the bar off the screen, so that a line can be written; the next update draws it
// again.
func (p *Progress) Clear() {
	if p.drawn {
		fmt.Fprint(p.out, ClearLine)
		p.drawn = false
	}
}

// Say writes a line; the next update draws the bar again.
func (p *Progress) Say(line string) {
	p.Clear()
	fmt.Fprintln(p.out, line)
}

// End takes the bar off the screen for good.
func (p *Progress) End() { p.Clear() }
