package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/google/go-cmp/cmp"
)

// TestARepeatedRequestGetsItsFirstAnswer: across changes by others, a deletion and a restart, for 5
// minutes.
func TestARepeatedRequestGetsItsFirstAnswer(t *testing.T) {
	dir := t.TempDir() // outside the bubble: it is removed after the node has ended
	synctest.Test(t, func(t *testing.T) {
		_, c, end := open(t, dir)
		made, err := c.ForRequest("r1", "x").CreateQueue(t.Context(), "orders", 2, fsm.Settings{MaxJobs: 10})
		if err != nil {
			t.Fatal(err)
		}
		changed, err := c.ForRequest("r2", "y").UpdateQueue(t.Context(), "orders", maxJobs(20))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.UpdateQueue(t.Context(), "orders", maxJobs(30)); err != nil {
			t.Fatal(err)
		}
		repeat := func(when string) {
			t.Helper()
			if q, err := c.ForRequest("r1", "x").CreateQueue(t.Context(), "orders", 2, fsm.Settings{MaxJobs: 10}); err != nil ||
				q.Version != made.Version || q.Settings.MaxJobs != 10 {
				t.Errorf("%s: create answers %+v, %v, want %+v", when, q, err, made)
			}
			if q, err := c.ForRequest("r2", "y").UpdateQueue(t.Context(), "orders", maxJobs(20)); err != nil ||
				!cmp.Equal(q, changed) {
				t.Errorf("%s: update answers %+v, %v, want %+v", when, q, err, changed)
			}
		}
		repeat("at once")
		if q, _ := c.Queue("orders"); q.Settings.MaxJobs != 30 {
			t.Errorf("a repeat changed the queue to %+v", q)
		}
		if err := c.DeleteQueue(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		repeat("after the deletion")
		end()
		_, c, _ = open(t, dir)
		repeat("after the restart")
		var misuse *RequestError
		if _, err := c.ForRequest("r2", "z").UpdateQueue(t.Context(), "orders", maxJobs(1)); !errors.As(err, &misuse) ||
			misuse.OtherContent() != "r2" {
			t.Errorf("other content: %v, want a RequestError", err)
		}
		time.Sleep(requestWindow + time.Second)
		if q, err := c.ForRequest("r1", "x").CreateQueue(t.Context(), "orders", 1, fsm.Settings{}); err != nil ||
			q.Version <= changed.Version {
			t.Errorf("after the window: %+v, %v, want a new queue", q, err)
		}
	})
}

func onceCreate(id, content, name string, at time.Duration) command {
	return command{Create: &queueRecord{Name: name, Partitions: 1},
		Request: &request{ID: id, Content: content, At: int64(at)}}
}

func TestMachineRemembersRequests(t *testing.T) {
	tests := []struct {
		name       string
		last       command
		want       verdict
		replayed   bool
		remembered int
	}{
		{"a repeat", onceCreate("r", "x", "a", time.Minute), done, true, 1},
		{"other content", onceCreate("r", "y", "a", time.Minute), misused, false, 1},
		{"another request", onceCreate("s", "x", "b", time.Minute), done, false, 2},
		{"a refused one", onceCreate("s", "x", "a", time.Minute), exists, false, 1},
		{"one after the window", onceCreate("r", "x", "b", requestWindow+time.Second), done, false, 1},
		{"a clock that went back", onceCreate("r", "x", "a", -time.Hour), done, true, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine()
			out := apply(t, m, onceCreate("r", "x", "a", 0), tt.last)
			if out.verdict != tt.want || out.replayed != tt.replayed || len(m.state.Answers) != tt.remembered ||
				len(m.byID) != tt.remembered {
				t.Errorf("outcome %+v; %d answers, %d indexed", out, len(m.state.Answers), len(m.byID))
			}
			restored, err := m.Restore(bytes.NewReader(m.encode()))
			if err != nil || restored.Digest() != m.Digest() || len(restored.(*machine).byID) != tt.remembered {
				t.Errorf("restored: %v", err)
			}
		})
	}
}

func TestMachineForgetsTheOldestRequests(t *testing.T) {
	m := newMachine()
	for i := range answersMax + 5 {
		m.once(&request{ID: fmt.Sprint(i), At: int64(i)}, func() outcome {
			return m.configure(uint64(i)+1, &configuration{Name: "a", Version: uint64(i)})
		})
	}
	if len(m.state.Answers) != answersMax || len(m.byID) != answersMax || m.byID["4"] != nil || m.byID["5"] == nil {
		t.Errorf("%d answers, %d indexed", len(m.state.Answers), len(m.byID))
	}
}
