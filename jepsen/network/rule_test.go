package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// chat has both ends of a connection talk for so long that what was sent elsewhere before would
// have come by then, if anything let it pass. It need not have: a test that relies on this fails
// for a mistake nearly always, and without one never.
func (w *world) chat(near, far net.Conn) {
	w.t.Helper()
	for range 200 {
		w.say(near, "ping")
		w.hear(far, "ping")
		w.say(far, "pong")
		w.hear(near, "pong")
	}
}

func TestASilentLinkHoldsBackWhatComes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Loopback)
	server := w.serve("n1", Client)
	near, far := w.pair("c1", server)
	other, otherFar := w.pair("c2", server)

	w.set("c1", "n1", Client, Rule{Drop: true})
	w.say(near, "held")
	arrived := make(chan string, 1)
	go func() {
		got := make([]byte, len("held"))
		if _, err := far.Read(got); err == nil {
			arrived <- string(got)
		}
	}()
	late := w.dial("c1", "n1")
	w.chat(other, otherFar)
	// The way back is open: only one direction is cut.
	w.say(far, "answer")
	w.hear(near, "answer")
	nothing(t, arrived, "over a silent link came")
	nothing(t, server, "over a silent link came a connection")

	w.heal()
	if got := take(t, arrived, "what was held back"); got != "held" {
		t.Errorf("what was held back came as %q", got)
	}
	w.say(late, "late")
	w.hear(w.own(take(t, server, "the connection that was held back")), "late")
}

func TestASilentLinkHoldsBackTheEndOfAConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Loopback)
	server := w.serve("n1", Client)
	near, far := w.pair("c1", server)
	other, otherFar := w.pair("c2", server)
	w.set("c1", "n1", Client, Rule{Drop: true})
	abort(near.(*net.TCPConn))
	end := ends(far)
	w.chat(other, otherFar)
	nothing(t, end, "over a silent link came the end")
	w.heal()
	if err := take(t, end, "the end"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the end was %v, want a reset", err)
	}
}

func TestALinkThatResets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Loopback)
	near, far := w.pair("c1", w.serve("n1", Client))
	w.set("c1", "n1", Client, Rule{Reset: true})
	for _, conn := range []net.Conn{near, far} {
		if err := take(t, ends(conn), "the end"); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a connection ended with %v, want a reset", err)
		}
	}
	if err := w.fate("c1", "n1"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a new connection ended with %v, want a reset", err)
	}
}

func TestAHalfOpenConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Loopback)
	server := w.serve("n1", Client)
	near, far := w.pair("c1", server)
	other, otherFar := w.pair("c2", server)
	w.set("c1", "n1", Client, Rule{HalfOpen: true})
	if err := take(t, ends(near), "the end"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the side that opened it has %v, want a reset", err)
	}
	w.say(far, "to nobody")
	end := ends(far)
	w.chat(other, otherFar)
	nothing(t, end, "the other side heard of the end")
	w.heal()
	if err := take(t, end, "the end"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the other side has %v, want a reset", err)
	}
}

func TestAMuteLink(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Loopback)
	server := w.serve("n1", Client)
	near, far := w.pair("c1", server)
	w.set("c1", "n1", Client, Rule{Mute: true})
	mute := w.dial("c1", "n1")
	w.say(mute, "anybody?")
	end := ends(mute)
	w.chat(near, far) // it was open before
	nothing(t, end, "a mute connection ended")
	nothing(t, server, "over a mute link came")
	w.heal()
	if err := take(t, end, "the end"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a mute connection ended with %v, want a reset", err)
	}
}

func TestADelay(t *testing.T) {
	t.Parallel()
	const delay = 40 * time.Millisecond
	w := newWorld(t, Loopback)
	near, far := w.pair("c1", w.serve("n1", Client))
	w.set("c1", "n1", Client, Rule{Delay: delay, Jitter: delay})
	began := time.Now()
	for i := range 5 { // in order, whatever each one's delay is
		w.say(near, fmt.Sprint(i))
	}
	w.hear(far, "01234")
	if took := time.Since(began); took < delay {
		t.Errorf("what is delayed by %s came after %s", delay, took)
	}
	// What waits for long comes at once when the delay is over, also if nothing tells it so because it
	// was over before.
	w.set("c1", "n1", Client, Rule{Delay: time.Hour})
	w.say(near, "late")
	w.heal()
	w.hear(far, "late")
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	f := (&conn{network: w.Network}).flow(nil, nil, w.table.link(way{"c1", "n1", Client}))
	if err := f.arrive(ctx, time.Now().Add(time.Hour)); err != nil {
		t.Errorf("what was delayed under an earlier rule did not come: %v", err)
	}
}

