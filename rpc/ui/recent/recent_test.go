package recent

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestReads: pages share a read, wait for a short one, and show the list before while a long one
// goes on.
func TestReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fresh, old = time.Second, 15 * time.Second
		q := New[*time.Time](fresh, old)
		reads, takes, fails := 0, 10*time.Millisecond, error(nil)
		get := func(token string) (*time.Time, time.Duration, error) {
			began := time.Now()
			list, err := q.Get(t.Context(), token, func(context.Context) (*time.Time, error) {
				reads++
				list := new(time.Now())
				time.Sleep(takes)
				return list, fails
			})
			return list, time.Since(began), err
		}
		first, took, err := get("a")
		if err != nil || took != takes || reads != 1 {
			t.Fatalf("the first: %v after %v, %d reads", err, took, reads)
		}
		if again, took, _ := get("a"); again != first || took != 0 {
			t.Errorf("at once again: another list, or %v", took)
		}
		if other, _, _ := get("b"); other == first || reads != 2 {
			t.Errorf("another token has the same list, %d reads", reads)
		}
		time.Sleep(fresh)
		if later, took, _ := get("a"); later == first || took != takes {
			t.Errorf("later: the old list, or after %v", took)
		}
		takes = time.Second
		time.Sleep(fresh)
		before, took, _ := get("a")
		if took != readWait || time.Since(*before) < fresh {
			t.Errorf("during a long read: a list of %v after %v", *before, took)
		}
		time.Sleep(takes)
		if fresh, took, _ := get("a"); fresh == before || took != 0 {
			t.Errorf("after the long read: the list before, or %v", took)
		}
		last, _, _ := get("a")
		q.Forget("a")
		if changed, took, _ := get("a"); changed == last || took != takes {
			t.Errorf("after a change: the list before it, or after %v", took)
		}
		time.Sleep(restMax + old)
		if _, took, _ := get("a"); took != takes {
			t.Errorf("a list that is too old is shown after %v", took)
		}
		fails = errors.New("no")
		if _, _, err := get("c"); !errors.Is(err, fails) {
			t.Errorf("a failure: %v", err)
		}
		fails, takes = nil, 0
		for i := range 2 * readsMax {
			if _, _, err := get(fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		if len(q.kept) > readsMax {
			t.Errorf("%d lists are kept, at most %d may be", len(q.kept), readsMax)
		}
	})
}

// TestReadsThatTakeLong: after a read none begins for a multiple of its time, within a bound.
func TestReadsThatTakeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, reads := New[int](time.Second, time.Minute), 0
		get := func(takes time.Duration) int {
			n, err := q.Get(t.Context(), "a", func(context.Context) (int, error) {
				reads++
				time.Sleep(takes)
				return reads, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		for i, takes := range []time.Duration{10 * time.Millisecond, 40 * time.Millisecond, 5 * time.Second} {
			fresh := min(max(time.Second, restFactor*takes), restMax)
			n := get(takes)
			if n == i { // a value of before; a read has begun
				time.Sleep(takes)
				n = get(0)
			}
			if n != i+1 {
				t.Errorf("a read of %v gave %d, want %d", takes, n, i+1)
			}
			time.Sleep(fresh - readWait - time.Millisecond)
			if again := get(0); again != n || reads != i+1 {
				t.Errorf("a read of %v: %d reads after nearly %v", takes, reads, fresh)
			}
			time.Sleep(2 * readWait)
		}
	})
}
