package schedules

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// many is a file of n schedules, which are called n100, n101 and so on.
func many(t *testing.T, n int) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("queue: q\nschedules:\n")
	for i := range n {
		fmt.Fprintf(&text, "  - {name: n%d, spec: {every: 1h}, job: {text: x}}\n", 100+i)
	}
	return clitest.WriteFile(t, "f.yaml", text.String())
}

// TestApplyWritesSeveralAtOnce: after the first change, 16 puts are under way at one time, and what
// became of each is said in the order of the file. A deletion waits for them.
func TestApplyWritesSeveralAtOnce(t *testing.T) {
	s, h := newStore(t, every("more", 1))
	var mu sync.Mutex
	puts, running, early := 0, 0, false
	together := make(chan struct{})
	h.Answer = func(r proto.Message) (proto.Message, error) {
		switch r.(type) {
		case *belfryv1.PutScheduleRequest:
			mu.Lock()
			if puts++; puts > 1 {
				if running++; running == writeAtOnce {
					close(together)
				}
				mu.Unlock()
				<-together
			} else {
				mu.Unlock()
			}
		case *belfryv1.DeleteScheduleRequest:
			mu.Lock()
			early = puts < 1+writeAtOnce
			mu.Unlock()
		}
		return s.answer(r)
	}
	got := h.Run("schedule", "apply", "-f", many(t, 1+writeAtOnce), "--prune", "--yes")
	_, said, _ := strings.Cut(got.Out, "1 to delete, 0 unchanged\n")
	var want strings.Builder
	for i := range 1 + writeAtOnce {
		fmt.Fprintf(&want, "created n%d in q, version 1\n", 100+i)
	}
	want.WriteString("deleted more in q\n17 created, 0 changed, 1 deleted, 0 unchanged\n")
	if got.Code != 0 || said != want.String() || early {
		t.Errorf("%+v, said:\n%s", got, said)
	}
}

// TestApplyFirstFailure: the error of the first change in the order of the file decides, whichever came
// first, and what was not under way when all was to end is not tried.
func TestApplyFirstFailure(t *testing.T) {
	s, h := newStore(t, every("more", 1))
	s.before = refusePuts("n1", connect.CodeResourceExhausted, "QUOTA", "too many schedules")
	file := many(t, 40)
	got := h.Run("schedule", "apply", "-f", file, "--yes")
	if got.Code != cli.CodeExhausted || strings.Count(got.Err, "QUOTA: too many schedules") != 40 {
		t.Errorf("%+v", got)
	}
	s.before = refusePuts("n101", connect.CodePermissionDenied, "OTHER", "not by a server of ours")
	got = h.Run("schedule", "apply", "-f", file, "--prune", "--yes")
	if got.Code != cli.CodePartly || !strings.Contains(got.Out, "created n100 in q") || len(s.changes) > 1+writeAtOnce ||
		!strings.Contains(got.Err, "belfry: n139 in q: not tried\nbelfry: more in q: not tried\n") {
		t.Errorf("%+v, %d changes", got, len(s.changes))
	}
}
