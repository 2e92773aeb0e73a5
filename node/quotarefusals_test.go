package node

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/outcome"
)

// TestStatsOfSpaces: what a namespace uses of its quota, and how often it was refused for which
// limit.
func TestStatsOfSpaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := limitOf(admit.JobsLimit, 10, 2)
		quota.Quota[admit.PutRate], quota.Granted[admit.PutRate] = 3000, 3000
		n := openLimited(t, quota)
		do(t, n, 0, put("t/q", "1", 0), put("t/q", "2", 0), put("plain", "3", 0))
		do(t, n, 0, &fsm.Reserve{Queues: []string{"t/q"}, Max: 1, TTR: 1})
		for range 3 {
			if err := tryPut(t, n, put("t/q", "4", 0)); !errors.Is(err, outcome.ErrQuota) {
				t.Fatal(err)
			}
		}
		got := n.Stats().Shards[0]
		if diff := cmp.Diff(map[string]admit.Amounts{"t": {admit.JobsLimit: 3}}, got.QuotaRefusals); diff != "" {
			t.Errorf("refusals (-want +got):\n%s", diff)
		}
		var usage fsm.Usage
		s, err := n.replicaOf(0)
		if err != nil {
			t.Fatal(err)
		}
		s.view(func(m *machine.Machine, _ fsm.Time) { usage = m.UsageOf("t") })
		want := admit.Amounts{admit.JobsLimit: 2, admit.BytesLimit: usage.Bytes, admit.LeasesLimit: 1,
			admit.PutRate: got.Spaces["t"][admit.PutRate]}
		if diff := cmp.Diff(map[string]admit.Amounts{"t": want}, got.Spaces); diff != "" || usage.Bytes == 0 {
			t.Errorf("what is used (-want +got):\n%s", diff)
		}
	})
}

// TestSchedulesAtTheQuota: a namespace that has used up its bytes may put a schedule that it has again,
// and make it smaller, but not larger. What is on its way counts as a whole.
func TestSchedulesAtTheQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, limitOf(admit.BytesLimit, 10, 10))
		if err := n.Speak(fsm.KeysFormat); err != nil {
			t.Fatal(err)
		}
		of := func(name string, bytes int) *fsm.PutSchedule {
			job := fsm.Put{Body: make([]byte, bytes-len(name))}
			return &fsm.PutSchedule{Queue: "t/q", Partitions: 1, Name: name, Next: 1 << 62, Job: job}
		}
		for _, step := range []struct {
			puts    []fsm.Command
			refused bool
		}{
			{[]fsm.Command{of("s", 11)}, false}, // below the limit, a request passes as a whole
			{[]fsm.Command{of("s", 11)}, false},
			{[]fsm.Command{of("s", 12)}, true},
			{[]fsm.Command{of("other", 5)}, true},
			{[]fsm.Command{of("s", 11), put("t/q", "1", 0)}, true},
			{[]fsm.Command{&fsm.DeleteSchedule{Queue: "t/q", Name: "s"}, of("s", 11)}, false},
			{[]fsm.Command{of("s", 10)}, false},
			{[]fsm.Command{of("s", 11)}, true},
			{[]fsm.Command{of("s", 10), of("s", 9)}, false},
			{[]fsm.Command{of("s", 11)}, false},
		} {
			before := lastIndex(n)
			err := tryPut(t, n, step.puts...)
			if step.refused {
				expectRefusal(t, n, err, admit.BytesLimit, before)
			} else if err != nil {
				t.Error(err)
			}
		}
		defer taker(t, n, of("s", 11)).Release()
		if used, _ := shortOf(n, admit.BytesLimit); used != 22 {
			t.Errorf("%d bytes are used, with a put that may follow a deletion; want 22", used)
		}
	})
}
