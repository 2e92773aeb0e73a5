package server

import (
	"context"
	"log/slog"
	"strings"
	"testing"
)

// TestALostListenerEndsTheServer: a server that no longer serves a protocol is done, and says why.
func TestALostListenerEndsTheServer(t *testing.T) {
	t.Parallel()
	s, err := Start(t.Context(), Config{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", LmstfyListen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
		Fatal: func(err error) { t.Errorf("storage failed: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.lmstfy.Close(); err != nil {
		t.Error(err)
	}
	<-s.Done()
	if err := s.Stop(context.WithoutCancel(t.Context())); err == nil ||
		!strings.Contains(err.Error(), "serving lmstfy's protocol: ") {
		t.Errorf("it stopped with %v", err)
	}
}
