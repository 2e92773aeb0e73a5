package server_test

import (
	"bytes"
	"log/slog"
	"regexp"
	"sync"
	"testing"
	"time"
)

// logbook is what a server logs.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *logbook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// await returns what the first group of a pattern matches, once something does.
func (b *logbook) await(t *testing.T, pattern string) string {
	t.Helper()
	var found []string
	await(t, pattern, func() bool {
		found = regexp.MustCompile(pattern).FindStringSubmatch(b.String())
		return found != nil
	})
	return found[len(found)-1]
}

// await repeats a question until the answer is yes.
func await(t *testing.T, what string, yes func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(2 * time.Minute) // only what hangs takes that long, however busy the machine is
	for !yes() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		case <-ticker.C:
		}
	}
}
