package demo

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// glass is a terminal with just what the painter uses. It starts with the cursor in its last row,
// where every line too many scrolls, and wraps as soon as the last column is written.
type glass struct {
	columns int
	rows    [][]rune
	row, at int
}

func newGlass(columns, rows int) *glass {
	return &glass{columns: columns, rows: make([][]rune, rows), row: rows - 1}
}

func (g *glass) newline() {
	g.at = 0
	if g.row++; g.row == len(g.rows) {
		g.rows, g.row = append(g.rows[1:], nil), g.row-1
	}
}

// Write implements io.Writer.
func (g *glass) Write(p []byte) (int, error) {
	rest := string(p)
	for rest != "" {
		if after, found := strings.CutPrefix(rest, "\x1b["); found {
			end := strings.IndexAny(after, "AJKlhm")
			g.control(after[end], after[:end])
			rest = after[end+1:]
			continue
		}
		r := []rune(rest)[0]
		rest = rest[len(string(r)):]
		switch r {
		case '\n':
			g.newline()
		case '\r':
			g.at = 0
		default:
			g.rows[g.row] = append(g.rows[g.row][:g.at], r)
			if g.at++; g.at == g.columns {
				g.newline()
			}
		}
	}
	return len(p), nil
}

func (g *glass) control(final byte, parameter string) {
	switch final {
	case 'A':
		var up int
		_, _ = fmt.Sscan(parameter, &up)
		g.row = max(0, g.row-up)
	case 'K':
		g.rows[g.row] = g.rows[g.row][:g.at]
	case 'J':
		g.rows[g.row] = g.rows[g.row][:g.at]
		clear(g.rows[g.row+1:])
	}
}

func (g *glass) String() string {
	var b strings.Builder
	for _, row := range g.rows {
		b.WriteString(string(row) + "\n")
	}
	return b.String()
}

// fullBoard has a lane for every job of the story, and rings that were very late: the summary is
// then longest.
func fullBoard() *board {
	b := newBoard(time.Now(), storyLength)
	for _, part := range parts() {
		b.lanes = append(b.lanes, &lane{job: part.id, events: []event{{is: hasFailed, text: "a reason that is long"}}})
	}
	for range 500 {
		b.late = append(b.late, 123456*time.Microsecond)
	}
	return b
}

// TestLastPictureStays draws a few pictures and the last one, and then has a shell with a prompt of
// two lines come back: the title is still there, and nothing of an earlier picture.
func TestLastPictureStays(t *testing.T) {
	for _, size := range [][2]int{{72, 24}, {80, 24}, {81, 25}, {80, 31}, {100, 32}, {120, 40}, {200, 50}} {
		t.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(t *testing.T) {
			g := newGlass(size[0], size[1])
			p := newPainter(Config{Out: g, Color: true, Title: "title", Size: func() (int, int) {
				return size[0], size[1]
			}}, fullBoard())
			for range 3 {
				if err := p.draw(); err != nil {
					t.Fatal(err)
				}
			}
			p.finish()
			fmt.Fprint(g, "~/belfry main\n$ ")
			screen := g.String()
			if strings.Count(screen, " BELFRY  title") != 1 ||
				!strings.Contains(screen, "\n 500 rings, none early; half within") {
				t.Errorf("the title or the summary is not there once:\n%s", screen)
			}
		})
	}
}

// TestTerminalThatShrinks is drawn on all the same, and the picture comes back with the room.
func TestTerminalThatShrinks(t *testing.T) {
	columns, rows := 120, 40
	g := newGlass(columns, rows)
	p := newPainter(Config{Out: g, Title: "title", Size: func() (int, int) { return columns, rows }}, fullBoard())
	for _, size := range [][2]int{{120, 40}, {40, 40}, {120, 3}, {1, 1}, {120, 40}} {
		columns, rows = size[0], size[1]
		if err := p.draw(); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(g.String(), " BELFRY  title") {
		t.Errorf("the picture is not back:\n%s", g)
	}
	columns = 20
	p.finish()
	for line := range strings.Lines(g.String()) {
		if strings.Contains(line, "rings") && len([]rune(line)) > columns {
			t.Errorf("the summary is too long for the terminal: %q", line)
		}
	}
}
