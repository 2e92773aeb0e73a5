package demo_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/demo"
	"github.com/belfrydb/belfry/cmd/belfry/server"
)

func startServer(t *testing.T) string {
	t.Helper()
	s, err := server.Start(t.Context(), server.Config{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler), Fatal: func(err error) {
			t.Error(err)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s.URL()
}

// TestStory plays the whole story against a real server, as plain lines and as a picture. That it
// keeps its time is tested in virtual time.
func TestStory(t *testing.T) {
	for name, picture := range map[string]bool{"plain": false, "picture": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := demo.Run(t.Context(), demo.Config{
				URLs: startServer(t), Out: &out, Picture: picture, Color: true, Size: func() (int, int) {
					return 80, 24
				}, Seed: 7, Title: "title",
			})
			if err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			if picture {
				checkPicture(t, out.String())
			} else {
				checkLines(t, out.String())
			}
		})
	}
}

// checkLines looks for the turns of each job's story, each after the one before. What happens to
// another job meanwhile comes before or after it.
func checkLines(t *testing.T, text string) {
	t.Helper()
	for _, turns := range [][]string{
		{"kettle     put, rings at", "kettle     rings", "(attempt 1,", "kettle     ", "is done"},
		{"payment    rings", "failed (declined), rings again at", "payment    rings", "failed (declined), rings again at",
			"payment    rings", "payment    ", "is done"},
		{"webhook    rings", "failed (HTTP 503), rings again at", "dead after 3 attempts", "webhook    redriven",
			"webhook    rings", "webhook    ", "is done"},
		{"order-42   cancelled"},
		{"parcel     rescheduled", "parcel     rings"},
		{"report     rings", "extends the lease", "report     ", "is done"},
		{"backup     rings", "crashed: its lease lapsed", "refused, STALE_LEASE"},
		{"backup     rings", "backup     rings again"},
		{"invoice-7  put again: same id, same answer", "invoice-7  rings"},
		{"birthday   rings", "goodnight  rings", "is done", "315 rings, none early"},
	} {
		rest := text
		for _, turn := range turns {
			_, after, found := strings.Cut(rest, turn)
			if !found {
				t.Fatalf("%q does not come where it belongs in:\n%s", turn, text)
			}
			rest = after
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Error("plain lines have escape sequences")
	}
}

// checkPicture looks at how the terminal is treated: the cursor comes back, and each picture
// replaces the one before.
func checkPicture(t *testing.T, text string) {
	t.Helper()
	if !strings.HasPrefix(text, "\x1b[?25l") || strings.Count(text, "\x1b[?25h") != 1 {
		t.Error("the cursor is not hidden first and shown again at the end")
	}
	frames, inPlace := strings.Count(text, "BELFRY"), len(regexp.MustCompile("\x1b\\[[0-9]+A").FindAllString(text, -1))
	if frames < 10 || inPlace != frames-1 {
		t.Errorf("%d pictures, %d of them in place of another", frames, inPlace)
	}
	if !strings.Contains(text, "300 of 300 have rung") || !strings.Contains(text, "315 rings, none early") {
		t.Error("the last picture does not show the end")
	}
}

// firstLine collects what is written and closes seen when there is something.
type firstLine struct {
	text bytes.Buffer
	once sync.Once
	seen chan struct{}
}

func (w *firstLine) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.seen) })
	return w.text.Write(p)
}

// TestSmallTerminalGetsLines does not draw what would not fit, and ends when it is interrupted.
func TestSmallTerminalGetsLines(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := &firstLine{seen: make(chan struct{})}
	go func() {
		<-out.seen
		cancel()
	}()
	err := demo.Run(ctx, demo.Config{
		URLs: startServer(t), Out: out, Picture: true, Color: true, Size: func() (int, int) { return 60, 20 }, Title: "title",
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was interrupted", err)
	}
	if text := out.text.String(); strings.Contains(text, "\x1b") || !strings.Contains(text, "kettle     put, rings at") {
		t.Errorf("got %q, want plain lines", text)
	}
}

func TestURLsAreChecked(t *testing.T) {
	var out bytes.Buffer
	err := demo.Run(t.Context(), demo.Config{URLs: "ftp://nowhere", Out: &out, Size: func() (int, int) { return 80, 24 }})
	if err == nil || !strings.Contains(err.Error(), "nowhere") || out.Len() > 0 {
		t.Errorf("got %v and %q, want what is wrong and nothing else", err, out.String())
	}
}
