package main

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cmd/compare/peer"
)

// fakeStage is a stage without servers.
func fakeStage(t *testing.T, rounds int) *stage {
	t.Helper()
	return &stage{settings: settings{rounds: rounds, length: time.Second, limit: time.Minute,
		json: filepath.Join(t.TempDir(), "samples")}, root: t.TempDir()}
}

func fakePeer(name string, err error) peer.Queue {
	return peer.Queue{Name: name, Start: func(context.Context, *peer.Site) (*peer.Running, error) {
		return &peer.Running{Version: "made-up"}, err
	}}
}

func fakeWork(name string, do func() ([]sample, error)) work {
	return work{name: name, do: func(context.Context, *peer.Running, settings) ([]sample, error) { return do() }}
}

// TestPlay: a peer that fails does not stop the others, and after each peer the file has everything
// so far.
func TestPlay(t *testing.T) {
	s := fakeStage(t, 2)
	var saved []int
	count := func() ([]sample, error) {
		r, err := readRecord(s.json, true)
		saved = append(saved, len(r.Samples))
		return []sample{{Phase: "put", Jobs: 1, Seconds: 1}}, err
	}
	broken := fakeWork("broken", func() ([]sample, error) { return nil, errors.New("it breaks\nin two lines") })
	peers := []peer.Queue{fakePeer("works", nil), fakePeer("fails", errors.New("no port"))}
	all, err := s.play(t.Context(), peers, []work{fakeWork("counts", count), broken},
		record{Samples: []sample{{Work: "earlier"}}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, one := range all.Samples {
		got = append(got, strings.TrimSpace(one.Work+" "+one.Peer+" "+one.Failed))
	}
	want := "earlier, counts works, counts fails no port, broken works it breaks, broken fails no port, " +
		"counts fails no port, counts works, broken fails no port, broken works it breaks"
	if strings.Join(got, ", ") != want {
		t.Errorf("samples are\n%s, want\n%s", strings.Join(got, ", "), want)
	}
	if len(saved) != 2 || saved[0] != 0 || saved[1] != 6 {
		t.Errorf("the file had %v samples before the work that counts", saved)
	}
	if again, err := s.play(t.Context(), peers, []work{broken}, all); err != nil ||
		len(again.Samples) != len(all.Samples) {
		t.Errorf("what was done was done again: %v, %v", again.Samples, err)
	}
	s.rounds, s.budget = 3, 1
	if more, err := s.play(t.Context(), peers, []work{broken}, all); !errors.Is(err, errMore) ||
		len(more.Samples) != len(all.Samples) {
		t.Errorf("without time: %v, %v", more.Samples, err)
	}
	last, err := readRecord(s.json, false)
	if err != nil || len(last.Samples) != len(all.Samples) || last.Runs[0].Versions["works"] != "made-up" {
		t.Errorf("the file has %+v, %v", last, err)
	}
}

// TestLimit: a peer that takes too long fails, and the text says so.
func TestLimit(t *testing.T) {
	s := fakeStage(t, 1)
	s.limit = settle + time.Millisecond
	slow := work{name: "slow", do: func(ctx context.Context, _ *peer.Running, _ settings) ([]sample, error) {
		<-ctx.Done()
		return nil, net.ErrClosed
	}}
	all, err := s.play(t.Context(), []peer.Queue{fakePeer("p", nil)}, []work{slow}, record{})
	if err != nil || len(all.Samples) != 1 || !strings.HasPrefix(all.Samples[0].Failed, "it is not done after") {
		t.Errorf("it ended with %+v, %v", all.Samples, err)
	}
}

// TestHas: where the number of jobs is the work's size, another number is another work.
func TestHas(t *testing.T) {
	r := record{Samples: []sample{{Round: 1, Work: "w", Peer: "p", Jobs: 100}}}
	for _, c := range []struct {
		round int
		w     work
		p     peer.Queue
		jobs  int64
		want  bool
	}{
		{1, work{name: "w"}, peer.Queue{Name: "p"}, 5, true},
		{0, work{name: "w"}, peer.Queue{Name: "p"}, 5, false},
		{1, work{name: "v"}, peer.Queue{Name: "p"}, 5, false},
		{1, work{name: "w"}, peer.Queue{Name: "q"}, 5, false},
		{1, work{name: "w", sized: true}, peer.Queue{Name: "p"}, 100, true},
		{1, work{name: "w", sized: true}, peer.Queue{Name: "p"}, 200, false},
	} {
		if got := r.has(c.round, c.w, c.p, c.jobs); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestDoes: works for Belfry only, peers for some works only, and reasons.
func TestDoes(t *testing.T) {
	forBelfry, plain := work{name: "a", belfry: true}, work{name: "b"}
	for _, c := range []struct {
		name string
		p    peer.Queue
		w    work
		why  string
		ok   bool
	}{
		{"a work for Belfry only", peer.Queue{}, forBelfry, "", false},
		{"Belfry", peer.Queue{Belfry: true}, forBelfry, "", true},
		{"not among its works", peer.Queue{Only: []string{"c"}}, plain, "", false},
		{"among its works", peer.Queue{Only: []string{"b"}}, plain, "", true},
		{"with a reason", peer.Queue{Cannot: map[string]string{"b": "no"}}, plain, "no", false},
	} {
		if why, ok := c.w.doneBy(c.p); why != c.why || ok != c.ok {
			t.Errorf("%s: %q, %v", c.name, why, ok)
		}
	}
	known := map[string]bool{}
	for _, w := range allWorks() {
		known[w.name] = true
	}
	for _, p := range peer.All() {
		for _, name := range p.Only {
			if !known[name] {
				t.Errorf("%s is for the work %s, which does not exist", p.Name, name)
			}
		}
		for name := range p.Cannot {
			if !known[name] {
				t.Errorf("%s cannot do %s, which does not exist", p.Name, name)
			}
		}
	}
}

// TestEarlier: samples of several files come together; only the file that is written may be
// missing.
func TestEarlier(t *testing.T) {
	dir := t.TempDir()
	a, b, missing := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "missing")
	for n, path := range []string{a, b} {
		r := record{Runs: []invocation{{Versions: map[string]string{"x": []string{"1", "2"}[n]}}},
			Samples: []sample{{Work: path}}}
		if err := r.write(path); err != nil {
			t.Fatal(err)
		}
	}
	all, err := earlier(settings{add: a + "," + b})
	if err != nil || len(all.Samples) != 2 || len(all.Runs) != 2 || all.versions()["x"] != "1; 2" {
		t.Errorf("read %+v, %v", all, err)
	}
	if _, err := earlier(settings{add: missing}); err == nil {
		t.Error("a missing file was read")
	}
	if all, err := earlier(settings{add: missing, json: missing}); err != nil || len(all.Samples) != 0 {
		t.Errorf("a file to be written: %+v, %v", all, err)
	}
}

// TestSnapshotsOf: puts that were under way while a snapshot was written are told from the others.
func TestSnapshotsOf(t *testing.T) {
	const line = `time=2026-01-02T03:04:10.000Z level=INFO msg="snapshot taken" shard=5 seconds=2.5`
	one, ok := spanOf(line)
	end := time.Date(2026, 1, 2, 3, 4, 10, 0, time.UTC)
	if !ok || !one.end.Equal(end) || !one.begin.Equal(end.Add(-2500*time.Millisecond)) {
		t.Fatalf("%s is %v, %v", line, one, ok)
	}
	for _, bad := range []string{"", strings.Replace(line, "taken", "failed", 1), strings.Replace(line, "2.5", "x", 1),
		strings.Replace(line, "03:04", "x", 1)} {
		if _, ok := spanOf(bad); ok {
			t.Errorf("%q is a snapshot", bad)
		}
	}
	at := func(seconds, ms int) answered {
		return answered{end.Add(time.Duration(seconds) * time.Second), time.Duration(ms) * time.Millisecond}
	}
	calm, during := split([]answered{at(-5, 1), at(-2, 7), at(-3, 600), at(-3, 400), at(2, 700), at(3, 2)}, []span{one})
	if during.Least < 6.9 || during.Most < 699 || calm.Most < 399 || calm.Most > 401 {
		t.Errorf("calm %+v, during %+v", calm, during)
	}
	if got := largest("# HELP m x\nm{shard=\"1\"} 3\nm{shard=\"2\"} 1.5e+09\nm_other{shard=\"1\"} 9e9\n",
		"m"); got != 1.5e9 {
		t.Errorf("the largest is %v", got)
	}
}

// TestLoad: callers go over all queues evenly.
func TestLoad(t *testing.T) {
	for _, l := range []load{{queues: 1000}, {these: []int{3, 5, 9}}, {}} {
		seen := map[int]int{}
		for n := range 3000 {
			seen[l.queue(2, n)]++
		}
		want := 3000 / max(l.queues, len(l.these), 1)
		for queue, times := range seen {
			if times != want {
				t.Errorf("%+v: queue %d came %d times, want %d", l, queue, times, want)
			}
		}
	}
}
