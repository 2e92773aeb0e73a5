package aof_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/aof"
)

// TestFates has a real server do what befalls a ready list, kills it in between, and tells each
// payload's fate.
func TestFates(t *testing.T) {
	s := redistest.Start(t, redistest.WithWrites())
	do := func(args ...any) {
		t.Helper()
		if err := s.Client().Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	const push = "redis.call('HSET', KEYS[1], 'out', ARGV[1]) redis.call('RPUSH', KEYS[2], ARGV[1]) redis.call('SADD', " +
		"KEYS[3], ARGV[1]) return 1"
	for _, payload := range []string{"popped", "received", "claimed", "removed", "waits"} {
		do("EVAL", push, 3, "belfry_mirror:{q}", "q", "belfry_rung:{q}", payload)
	}
	do("EVAL", "redis.call('RPUSH', KEYS[1], 'transferred') redis.call('ZADD', KEYS[2], 1, 'x') return 1", 2, "q",
		"redisson_delay_queue_timeout:{q}")
	do("BLPOP", "q", 1)
	s.Restart()
	do("LPOP", "q")
	do("EVAL", "redis.call('HSET', KEYS[2], 'x', 'claimed') redis.call('LTRIM', KEYS[1], 1, -1) return 1", 2, "q",
		"belfry_handover_ready:{q}")
	do("LREM", "q", 0, "removed")
	list, err := aof.ListOf(s.Commands(), 0, "q")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		payload  string
		received int
		says     string
		excused  bool
	}{
		{"popped", 0, "popped from the ready list, LPOP at appendonly.aof.1.incr.aof:", true},
		{"received", 1, "it was pushed 1 times, and each was received", false},
		{"claimed", 0, "taken from the ready list by no consumer: LTRIM at ", false},
		{"removed", 0, "popped from the ready list, LREM at ", true},
		{"waits", 0, "it is on the ready list still, since RPUSH at ", false},
		{"transferred", 0, "it is on the ready list still", false},
		{"never", 0, "it never arrived on the ready list", false},
	} {
		if text, excused := list.Of(test.payload).Judge(test.received); !strings.Contains(text, test.says) ||
			excused != test.excused {
			t.Errorf("%s: %q, %v; want %q, %v", test.payload, text, excused, test.says, test.excused)
		}
	}
	for payload, by := range map[string]aof.Actor{"popped": aof.Mirror, "transferred": aof.Redisson} {
		if f := list.Of(payload); len(f.Pushed) != 1 || f.Pushed[0].By != by {
			t.Errorf("%s: %+v, want that it was pushed by %s", payload, f, by)
		}
	}
}

// TestRewritten: what a rewrite forgot is not guessed.
func TestRewritten(t *testing.T) {
	s := redistest.Start(t, redistest.WithWrites())
	r := s.Client()
	if err := r.RPush(t.Context(), "q", "x").Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.BgRewriteAOF(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for strings.Contains(r.Info(t.Context(), "persistence").Val(), "aof_rewrite_in_progress:1") ||
		strings.Contains(r.Info(t.Context(), "persistence").Val(), "aof_rewrite_scheduled:1") {
	}
	dir := r.ConfigGet(t.Context(), "dir").Val()["dir"]
	if _, err := aof.Read(dir); !errors.Is(err, aof.ErrRewritten) {
		t.Errorf("it was read with %v", err)
	}
}

// TestReadFiles reads files of both layouts: with remarks, a command that is cut off, and damage.
func TestReadFiles(t *testing.T) {
	const push, pop = "*3\r\n$5\r\nRPUSH\r\n$1\r\nq\r\n$1\r\na\r\n", "*2\r\n$4\r\nLPOP\r\n$1\r\nq\r\n"
	write := func(dir, name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := t.TempDir()
	write(old, "appendonly.aof", "#TS:1\r\n"+push+pop+push[:20])
	got, err := aof.Read(old)
	want := []aof.Command{{At: aof.Place{File: "appendonly.aof", Offset: 7}, Args: []string{"RPUSH", "q", "a"}},
		{At: aof.Place{File: "appendonly.aof", Offset: int64(7 + len(push))}, Args: []string{"LPOP", "q"}}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	parts := t.TempDir()
	write(parts, "appendonlydir/a.manifest", "file a.2.base.aof seq 2 type b\nfile a.1.incr.aof seq 1 type h\nfile "+
		"a.2.incr.aof seq 2 type i\n")
	write(parts, "appendonlydir/a.2.base.aof", push)
	write(parts, "appendonlydir/a.2.incr.aof", pop)
	list, err := func() (*aof.List, error) {
		got, err := aof.Read(parts)
		if err != nil {
			return nil, err
		}
		return aof.ListOf(got, 0, "q")
	}()
	if err != nil || len(list.Of("a").Popped) != 1 || list.Of("a").Popped[0].At.File != "a.2.incr.aof" {
		t.Errorf("of several files: %+v, %v", list, err)
	}
	for name, text := range map[string]string{"damage": push + "garbage\r\n" + pop, "a length": "*1\r\n$-5\r\n",
		"a manifest": ""} {
		dir := t.TempDir()
		if write(dir, "appendonly.aof", text); text == "" {
			write(dir, "appendonlydir/a.manifest", "nonsense\n")
		}
		if got, err := aof.Read(dir); err == nil {
			t.Errorf("%s was read as %v", name, got)
		}
	}
}

// TestUnknownCommands: a list that is changed in a way that is not known here is not judged. What a
// transaction did not finish was not done.
func TestUnknownCommands(t *testing.T) {
	of := func(all ...[]string) (*aof.List, error) {
		commands := make([]aof.Command, len(all))
		for n, args := range all {
			commands[n].Args = args
		}
		return aof.ListOf(commands, 0, "q")
	}
	for _, args := range [][]string{{"LINSERT", "q", "BEFORE", "a", "b"}, {"RENAME", "x", "q"}, {"LPOP", "q", "many"},
		{"LREM", "q"}} {
		if _, err := of(args); err == nil {
			t.Errorf("%q is understood", args)
		}
	}
	list, err := of([]string{"LPUSH", "q", "a", "b"}, []string{"SELECT", "1"}, []string{"DEL", "q"},
		[]string{"SELECT", "0"}, []string{"MULTI"}, []string{"DEL", "q"})
	if err != nil || list.Of("a").Left != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	list, err = of([]string{"RPUSH", "q", "a", "b", "c", "a", "d"}, []string{"LREM", "q", "-1", "a"}, []string{"RPOP",
		"q"}, []string{"LTRIM", "q", "1", "1"})
	if err != nil || list.Of("a").Left != 0 || len(list.Of("a").Popped) != 2 || list.Of("b").Left != 1 ||
		list.Of("c").Left != 0 || list.Of("d").Left != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err = of([]string{"RPUSH", "q", "a"}, []string{"FLUSHALL"}); err != nil || list.Of("a").Left != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}
