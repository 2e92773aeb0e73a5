package node

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// keyedNode returns a node with a queue whose keys have these settings.
func keyedNode(t *testing.T, dir string, keys fsm.KeySettings) *Node {
	t.Helper()
	n := openNode(t, testConfig(t, dir))
	if err := n.Speak(fsm.KeysFormat); err != nil {
		t.Fatal(err)
	}
	do(t, n, 0, &fsm.Configure{Queue: "hooks", Partitions: 1, Version: 1, Settings: fsm.Settings{Keys: keys}})
	return n
}

func keyed(key, body string) *fsm.Put {
	p := put("hooks", body, 0)
	p.Key = key
	return p
}

// TestParkedCallsWaitForTheirKey: calls that are parked get the jobs of a key as fast as it gives them
// out, and neither they nor the leader try in vain meanwhile.
func TestParkedCallsWaitForTheirKey(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := keyedNode(t, dir, fsm.KeySettings{Concurrency: 1})
		do(t, n, 0, keyed("k1", "1"), keyed("k1", "2"), keyed("k1", "3"), keyed("k2", "4"))
		var polls []*poll
		for range 5 {
			polls = append(polls, startPoll(t, n, time.Minute, 1, "hooks"))
		}
		first, other := polls[0].grants(t)[0], polls[1].grants(t)[0]
		if first.Serial >= other.Serial || !polls[2].running() {
			t.Fatalf("granted %+v and %+v", first, other)
		}
		before := lastIndex(n)
		time.Sleep(20 * time.Second)
		if entries := lastIndex(n) - before; entries > 0 {
			t.Errorf("%d entries were logged while the key gave out nothing", entries)
		}
		do(t, n, 0, &fsm.Ack{Ref: refOf(first)})
		second := polls[2].grants(t)[0]
		if late := time.Since(polls[2].at); second.Serial != first.Serial+1 || late > time.Millisecond {
			t.Errorf("after the ack: %+v", second)
		}
		if !polls[3].running() {
			t.Error("a second job of the key was given out")
		}
		time.Sleep(30 * time.Second) // the calls wait; the lease of the second job lapses after a minute
		do(t, n, 0, &fsm.PauseKey{Queue: "hooks", Key: "k1"}, &fsm.Ack{Ref: refOf(second)})
		if !polls[3].running() {
			t.Error("a paused key gave out a job")
		}
		do(t, n, 0, &fsm.PauseKey{Queue: "hooks", Key: "k1", Resume: true})
		if third := polls[3].grants(t); len(third) != 1 {
			t.Errorf("after the pause: %+v", third)
		}
		polls[4].cancel()
		<-polls[4].ended
	})
}

// TestParkedCallsWaitForATokenOfTheirKey: a call gets a job of a key at the very time of its next token.
func TestParkedCallsWaitForATokenOfTheirKey(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := keyedNode(t, dir, fsm.KeySettings{Rate: fsm.KeyRate{Count: 1, Per: 10 * time.Second, Burst: 1}})
		do(t, n, 0, keyed("k", "1"), keyed("k", "2"), keyed("k", "3"))
		start := time.Now()
		for i := range 3 {
			p := startPoll(t, n, time.Minute, 1, "hooks")
			if grants := p.grants(t); len(grants) != 1 {
				t.Fatalf("job %d: %+v", i, grants)
			}
			if at, want := p.at.Sub(start), time.Duration(i)*10*time.Second; at < want || at > want+10*time.Millisecond {
				t.Errorf("job %d came after %v", i, at)
			}
		}
	})
}

// TestCallsGetKeysThatAreNotAwake: more keys than an entry wakes get a token at one time. Each call gets
// jobs at once until there are none left.
func TestCallsGetKeysThatAreNotAwake(t *testing.T) {
	const keys, most = fsm.StepMax + 904, 1000
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := keyedNode(t, dir, fsm.KeySettings{Rate: fsm.KeyRate{Count: 1, Per: 10 * time.Second, Burst: 1}})
		for from := 0; from < keys; from += most {
			var puts []fsm.Command
			for i := range most {
				key := fmt.Sprint("k", from+i)
				puts = append(puts, keyed(key, "1"), keyed(key, "2"))
			}
			do(t, n, 0, puts...)
		}
		for range keys / most {
			if grants := startPoll(t, n, time.Minute, most, "hooks").grants(t); len(grants) != most {
				t.Fatalf("%d first jobs", len(grants))
			}
		}
		time.Sleep(20 * time.Second)
		start := time.Now()
		for i := range keys / most {
			if grants := startPoll(t, n, time.Minute, most, "hooks").grants(t); len(grants) != most {
				t.Errorf("call %d got %d jobs", i, len(grants))
			}
		}
		if late := time.Since(start); late > 100*time.Millisecond {
			t.Errorf("the calls took %v", late)
		}
	})
}
