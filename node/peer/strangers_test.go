package peer

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/fsm"
	"github.com/google/go-cmp/cmp"
)

// listenTCP listens on a free port of loopback.
func listenTCP(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

// TestAnswerStrangers asks a process without a cluster, and then the node that it becomes, on one
// listener that is never closed in between.
func TestAnswerStrangers(t *testing.T) {
	l := listenTCP(t)
	addr := l.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- AnswerStrangers(ctx, l, func(asker string) Introduction {
			return Introduction{ServerID: "b.1", Shards: 3, Founder: asker}
		})
	}()
	for _, asker := range []string{"", "a.1"} {
		got, err := AskToFound(t.Context(), nil, addr, asker)
		if diff := cmp.Diff(Introduction{ServerID: "b.1", Shards: 3, Founder: asker, Format: fsm.FirstFormat},
			got); err != nil || diff != "" {
			t.Errorf("asked by %q: %v (-want +got):\n%s", asker, err, diff)
		}
	}
	peer, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if err := writeGreeting(peer, greeting{version: protocolVersion, cluster: "c", group: "shard-0", sender: "a.1",
		receiver: "b.1"}); err != nil {
		t.Fatal(err)
	}
	if reply, err := readGreeting(peer); err != nil || reply.verdict == accepted {
		t.Errorf("a member was answered %v, %v", reply, err)
	}
	other, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := writeGreeting(other, greeting{version: 1, group: helloGroup}); err != nil {
		t.Fatal(err)
	}
	if reply, err := readGreeting(other); err != nil || reply.verdict != refusedVersion {
		t.Errorf("a stranger of another version was answered %v, %v", reply, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	early, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr) // before the node accepts
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	waiting := make(chan Introduction, 1)
	go func() { // a Hello that waits for as long as the node takes to open
		got, err := askWho(early, "")
		if err != nil {
			t.Error(err)
		}
		waiting <- got
	}()
	m := New(member(Config{Listener: l, Logger: slog.New(slog.DiscardHandler)}, "c", "b"))
	defer m.Close()
	if got, want := <-waiting, (Introduction{ClusterID: "c", ServerID: "b.1", Shards: 1,
		Format: fsm.FirstFormat}); got != want {
		t.Errorf("the node says %+v, want %+v", got, want)
	}
}

// TestAnswerStrangersEnds: it ends with its listener, and does not wait for a peer that says
// nothing.
func TestAnswerStrangersEnds(t *testing.T) {
	l := listenTCP(t)
	silent, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := AnswerStrangers(ctx, l, nil); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := AnswerStrangers(t.Context(), l, nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("without a listener: %v", err)
	}
}

// TestIntroductionOfNobody: an answer without a server id is none, with or without a cluster.
func TestIntroductionOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		go func() {
			defer far.Close()
			_ = answerStranger(far, func(string) Introduction { return Introduction{Shards: 3} })
		}()
		if _, err := askWho(near, ""); err == nil || !strings.Contains(err.Error(), "makes no sense") {
			t.Errorf("got %v", err)
		}
	})
}
