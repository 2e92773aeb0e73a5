package fsm

import "testing"

// TestRanks: a lower priority has a lower rank, and the rank of each is that of the priority it stands for.
func TestRanks(t *testing.T) {
	for _, tc := range []struct {
		priority int64
		rank     uint32
		counts   int64 // as this priority
	}{
		{-1 << 63, 0, -128}, {-128, 0, -128}, {0, 128, 0}, {127, 255, 127}, {128, 256, 128}, {1024, 1152, 1024},
		{PriorityMax - 129, PriorityMax - 1, PriorityMax - 129}, {PriorityMax - 128, PriorityMax, PriorityMax},
		{PriorityMax, PriorityMax, PriorityMax}, {1<<63 - 1, PriorityMax, PriorityMax},
	} {
		if got := RankOf(tc.priority); got != tc.rank || PriorityOf(got) != tc.counts {
			t.Errorf("priority %d has rank %d and counts as %d, want %d and %d", tc.priority, got, PriorityOf(got), tc.rank,
				tc.counts)
		}
	}
}

// TestNoUsesTakeNoMemory: jobs that are not FIFO are read without an allocation for what they do not have.
func TestNoUsesTakeNoMemory(t *testing.T) {
	var kept *Uses
	if n := testing.AllocsPerRun(10, func() { kept = Uses{}.OrNil() }); n != 0 || kept != nil {
		t.Errorf("%v allocations, %v", n, kept)
	}
	if kept = (Uses{Kicks: 1}).OrNil(); kept == nil || kept.Kicks != 1 {
		t.Errorf("%v is left of one kick", kept)
	}
}

// TestListPlace: a FIFO job is listed by its put while it is READY, and by its death once it is DEAD.
func TestListPlace(t *testing.T) {
	job := Job{Serial: 7, Due: 30, Created: 10, Died: 40, Fence: 9}
	for _, tc := range []struct {
		fifo  bool
		state State
		want  Cursor
	}{
		{false, Ready, Cursor{30, 7}}, {false, Dead, Cursor{30, 7}}, {true, Delayed, Cursor{30, 7}},
		{true, Reserved, Cursor{30, 7}}, {true, Ready, Cursor{10, 7}}, {true, Dead, Cursor{40, 9}},
	} {
		job.FIFO, job.State = tc.fifo, tc.state
		if got := job.ListPlace(); got != tc.want {
			t.Errorf("FIFO %v in state %d: %+v, want %+v", tc.fifo, tc.state, got, tc.want)
		}
	}
}
