package batching

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestBatchGate: batches that arrive during a round leave together in the next one.
func TestBatchGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gate Gate
		var mu sync.Mutex
		var began []string
		pass := func(name string, round uint64) {
			go func() {
				round := gate.Pass(round)
				mu.Lock()
				defer mu.Unlock()
				began = append(began, fmt.Sprint(name, round))
			}()
			synctest.Wait()
		}
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if slices.Sort(began); !slices.Equal(began, want) {
				t.Errorf("began %v, want %v", began, want)
			}
			began = nil
		}
		pass("puts", 0)
		expect("puts1")
		pass("acks", 0)
		pass("polls", 0)
		expect()
		pass("puts", 1) // a batch that ends a round joins the next one
		expect("acks2", "polls2", "puts2")
		pass("acks", 2)
		gate.Leave(2)
		expect()
		gate.Leave(2)
		expect("acks3")
		pass("puts", 0)
		time.Sleep(HoldMax)
		expect()
		time.Sleep(time.Nanosecond)
		expect("puts4") // the earlier round takes too long
		pass("polls", 0)
		pass("acks", 3)
		expect() // and its end does not end the next one
		gate.Leave(4)
		expect("acks5", "polls5")
		gate.Leave(5)
		pass("puts", 5)
		expect("puts6") // the earlier rounds do not count
	})
}
