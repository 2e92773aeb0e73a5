package gossip_test

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cluster/gossip"
)

// TestAnswers distinguishes a node that gossips, whatever its keys, from other servers. The node
// does not complain about the question.
func TestAnswers(t *testing.T) {
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	impatient, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if gossip.Answers(impatient, silent.Addr().String()) {
		t.Error("what is silent gossips")
	}
	for _, keys := range []string{"", keyFile(t, "", 1)} {
		g, err := gossip.Start(t.Context(), gossip.Config{
			Self: gossip.Info{
				Cluster: "one", Name: "n1", ServerID: "n1.a", PeerAddr: "127.0.0.1:7401", ClientAddr: "127.0.0.1:7400", Shards: 6,
				Format: 1,
			},
			Listen: "127.0.0.1:0", Insecure: keys == "", KeyFile: keys, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		if !gossip.Answers(t.Context(), g.Addr().String()) {
			t.Errorf("with keys %q: it does not answer", keys)
		}
		for range 70 { // more than are listened to at once
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", g.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
		if !gossip.Answers(t.Context(), g.Addr().String()) {
			t.Errorf("with keys %q: it does not answer among the silent", keys)
		}
		if got := g.Problems(); len(got) != 0 {
			t.Errorf("with keys %q: it complains: %+v", keys, got)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}
