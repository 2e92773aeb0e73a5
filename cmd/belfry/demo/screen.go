package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// plain writes each event as a line, and a summary at the end.
type plain struct {
	out   io.Writer
	board *board
	shown int
}

func newPlain(out io.Writer, b *board) *plain { return &plain{out: out, board: b} }

func (p *plain) draw() error {
	log := p.board.view(time.Now()).log
	for _, e := range log[p.shown:] {
		if _, err := fmt.Fprintln(p.out, sentence(e)); err != nil {
			return err
		}
	}
	p.shown = len(log)
	return nil
}

func (p *plain) finish() {
	_ = p.draw() // what cannot be written cannot be reported either
	fmt.Fprintln(p.out, summary(p.board.view(time.Now())))
}

// painter draws the picture again and again in the same place.
type painter struct {
	cfg   Config
	board *board
	drawn int // lines of the last picture
}

func newPainter(cfg Config, b *board) *painter {
	fmt.Fprint(cfg.Out, "\x1b[?25l") // hides the cursor; finish shows it again
	return &painter{cfg: cfg, board: b}
}

func (p *painter) draw() error { return p.show(p.picture(1)) }

// picture returns the lines of the picture, such that a number of rows stays free.
func (p *painter) picture(free int) []string {
	columns, rows := p.cfg.Size()
	if columns < columnsMin { // the terminal has shrunk
		return []string{fit("too narrow for the picture", columns-1)}
	}
	lines := draw(p.board.view(time.Now()), p.cfg.Title, columns, rows, p.cfg.Color)
	return lines[:min(len(lines), max(0, rows-free))]
}

// show replaces the last picture.
func (p *painter) show(lines []string) error {
	var b strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", p.drawn)
	}
	for _, line := range lines {
		b.WriteString("\r" + line + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	p.drawn = len(lines)
	_, err := io.WriteString(p.cfg.Out, b.String())
	return err
}

// finish leaves room for the summary and a prompt of two lines. In a small terminal the legend
// gives way.
func (p *painter) finish() {
	const below = 3
	_ = p.show(p.picture(below)) // what cannot be drawn cannot be reported either
	columns, _ := p.cfg.Size()
	text := strings.TrimRight(fit(" "+summary(p.board.view(time.Now())), columns-1), " ")
	fmt.Fprintln(p.cfg.Out, "\x1b[?25h"+text)
}

// summary says how it went.
func summary(v view) string {
	early := "none early"
	if v.early > 0 {
		early = fmt.Sprintf("%d EARLY", v.early)
	}
	return fmt.Sprintf("%d rings, %s; half within %s of the due time, 99 %% within %s", len(v.late), early,
		millis(quantile(v.late, 0.5)), millis(quantile(v.late, 0.99)))
}

// sentence writes an event for people.
func sentence(e event) string {
	head := fmt.Sprintf("%7.3f s  %-10s ", e.at.Seconds(), e.job)
	switch e.is {
	case wasPut:
		return head + fmt.Sprintf("put, rings at %.3f s: %s", e.due.Seconds(), e.text)
	case wasPutAgain:
		return head + "put again: " + e.text
	case wasRescheduled:
		return head + fmt.Sprintf("rescheduled, rings at %.3f s: %s", e.due.Seconds(), e.text)
	case rang:
		if e.text != "" {
			return head + fmt.Sprintf("rings again: %s has it (attempt %d, fence %d); %s", e.by, e.attempt, e.fence, e.text)
		}
		return head + fmt.Sprintf("rings %s late: %s has it (attempt %d, fence %d)", millis(e.late), e.by, e.attempt, e.fence)
	case wasExtended:
		return head + e.by + " extends the lease: " + e.text
	case wasRefused:
		return head + e.by + " is back and acks with the old lease: refused, " + e.text
	case hasFailed:
		return head + fmt.Sprintf("%s failed (%s), rings again at %.3f s", e.by, e.text, e.due.Seconds())
	case hasLapsed:
		return head + e.by + " crashed: " + e.text
	case wasDone:
		return head + e.by + " is done"
	case wasCancelled:
		return head + "cancelled: " + e.text
	case hasDied:
		return head + fmt.Sprintf("%s failed (%s): dead after %d attempts", e.by, e.text, e.attempt)
	case hasStopped:
		return head + "the node that leads the story is stopped"
	case hasReturned:
		return head + "the node is back"
	default: // wasRedriven
		return head + "redriven: " + e.text
	}
}
