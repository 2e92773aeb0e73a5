package demo

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// sample is a moment of a story with something of every kind.
func sample() view {
	const ms, s = time.Millisecond, time.Second
	return view{
		now: 11 * s, length: 22 * s, choir: 300, turns: []turn{{4 * s, "n2", true}, {9 * s, "n2", false}},
		lanes: []lane{
			{"kettle", "soon", []event{
				{is: wasPut, due: 3 * s},
				{at: 3 * s, is: rang, late: 700 * time.Microsecond, by: "ann"},
				{at: 4 * s, is: wasDone, by: "ann"},
			}},
			{"payment", "will fail twice", []event{
				{is: wasPut, due: 2 * s},
				{at: 2 * s, is: rang, by: "bob"},
				{at: 10 * s, is: hasFailed, by: "bob", due: 14 * s, text: "declined"},
			}},
			{"webhook", "will die", []event{
				{is: wasPut, due: s},
				{at: s, is: rang, by: "cleo"},
				{at: 2 * s, is: hasDied, attempt: 3, text: "HTTP 503"},
			}},
			{"order-42", "will be paid", []event{{is: wasPut, due: 14 * s}, {at: 9 * s, is: wasCancelled, text: "it was paid"}}},
			{"parcel", "comes sooner", []event{{is: wasPut, due: 19 * s}, {at: 7 * s, is: wasRescheduled, due: 12 * s}}},
			{"report", "takes long", []event{
				{is: wasPut, due: 4 * s},
				{at: 4 * s, is: rang, by: "bob"},
				{at: 8 * s, is: wasExtended, by: "bob", text: "held until 12.0 s"},
			}},
			{"backup", "holder crashes", []event{
				{is: wasPut, due: 6 * s},
				{at: 6 * s, is: rang, by: "bob"},
				{at: 9 * s, is: hasLapsed, by: "bob"},
			}},
			{"invoice-7", "put twice", []event{{is: wasPut, due: 12 * s}, {at: 5 * s, is: wasPutAgain, due: 12 * s}}},
			{"phoenix", "back from the dead", []event{
				{is: wasPut, due: s},
				{at: 2 * s, is: hasDied},
				{at: 6 * s, is: wasRedriven, due: 6 * s},
			}},
		},
		rings: []time.Duration{s, s, s, 5 * s},
		late:  []time.Duration{400 * time.Microsecond, 900 * time.Microsecond, 900 * time.Microsecond, 3 * ms, 50 * ms},
		log: []event{
			{at: 4 * s, job: "kettle", is: wasDone, by: "ann"},
			{at: 9 * s, job: "order-42", is: wasCancelled, text: "it was paid"},
		},
	}
}

const sampleSmall = ` BELFRY  a title that says where                                         11.0 s
            0s      5s       10s     15s      20s
 kettle     ├────◆✓                                 done, 0.7 ms late
 payment    ├──◆━━━━━━━━━━━━━✗──    ◇               declined, again in 3.0 s
 webhook    ├◆━†┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄                    dead after 3 attempts
 order-42   ├──────────────⊘                        cancelled: it was paid
 parcel     ├───────────»───────◇                   comes sooner, in 1.0 s
 report     ├─────◆━━━━━━+━━━━━━                    bob, held until 12.0 s
 backup     ├─────────◆━━━━!────                    bob is gone
 invoice-7  ├───────=───────────◇                   put twice, in 1.0 s
 phoenix    ├──†┄┄┄┄┄┄↻─────────                    back from the dead, in 0.0…
 nodes      ──────■────────□───▲──────────────────  n2 is back
 choir       █      ▃                               4 of 300 have rung
 how late they rang: p50 0.9 ms  p99 50.0 ms  max 50.0 ms
   ≤ 0.5 ms █████████████████████████████ 1
     ≤ 1 ms ██████████████████████████████████████████████████████████ 2
     ≤ 2 ms  0
     ≤ 5 ms █████████████████████████████ 1
    ≤ 10 ms  0
       more █████████████████████████████ 1
 ├ put ◆ rang ✓ done ✗ failed + extended ! lapsed † dead ↻ redriven ⊘ cancelled
`

