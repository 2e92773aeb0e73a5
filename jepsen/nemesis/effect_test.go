package nemesis

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/jepsen/lab"
	"github.com/belfrydb/belfry/jepsen/report"
)

// bare is a network without connections.
type bare struct{}

func (bare) Host(string) string                       { return "127.0.0.1" }
func (bare) Advertised(string) string                 { return "127.0.0.1" }
func (bare) ClientURL(string, string) (string, error) { return "", errors.New("nobody is asked") }
func (bare) Wrap(string, *exec.Cmd) error             { return nil }
func (bare) Add(context.Context, string) error        { return nil }

// scriptedLab is a lab whose servers are shell scripts that say that they serve, write down what
// they were started with, and do nothing. All of them run.
func scriptedLab(t *testing.T, nodes ...string) *lab.Lab {
	t.Helper()
	dir := t.TempDir()
	program, never := filepath.Join(dir, "server"), filepath.Join(dir, "never")
	text := "#!/bin/sh\necho \"$@\" >>" + filepath.Join(dir, "arguments") +
		"\ntrap 'exit 0' TERM\necho serves\nread line <>" + never + "\n"
	if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "mkfifo", never).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l, err := lab.New(lab.Config{
		Dir: dir, Program: program, Names: nodes, Network: bare{}, Shards: 1, SnapshotBytes: 1,
		Logger: slog.New(slog.DiscardHandler),
		Data: func(node string) (string, error) {
			data := filepath.Join(dir, "data", node)
			return data, os.MkdirAll(data, 0o700)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Kill)
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

func sceneOf(l *lab.Lab) *Scene {
	return &Scene{Lab: l, Rand: rand.New(rand.NewPCG(1, 1)), Now: func() time.Duration { return time.Second },
		Logger: slog.New(slog.DiscardHandler), Count: func(string, int64) {}}
}

// TestSpares: a fault is judged by the nodes that it spares, if they are a majority and all of them
// run.
func TestSpares(t *testing.T) {
	l := scriptedLab(t, "n1", "n2", "n3")
	for _, c := range []struct {
		victims []string
		want    *report.Effect
	}{
		{[]string{"n2"}, &report.Effect{Began: 1, Healthy: []string{"n1", "n3"}, Victims: []string{"n2"}}},
		{nil, &report.Effect{Began: 1, Healthy: []string{"n1", "n2", "n3"}}},
		{[]string{"n1", "n2"}, nil}, // a majority is lost
	} {
		s := sceneOf(l)
		s.spares(c.victims...)
		if diff := cmp.Diff(c.want, s.effect); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.victims, diff)
		}
	}
	l.Node("n3").Kill()
	s := sceneOf(l)
	if s.spares("n2"); s.effect != nil {
		t.Errorf("a node is down already, and the fault is judged: %+v", s.effect)
	}
	if s.spares("n3"); s.effect == nil {
		t.Error("the node that is down is the victim, and the fault is not judged")
	}
}

// TestEffectIsKept: what a fault spares is kept with its times; a fault that strikes together with
// others spares nothing, and so does the next one that does not say so.
func TestEffectIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := sceneOf(nil)
		s.Now = func() time.Duration { return time.Since(began) }
		sparing := Fault{Name: "sparing", HoldMin: 20 * time.Second,
			Inject: func(ctx context.Context, s *Scene) (string, Heal, error) {
				s.effect = &report.Effect{Began: s.Now().Seconds(), Healthy: []string{"n1"}}
				pause(ctx, time.Second)
				return "did", func(ctx context.Context) error { pause(ctx, 2*time.Second); return nil }, nil
			}}
		var did []string
		var log Log
		for _, f := range []Fault{sparing, together("sparing+other", []Fault{sparing, fake("other", &did, nil)}),
			fake("silent", &did, nil)} {
			if err := Strike(t.Context(), s, f, Rhythm{Hold: time.Second}, &log); err != nil {
				t.Fatal(err)
			}
		}
		faults := log.Faults()
		e := faults[0].Effect
		if e == nil || e.Began != 0 || e.Struck != 1 || e.Healing < 21 || faults[0].To < e.Healing+2 {
			t.Errorf("have %+v of %+v", e, faults[0])
		}
		if faults[1].Effect != nil || faults[2].Effect != nil {
			t.Errorf("have %+v and %+v", faults[1].Effect, faults[2].Effect)
		}
	})
}

// TestWrongAdvertise: a node that is to advertise another address is started with it, and with its
// own again when that is over.
func TestWrongAdvertise(t *testing.T) {
	l := scriptedLab(t, "n1")
	n := l.Node("n1")
	for _, address := range []string{nowhere, ""} {
		if err := n.Stop(); err != nil {
			t.Fatal(err)
		}
		n.Advertise(address)
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(l.Program()), "arguments"))
	if err != nil {
		t.Fatal(err)
	}
	var had []string
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(line, "--advertise ")
		address, _, _ := strings.Cut(rest, " ")
		had = append(had, address)
	}
	if diff := cmp.Diff([]string{"127.0.0.1", nowhere, "127.0.0.1"}, had); diff != "" {
		t.Errorf("it was started with these (-want +got):\n%s", diff)
	}
}

// TestForgetUntold: the journals of a founder that lost its disk go with it only if no call was
// answered.
func TestForgetUntold(t *testing.T) {
	l := scriptedLab(t, "n1")
	for _, answered := range []bool{true, false} {
		path := filepath.Join(l.Journals(), "n1-7.journal")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s := sceneOf(l)
		s.Answered = func() bool { return answered }
		ended, end := context.WithCancel(t.Context())
		end() // it waits for no more answers
		if err := s.forgetUntold(ended, l.Node("n1")); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); (err == nil) != answered {
			t.Errorf("answered %v: the journal: %v", answered, err)
		}
	}
}

// TestFoundingStrikesAlone: what strikes before there is a cluster cannot be combined, and is none
// of those that follow each other.
func TestFoundingStrikesAlone(t *testing.T) {
	for _, names := range []string{"founder-lost+kill-one", "kill-one+founder-lost"} {
		if _, err := Pick(names); err == nil || !strings.Contains(err.Error(), "founder-lost") {
			t.Errorf("%s: %v", names, err)
		}
	}
	if picked, err := Pick("founder-lost"); err != nil || !picked[0].Founding {
		t.Errorf("%+v, %v", picked, err)
	}
}
