package consume

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestTroubleThatEnds is logged when it begins and when it ends, and is no error of Run.
func TestTroubleThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := NewTrouble(slog.New(slog.NewTextHandler(&log, nil)), "http://n1:7400")
		l.Succeeded()
		l.Failed(errors.New("refused"))
		time.Sleep(troubleRepeat - time.Nanosecond)
		l.Failed(errors.New("refused"))
		time.Sleep(time.Nanosecond)
		l.Failed(errors.New("still refused"))
		if err := l.Never(); err != nil {
			t.Errorf("an answer came, and yet: %v", err)
		}
		l.Succeeded()
		l.Succeeded()
		if got := strings.Count(log.String(), "\n"); got != 3 || !strings.Contains(log.String(), "after=1m0s") ||
			!strings.Contains(log.String(), "still refused") {
			t.Errorf("the log has:\n%s", log.String())
		}
	})
}
