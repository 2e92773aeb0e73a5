package agenda

import (
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

// TestAgenda: the first entry is the earliest, those of one time come by Seq, and an item has one
// entry at most.
func TestAgenda(t *testing.T) {
	a := New()
	one, two, three := Item{1, 30}, Item{2, 20}, Item{3, 10}
	for _, step := range []struct {
		item     Item
		from, to fsm.Time
		want     Entry
	}{
		{two, 0, 5, Entry{5, two}},
		{three, 0, 5, Entry{5, two}},
		{one, 0, 7, Entry{5, two}},
		{one, 7, 5, Entry{5, one}},
		{one, 5, 5, Entry{5, one}},
		{one, 5, 9, Entry{5, two}},
		{two, 5, 0, Entry{5, three}},
		{two, 0, 0, Entry{5, three}},
		{three, 5, 10, Entry{9, one}},
		{one, 9, 0, Entry{10, three}},
		{three, 10, 0, Entry{}},
	} {
		a.Move(step.item, step.from, step.to)
		if got, ok := a.First(); got != step.want || ok != (step.want.At != 0) {
			t.Errorf("after item %d went from %d to %d, the first entry is %+v, want %+v",
				step.item.Seq, step.from, step.to, got, step.want)
		}
	}
}
