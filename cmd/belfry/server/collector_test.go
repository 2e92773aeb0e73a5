package server

import "testing"

func TestCollectorPercent(t *testing.T) {
	for _, test := range []struct {
		name string
		live uint64
		want int
	}{
		{"nothing known", 0, 800},
		{"a small heap gets its room at once", 4 << 20, 800},
		{"room for 128 MiB", 128 << 20, 100},
		{"in steps", 100 << 20, 125},
		{"a larger heap pays a quarter", 512 << 20, 25},
		{"the largest ones less", 100 << 30, 15},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := collectorPercent(test.live); got != test.want {
				t.Errorf("%d bytes: %d percent, want %d", test.live, got, test.want)
			}
		})
	}
}

func TestIdleness(t *testing.T) {
	t.Parallel()
	const garbage = restBytes + 1
	var idle idleness
	allocated := uint64(0)
	ticks := func(n int, bytes uint64, held uint64) (rests int) {
		for range n {
			allocated += bytes
			if idle.shouldRelease(heap{live: 1 << 30, held: 1<<30 + held, allocated: allocated}) {
				rests++
			}
		}
		return rests
	}
	if n := ticks(60, idleBytes, garbage); n != 0 {
		t.Errorf("a busy process gave memory back %d times", n)
	}
	if n := ticks(1, idleBytes-1, garbage); n != 0 {
		t.Error("a process that has been idle for a second gave memory back")
	}
	if n := ticks(1, idleBytes-1, garbage); n != 1 {
		t.Error("a process that has become idle kept its memory")
	}
	if n := ticks(60, 0, restBytes-1); n != 0 {
		t.Errorf("an idle process without garbage gave memory back %d times", n)
	}
	if n := ticks(6, 0, 2*garbage); n != 1 {
		t.Errorf("an idle process gave memory back %d times in six seconds, after a minute without; want once", n)
	}
	if n := ticks(60, 0, 2*garbage); n != 0 {
		t.Errorf("an idle process tried again %d times to give back what it cannot", n)
	}
	if n := ticks(10, 0, 3*garbage); n != 1 {
		t.Errorf("an idle process gave memory back %d times in ten seconds when it held more than before; want once", n)
	}
}

func TestReadHeap(t *testing.T) {
	t.Parallel()
	h := readHeap()
	if h.held == 0 || h.allocated == 0 {
		t.Errorf("the runtime says %+v", h)
	}
}
