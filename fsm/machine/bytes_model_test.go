package machine_test

import (
	"strings"
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

func TestModelScenarioReserveBytes(t *testing.T) {
	t.Parallel()
	within := func(bytes uint64, queues ...string) *fsm.Reserve {
		return &fsm.Reserve{Queues: queues, Max: 9, Bytes: bytes}
	}
	// sized puts a job of so many bytes.
	sized := func(n int) *fsm.Put { return put("", body(strings.Repeat("x", n))) }
	first := func(serial, fence uint64) fsm.Grant { return lease(serial, fence, 0, leaseEnd) }
	three := createdReady(1, 3, 0)
	runScenarios(t, []scenario{
		{name: "an exact fit is granted", steps: []step{
			{do: do(sized(3), sized(3), sized(3)), want: three},
			{do: do(within(6, "q")), want: results(granted(first(1, 4), first(2, 5)))},
		}},
		{name: "with one byte less it is not, and the job waits for the next reserve", steps: []step{
			{do: do(sized(3), sized(3), sized(3)), want: three},
			{do: do(within(5, "q"), within(6, "q")), want: results(granted(first(1, 4)), granted(first(2, 5), first(3, 6)))},
		}},
		{name: "no bound is none", steps: []step{
			{do: do(sized(3), sized(30_000), sized(40_000)), want: three},
			{do: do(within(0, "q")), want: results(granted(first(1, 4), first(2, 5), first(3, 6)))},
		}},
		{name: "the first job is granted whatever its size, and then no other that has any", steps: []step{
			{do: do(sized(10), sized(1), sized(1)), want: three},
			{do: do(within(9, "q"), within(1, "q")), want: results(granted(first(1, 4)), granted(first(2, 5)))},
		}},
		{name: "the first job that does not fit ends it, though a later one would fit", steps: []step{
			{do: do(sized(3), sized(5), sized(1)), want: three},
			{do: do(within(4, "q")), want: results(granted(first(1, 4)))},
		}},
		{name: "jobs without bytes fit always", steps: []step{
			{do: do(sized(4), sized(0), sized(1)), want: three},
			{do: do(within(4, "q")), want: results(granted(first(1, 4), first(2, 5)))},
		}},
		{name: "max counts beside it", steps: []step{
			{do: do(sized(1), sized(1), sized(1)), want: three},
			{do: do(&fsm.Reserve{Queues: []string{"q"}, Max: 2, Bytes: 100}), want: results(granted(first(1, 4), first(2, 5)))},
		}},
		{name: "bytes are the body, the chosen id and the headers", steps: []step{
			{do: do(sized(1), put("ab", body("1"), func(p *fsm.Put) {
				p.Headers = []fsm.Header{{Name: "n", Value: "12"}}
			}), sized(1)), want: three},
			{do: do(within(6, "q"), within(7, "q")), want: results(granted(first(1, 4)), granted(first(2, 5), first(3, 6)))},
		}},
	})
}

func TestModelScenarioReserveBytesBounds(t *testing.T) {
	t.Parallel()
	within := func(bytes uint64, queues ...string) *fsm.Reserve {
		return &fsm.Reserve{Queues: queues, Max: 9, Bytes: bytes}
	}
	// sized puts a job of so many bytes, sizedIn does so into another queue.
	sized := func(n int) *fsm.Put { return put("", body(strings.Repeat("x", n))) }
	sizedIn := func(queue string, n int, options ...func(*fsm.Put)) *fsm.Put {
		return put("", append(options, into(queue, 0, 1), body(strings.Repeat("x", n)))...)
	}
	first := func(serial, fence uint64) fsm.Grant { return lease(serial, fence, 0, leaseEnd) }
	firstOf := func(queue string, serial, fence uint64) fsm.Grant {
		g := first(serial, fence)
		g.Queue = queue
		return g
	}
	three := createdReady(1, 3, 0)
	runScenarios(t, []scenario{
		{name: "a job that expires on the way has no bytes and is not the first", steps: []step{
			{
				do:   do(put("", body("123456789"), ttl(0)), sized(5), sized(5), within(10, "q")),
				want: append(createdReady(1, 3, 0), granted(first(2, 4), first(3, 5))),
			},
		}},
		{name: "several queues share the bound", steps: []step{
			{do: do(sized(3), sizedIn("r", 2), sizedIn("r", 2)), want: three},
			{do: do(within(5, "q", "r")), want: results(granted(first(1, 4), firstOf("r", 2, 5)))},
		}},
		{name: "the first job of all is not asked, whatever queue it is in", steps: []step{
			{
				do:   do(&fsm.Open{Queue: "q", Partitions: 1}, sizedIn("r", 9), sizedIn("s", 1)),
				want: append(results(opened()), createdReady(1, 2, 0)...),
			},
			{do: do(within(1, "q", "r", "s")), want: results(granted(firstOf("r", 1, 3)))},
		}},
		{name: "the reserve ends there: queues after that are neither asked nor settled", steps: []step{
			{
				do:   do(sized(3), sizedIn("r", 5), sizedIn("s", 0, delay(ms))),
				want: results(created(1, fsm.Ready, 0), created(2, fsm.Ready, 0), created(3, fsm.Delayed, ms)),
			},
			{
				at: ms, do: do(within(4, "q", "r", "s")), want: results(granted(lease(1, 4, 0, ms+leaseEnd))),
				look: deadlineIs(after(ms)),
			},
		}},
		{name: "the bound is part of what a request says", steps: []step{
			{do: do(sized(3), sized(3), sized(3)), want: three},
			{id: "r", do: do(within(3, "q")), want: results(granted(first(1, 4)))},
			{id: "r", do: do(within(4, "q")), want: results(code(fsm.Invalid))},
		}},
	})
}
