package catalog

import (
	"strings"
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

// TestMinVotersIsOnlyRaised, unless it is said that it is to be lowered; never above the
// replication factor, and not in a cluster that speaks the first format.
func TestMinVotersIsOnlyRaised(t *testing.T) {
	m := newMachine()
	for _, step := range []struct {
		name   string
		format fsm.Format
		settle Settings
		lower  bool
		want   string // what is wrong with it
		least  int    // what holds then
	}{
		{"in the first format", 1, Settings{MinVoters: 2}, false, "min-voters: the cluster speaks format 1", 1},
		{"raised", 2, Settings{MinVoters: 2}, false, "", 2},
		{"the same", 2, Settings{MinVoters: 2}, false, "", 2},
		{"another setting", 2, Settings{Grace: DefaultGrace}, false, "", 2},
		{"lowered without a word", 2, Settings{MinVoters: 1}, false, "min-voters: have 1, and 2 holds", 2},
		{"more than voters are wanted", 2, Settings{MinVoters: 4}, false,
			"min-voters: have 4, want 1 to the replication factor, which is 3", 2},
		{"with more voters", 2, Settings{Factor: 5, MinVoters: 4}, false, "", 4},
		{"fewer voters than that", 2, Settings{Factor: 3}, false,
			"replication factor: have 3, want at least min-voters, which is 4", 4},
		{"more than there can be", 2, Settings{MinVoters: 8}, false, "min-voters: have 8", 4},
		{"lowered", 2, Settings{MinVoters: 1}, true, "", 1},
		{"its neighbour in the first format", 1, Settings{NoAutoCreate: new(true)}, false,
			"no-auto-create: the cluster speaks format 1", 1},
	} {
		m.state.Format = step.format
		c := command{Format: step.format, Settle: &step.settle, Lower: step.lower}
		err := m.check(&c)
		if (err == nil) != (step.want == "") || err != nil && !strings.Contains(err.Error(), step.want) {
			t.Errorf("%s: %v, want %q", step.name, err, step.want)
		}
		if err == nil {
			apply(t, m, c)
		}
		if got := m.state.Settings.withDefaults().MinVoters; got != step.least {
			t.Errorf("%s: %d holds, want %d", step.name, got, step.least)
		}
	}
	if err := m.check(&command{Format: 2, Settle: &Settings{Factor: 3}, Lower: true}); err == nil {
		t.Error("nothing was lowered")
	}
}
