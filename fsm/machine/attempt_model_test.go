package machine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
)

// work is what a job says of its holder and its attempts.
type work struct {
	Client   string
	Leased   fsm.Time
	Attempts []fsm.Attempt
}

// works checks the work of job "a" as readers see it at a time.
func works(at time.Duration, want work) func(t *testing.T, s shard) {
	return func(t *testing.T, s shard) {
		t.Helper()
		j, ok := s.Job("q", "a", after(at))
		got := work{j.Client, j.Leased, j.Attempts}
		if diff := cmp.Diff(want, got); !ok || diff != "" {
			t.Errorf("job a, held %v (-want +got):\n%s", ok, diff)
		}
	}
}

// retry is a grant of an attempt other than the first.
func retry(g fsm.Grant, attempt uint32) fsm.Grant {
	g.Attempt = attempt
	return g
}

// failed is an attempt of worker w.
func failed(number uint32, began, ended time.Duration, text string) fsm.Attempt {
	return fsm.Attempt{Number: number, Began: after(began), Ended: after(ended), Client: "w", Error: text}
}

func TestModelScenarioAttempts(t *testing.T) {
	t.Parallel()
	second := time.Second
	lapsed := fsm.Attempt{Number: 1, Began: start, Ended: after(leaseEnd), Lapsed: true, Client: "w"}
	failing := func(serial, fence uint64, text string) fsm.Command {
		return &fsm.Nack{Ref: ref(serial, fence), DelayGiven: true, Error: text}
	}
	long := "e" + strings.Repeat("é", 200) // byte 256 is in the middle of a letter
	runScenarios(t, []scenario{
		{name: "a job knows who holds it, until it is given back", steps: []step{
			{format: 3, client: "w", do: do(put("a"), reserve(1)),
				want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd))),
				look: works(0, work{Client: "w", Leased: start})},
			{at: second, client: "other", do: do(&fsm.Extend{Ref: ref(1, 2)}),
				want: results(fsm.Result{Until: after(second + leaseEnd)}), look: works(second, work{Client: "w", Leased: start})},
			{at: second, do: do(&fsm.Release{Ref: ref(1, 2)}), want: results(waiting(fsm.Ready, 0)),
				look: works(second, work{})},
			{at: second, do: do(reserve(1)), want: results(granted(lease(1, 3, 0, second+leaseEnd))),
				look: works(second, work{Leased: after(second)})},
		}},
		{name: "the last three failures are remembered, also through death and redrive", steps: []step{
			{format: 3, client: "w", do: do(put("a"), reserve(1)),
				want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd)))},
			{at: leaseEnd, client: "w", do: do(reserve(1)),
				want: results(granted(retry(lease(1, 3, leaseEnd, 2*leaseEnd), 2))),
				look: works(leaseEnd, work{Client: "w", Leased: after(leaseEnd), Attempts: []fsm.Attempt{lapsed}})},
			{at: leaseEnd + second, client: "w", do: do(failing(1, 3, "smtp 421"), reserve(1)),
				want: results(waiting(fsm.Ready, leaseEnd+second),
					granted(retry(lease(1, 4, leaseEnd+second, 2*leaseEnd+second), 3))),
				look: works(leaseEnd+second, work{Client: "w", Leased: after(leaseEnd + second), Attempts: []fsm.Attempt{
					lapsed, failed(2, leaseEnd, leaseEnd+second, "smtp 421"),
				}})},
			{at: leaseEnd + second, do: do(&fsm.Nack{Ref: ref(1, 4), Dead: true}), want: results(fsm.Result{State: fsm.Dead})},
			{at: leaseEnd + second, client: "w", do: do(&fsm.Redrive{Queue: "q"}, reserve(1)), want: results(
				fsm.Result{Count: 1}, granted(lease(1, 5, leaseEnd+second, 2*leaseEnd+second)))},
			{at: leaseEnd + second, do: do(failing(1, 5, long)), want: results(waiting(fsm.Ready, leaseEnd+second)),
				look: works(leaseEnd+second, work{Attempts: []fsm.Attempt{
					failed(2, leaseEnd, leaseEnd+second, "smtp 421"), failed(3, leaseEnd+second, leaseEnd+second, ""),
					failed(1, leaseEnd+second, leaseEnd+second, long[:255]),
				}})},
		}},
		{name: "a reader sees a lapse before an entry settles it", steps: []step{
			{format: 3, client: "w", do: do(put("a"), reserve(1)),
				want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd))),
				look: works(leaseEnd, work{Attempts: []fsm.Attempt{lapsed}})},
		}},
		{name: "earlier formats note nothing, and a lease of one fails without a beginning", steps: []step{
			{do: do(put("a"), reserve(1)),
				want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd))), look: works(0, work{})},
			{do: do(failing(1, 2, "early"), reserve(1)),
				want: results(waiting(fsm.Ready, 0), granted(retry(lease(1, 3, 0, leaseEnd), 2))), look: works(0, work{})},
			{format: 3, at: second, do: do(failing(1, 3, "late")), want: results(waiting(fsm.Ready, second)),
				look: works(second, work{Attempts: []fsm.Attempt{{Number: 2, Ended: after(second), Error: "late"}}})},
		}},
	})
}