func TestPictureOfASmallTerminal(t *testing.T) {
	got := strings.Join(draw(sample(), "a title that says where", 80, 24, false), "\n") + "\n"
	if diff := cmp.Diff(sampleSmall, got); diff != "" {
		t.Errorf("picture (-want +got):\n%s", diff)
	}
}

// TestPictureFits draws every moment of a story for many sizes: no line is too long, and the
// terminal never scrolls.
func TestPictureFits(t *testing.T) {
	v := sample()
	for len(v.lanes) < len(parts()) {
		v.lanes = append(v.lanes, v.lanes[0])
	}
	for columns := columnsMin; columns <= 200; columns += 8 {
		for rows := rowsMin; rows <= 60; rows += 4 {
			for _, now := range []time.Duration{0, 11 * time.Second, v.length, v.length + endWait} {
				v.now = now
				lines := draw(v, strings.Repeat("long title ", 40), columns, rows, false)
				if free := rows - len(lines); free < 2 || rows >= 32 && free < 4 {
					t.Errorf("%dx%d: %d lines leave no room for what follows", columns, rows, len(lines))
				}
				for _, line := range lines {
					if width := utf8.RuneCountInString(line); width >= columns {
						t.Errorf("%dx%d: %d columns: %q", columns, rows, width, line)
					}
				}
			}
		}
	}
}

// TestColorsAreOnlyColors takes the colours away and finds the same picture.
func TestColorsAreOnlyColors(t *testing.T) {
	plainPicture := draw(sample(), "title", 120, 40, false)
	colored := draw(sample(), "title", 120, 40, true)
	stripped := make([]string, len(colored))
	sequences := 0
	for i, line := range colored {
		for {
			before, rest, found := strings.Cut(line, "\x1b[")
			if !found {
				stripped[i] += line
				break
			}
			sequences++
			_, after, _ := strings.Cut(rest, "m")
			stripped[i] += before
			line = after
		}
	}
	if diff := cmp.Diff(plainPicture, stripped); diff != "" {
		t.Errorf("without colours (-plain +stripped):\n%s", diff)
	}
	if sequences < 20 {
		t.Errorf("the coloured picture has %d colours", sequences)
	}
	if strings.Contains(strings.Join(plainPicture, ""), "\x1b") {
		t.Error("the plain picture has colours")
	}
}

// TestLargeTerminalShowsTheLog uses the room for what happened last.
func TestLargeTerminalShowsTheLog(t *testing.T) {
	text := strings.Join(draw(sample(), "title", 120, 40, false), "\n")
	if !strings.Contains(text, "9.000 s  order-42   cancelled: it was paid") {
		t.Errorf("the log is missing:\n%s", text)
	}
}

func TestSentences(t *testing.T) {
	e := event{
		at: 1500 * time.Millisecond, job: "kettle", due: 3 * time.Second, late: 700 * time.Microsecond, by: "ann", attempt: 2,
		fence: 17, text: "why",
	}
	for is, want := range map[kind]string{
		wasPut:         "put, rings at 3.000 s: why",
		wasPutAgain:    "put again: why",
		wasRescheduled: "rescheduled, rings at 3.000 s: why",
		rang:           "rings again: ann has it (attempt 2, fence 17); why",
		wasExtended:    "ann extends the lease: why",
		wasRefused:     "ann is back and acks with the old lease: refused, why",
		hasFailed:      "ann failed (why), rings again at 3.000 s",
		hasLapsed:      "ann crashed: why",
		wasDone:        "ann is done",
		wasCancelled:   "cancelled: why",
		hasDied:        "ann failed (why): dead after 2 attempts",
		wasRedriven:    "redriven: why",
	} {
		e.is = is
		if got := sentence(e); got != "  1.500 s  kettle     "+want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	e.is, e.text = rang, ""
	if got, want := sentence(e), "  1.500 s  kettle     rings 0.7 ms late: ann has it (attempt 2, fence 17)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
