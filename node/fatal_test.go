package node

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// stuckWriter is a log on a disk that hangs, until it is released.
type stuckWriter struct{ release chan struct{} }

func (w *stuckWriter) Write(text []byte) (int, error) {
	<-w.release
	return len(text), nil
}

// TestFatalDoesNotWaitForTheLog: what ends the process must not depend on the disk because of which
// it ends.
func TestFatalDoesNotWaitForTheLog(t *testing.T) {
	cause := errors.New("the disk hangs")
	for _, tc := range []struct {
		name string
		log  func(w *stuckWriter, text *bytes.Buffer) io.Writer
		wait time.Duration
		said bool
	}{
		{"a log that takes it", func(_ *stuckWriter, text *bytes.Buffer) io.Writer { return text }, 0, true},
		{"a log that hangs", func(w *stuckWriter, _ *bytes.Buffer) io.Writer { return w }, lastWordsMax, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stuck, text := &stuckWriter{release: make(chan struct{})}, &bytes.Buffer{}
				began := time.Now()
				ended := 0
				n := &Node{cfg: Config{
					Logger: slog.New(slog.NewTextHandler(tc.log(stuck, text), nil)),
					Fatal: func(err error) {
						if ended++; !errors.Is(err, cause) || time.Since(began) != tc.wait {
							t.Errorf("ended after %v because of %v, want %v because of %v", time.Since(began), err, tc.wait, cause)
						}
					},
				}}
				n.fatal(cause)
				n.fatal(cause)
				if ended != 1 {
					t.Errorf("ended %d times", ended)
				}
				if said := bytes.Contains(text.Bytes(), []byte(cause.Error())); said != tc.said {
					t.Errorf("the log has %q", text)
				}
				close(stuck.release)
			})
		})
	}
}
