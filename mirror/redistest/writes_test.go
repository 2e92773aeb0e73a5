package redistest

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestWrites: what changed something is told, in order, over a kill, and what did not is not.
func TestWrites(t *testing.T) {
	s := Start(t, WithWrites())
	do := func(args ...any) {
		t.Helper()
		if err := s.Client().Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	do("RPUSH", "list", "a\r\n*1", "b", "c")
	do("LLEN", "list")
	do("EVAL", "redis.call('SADD', KEYS[1], 'x') return redis.call('LTRIM', KEYS[2], 1, -1)", 2, "set", "list")
	s.Restart()
	do("BLPOP", "list", 1)
	do("SADD", "set", "x")
	want := [][]string{
		{"SELECT", "0"},
		{"RPUSH", "list", "a\r\n*1", "b", "c"},
		{"MULTI"},
		{"SADD", "set", "x"},
		{"LTRIM", "list", "1", "-1"},
		{"EXEC"},
		{"SELECT", "0"},
		{"LPOP", "list"},
	}
	if diff := cmp.Diff(want, s.Writes()); diff != "" {
		t.Errorf("it wrote (-want +got):\n%s", diff)
	}
}

// TestFreeze: a frozen server does not answer, and does what it was told when it thaws.
func TestFreeze(t *testing.T) {
	s := Start(t)
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Client().Ping(ctx).Err(); err == nil {
		t.Error("it answers")
	}
	s.Resume()
	if err := s.Client().Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}