func TestABoundOfBytes(t *testing.T) {
	t.Parallel()
	const perSecond, count = 20_000, 6_000
	w := newWorld(t, Loopback)
	near, far := w.pair("c1", w.serve("n1", Client))
	w.set("c1", "n1", Client, Rule{BytesPerSecond: perSecond})
	began := time.Now()
	w.say(near, strings.Repeat("x", count))
	w.hear(far, strings.Repeat("x", count))
	if took, least := time.Since(began), count*time.Second/perSecond; took < least {
		t.Errorf("%d bytes at %d a second took %s, want %s at least", count, perSecond, took, least)
	}
	w.set("c1", "n1", Client, Rule{BytesPerSecond: 1})
	w.say(near, strings.Repeat("y", count))
	w.heal() // without a wait of 100 minutes
	w.hear(far, strings.Repeat("y", count))
}

func TestAFlippedBit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Loopback)
	near, far := w.pair("c1", w.serve("n1", Client))
	w.set("n1", "c1", Client, Rule{Corrupt: 1})
	sent, got := bytes.Repeat([]byte{0x55}, 100), make([]byte, 100)
	w.say(far, string(sent))
	flipped := 0
	if _, err := near.Read(got); err != nil {
		t.Fatal(err)
	}
	for i := range got {
		flipped += bits.OnesCount8(got[i] ^ sent[i])
	}
	if flipped != 1 {
		t.Errorf("%d bits were flipped, want 1", flipped)
	}
}

func TestAConnectionComesTwiceOrLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Loopback)
	server := w.serve("n1", Client)
	w.set("c1", "n1", Client, Rule{Duplicate: 1})
	near, far := w.pair("c1", server)
	twin := w.own(take(t, server, "the second connection"))
	w.say(near, "once")
	w.hear(far, "once")
	_ = near.Close()
	_ = far.Close()
	if got, err := twin.Read(make([]byte, 1)); got != 0 || err == nil {
		t.Errorf("the second connection carried %d bytes, %v", got, err)
	}

	w.set("c1", "n1", Client, Rule{Reorder: 1})
	first := w.dial("c1", "n1")
	w.say(first, "first")
	// The first one waits before the second one is there: that is seen at the link.
	l := w.table.link(way{"c1", "n1", Client})
	await(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.last != nil
	})
	second := w.dial("c1", "n1")
	w.say(second, "other")
	w.hear(w.own(take(t, server, "the second one")), "other")
	w.hear(w.own(take(t, server, "the first one")), "first")
}

// await waits until a condition holds that nothing tells of.
func await(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patient); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("what was waited for did not come about")
		}
	}
}

// TestOnlyOneServiceIsCut cuts gossip alone, and then everything but gossip.
func TestOnlyOneServiceIsCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Loopback)
	at := w.gossips("n1", "n2")
	dropped := func(s Service) bool { return w.table.dropped(way{"n1", "n2", s}) }
	w.set("n1", "n2", Peer, Rule{Drop: true})
	w.send(at[0], "n2", "gossip")
	w.receive(at[1], "n1", "gossip")
	w.set("n1", "n2", All, Rule{Drop: true})
	if !dropped(Client) || !dropped(Peer) || !dropped(Gossip) {
		t.Error("all services does not stand for each")
	}
	w.set("n1", "n2", Gossip, Rule{})
	w.send(at[0], "n2", "again")
	w.receive(at[1], "n1", "again")
	if !dropped(Peer) {
		t.Error("the rule for gossip changed that for peers")
	}
}

func TestAPartition(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Loopback)
	type cuts map[string]bool
	for _, row := range []struct {
		name   string
		groups [][]string
		cut    cuts
	}{
		{"none", nil, cuts{}},
		{"one alone", [][]string{{"n1"}, {"n2", "n3"}}, cuts{"n1 n2": true, "n1 n3": true}},
		{"a bridge", [][]string{{"n1"}, {"n3"}}, cuts{"n1 n3": true}},
		{"a ring", [][]string{{"n1", "n2"}, {"n2", "n3"}}, cuts{"n1 n3": true}},
		{"with a client", [][]string{{"n1", "c1"}, {"n2", "n3"}},
			cuts{"n1 n2": true, "n1 n3": true, "c1 n2": true, "c1 n3": true}},
	} {
		if err := w.Partition(t.Context(), row.groups...); err != nil {
			t.Fatal(err)
		}
		for _, pair := range []string{"n1 n2", "n1 n3", "n2 n3", "c1 n1", "c1 n2", "c1 n3", "c2 n1"} {
			a, b, _ := strings.Cut(pair, " ")
			there, back := w.table.dropped(way{a, b, Client}), w.table.dropped(way{b, a, Client})
			if there != row.cut[pair] || back != row.cut[pair] {
				t.Errorf("%s: %s is cut: %v there, %v back; want %v", row.name, pair, there, back, row.cut[pair])
			}
		}
	}
	w.set("n2", "n3", Peer, Rule{Delay: time.Second})
	w.heal()
	if w.table.dropped(way{"c1", "n2", Client}) || w.table.effective(way{"n2", "n3", Peer}) != (Rule{}) {
		t.Error("something is left after the healing")
	}
	if err := w.Partition(t.Context(), []string{"n1"}, []string{"n9"}); err == nil {
		t.Error("a node that nobody knows is cut off")
	}
}

func TestRulesThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Loopback)
	for _, row := range []struct {
		link Link
		rule Rule
	}{
		{Link{"n1", "n9", All}, Rule{}},
		{Link{"n1", "n1", All}, Rule{}},
		{Link{"c1", "c2", All}, Rule{}},
		{Link{"c1", "n1", Peer}, Rule{}},
		{Link{"n1", "n2", Gossip + 1}, Rule{}},
		{Link{"n1", "n2", All}, Rule{Drop: true, Reset: true}},
		{Link{"n1", "n2", All}, Rule{Loss: 1.1}},
		{Link{"n1", "n2", All}, Rule{Corrupt: math.NaN()}},
		{Link{"n1", "n2", All}, Rule{Delay: -1}},
		{Link{"n1", "n2", All}, Rule{BytesPerSecond: -1}},
	} {
		if err := w.Set(t.Context(), row.link, row.rule); err == nil {
			t.Errorf("%+v on %+v is taken", row.rule, row.link)
		}
	}
}

// TestABoundIsForgotten has a bound of bytes followed by another, under which what passed before
// does not count.
func TestABoundIsForgotten(t *testing.T) {
	t.Parallel()
	l := newTable().link(way{"n1", "n2", Peer})
	l.set(Rule{BytesPerSecond: 1})
	if at := l.reserve(1_000_000); time.Until(at) < time.Hour {
		t.Errorf("1 MB at a byte a second passed at %s", at)
	}
	l.set(Rule{BytesPerSecond: 1_000_000})
	if at := l.reserve(1); time.Until(at) > time.Minute {
		t.Errorf("a byte at 1 MB a second passes at %s", at)
	}
}

func TestAStall(t *testing.T) {
	t.Parallel()
	if got, want := newDice(1).stall(Rule{Loss: 1}), 31*resendFirst; got != want {
		t.Errorf("what is always lost stalls for %s, want %s", got, want)
	}
	if got := newDice(1).stall(Rule{}); got != 0 {
		t.Errorf("what is never lost stalls for %s", got)
	}
}

func TestATapSeesWhatPassesBeforeAndAfter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Loopback)
	server := w.serve("n1", Client)
	near, far := w.pair("c1", server)
	var mu sync.Mutex
	var seen []string
	var verdict Verdict
	stop := w.Tap("c1", "n1", func(p Passage) Verdict {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprintf("%s %s answer=%v passed=%v %s", p.Client, p.Node, p.Answer, p.Passed, p.Bytes))
		return verdict
	})
	w.say(near, "put")
	w.hear(far, "put")
	await(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) == 2 })
	w.say(far, "done")
	w.hear(near, "done")
	await(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) == 4 })
	want := []string{
		"c1 n1 answer=false passed=false put", "c1 n1 answer=false passed=true put",
		"c1 n1 answer=true passed=false done", "c1 n1 answer=true passed=true done",
	}
	for i := range want {
		if seen[i] != want[i] {
			t.Errorf("the tap was told %q, want %q", seen[i], want[i])
		}
	}
	mu.Lock()
	verdict = Break
	mu.Unlock()
	w.say(far, "lost")
	if err := take(t, ends(near), "the end"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a broken connection ended with %v, want a reset", err)
	}
	stop()
	near, far = w.pair("c1", server)
	w.say(far, "again")
	w.hear(near, "again")
}

// TestRulesChangeUnderLoad is for the race detector, and sees that all bytes come in the end.
func TestRulesChangeUnderLoad(t *testing.T) {
	t.Parallel()
	const count = 200
	w := newWorld(t, Loopback)
	near, far := w.pair("c1", w.serve("n1", Client))
	var changing sync.WaitGroup
	for _, rule := range []Rule{{Drop: true}, {Delay: time.Millisecond, Jitter: time.Millisecond},
		{BytesPerSecond: 1000}} {
		changing.Go(func() {
			for range count {
				if err := errors.Join(w.Set(t.Context(), Link{"c1", "n1", All}, rule), w.Heal(t.Context())); err != nil {
					t.Error(err)
				}
			}
		})
	}
	changing.Go(func() {
		for range count {
			w.say(near, "0123456789")
		}
	})
	w.hear(far, strings.Repeat("0123456789", count))
	changing.Wait()
}
