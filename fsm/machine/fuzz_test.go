package machine

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/fsmtest"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func FuzzParseQuery(f *testing.F) {
	for _, q := range fsmtest.EveryQuery() {
		f.Add(codec.AppendQueryIn(nil, fsm.LatestFormat, q))
	}
	m := populated(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := codec.ParseQuery(b)
		if err != nil {
			return
		}
		if again, err := codec.ParseQuery(codec.AppendQueryIn(nil, fsm.LatestFormat, q)); err != nil || !cmp.Equal(q, again) {
			t.Fatalf("the query does not survive encoding: %+v, %v", again, err)
		}
		r := m.Answer(q, 0)
		if again, err := codec.ParseReading(codec.AppendReadingIn(nil, fsm.LatestFormat, &r)); err != nil ||
			!cmp.Equal(r, again, cmpopts.EquateEmpty()) {
			t.Fatalf("the reading does not survive encoding: %+v, %v", again, err)
		}
	})
}

func FuzzParseReading(f *testing.F) {
	reading := fsmtest.EveryReading()
	f.Add(codec.AppendReadingIn(nil, fsm.LatestFormat, &reading))
	reading = fsm.Reading{Kind: fsm.KindSchedulesQuery, Schedules: reading.Schedules}
	f.Add(codec.AppendReadingIn(nil, fsm.LatestFormat, &reading))
	for _, q := range []fsm.Query{&fsm.JobQuery{
		Queue: "orders", ID: "order-42",
	}, &fsm.QueuesQuery{Max: 9}, &fsm.ListQuery{Queue: "orders", State: fsm.Dead, Max: 9}} {
		r := populated(f).Answer(q, 0)
		f.Add(codec.AppendReadingIn(nil, fsm.LatestFormat, &r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := codec.ParseReading(b)
		if err != nil {
			return
		}
		if again, err := codec.ParseReading(codec.AppendReadingIn(nil, fsm.LatestFormat, &r)); err != nil ||
			!cmp.Equal(r, again) {
			t.Fatalf("the reading does not survive encoding: %+v, %v", again, err)
		}
	})
}

func TestNegativeTimesCountAsZero(t *testing.T) {
	entry := codec.AppendEntry(nil, 5, [][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: []fsm.Command{
		&fsm.Put{
			Queue: "q", Partitions: 1, Given: fsm.GivenDelay | fsm.GivenTTR | fsm.GivenTTL | fsm.GivenRetryDelays, Delay: -1,
			TTR: -1, TTL: -1, RetryDelays: []time.Duration{-1},
		},
		&fsm.Put{Queue: "q", Partitions: 1, Given: fsm.GivenDueAt, DueAt: -1},
		&fsm.Reserve{TTR: -1}, &fsm.Nack{Delay: -1}, &fsm.Release{Delay: -1}, &fsm.Extend{TTR: -1}, &fsm.Reschedule{
			Delay: -1, DueAt: -1,
		}, &fsm.Lead{Grace: -1},
		&fsm.Configure{Settings: fsm.Settings{
			TTR: -1, DedupWindow: -1, OverduePeriod: -1, OverdueAfter: -1, PausedUntil: -1,
		}},
	}})})
	if _, err := New(fsm.Config{}).Apply(1, entry); err != nil {
		t.Error(err)
	}
}
