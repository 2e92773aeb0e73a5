package shardcall

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
)

// TestPutsAreSplit: what is refused for one namespace, or queue, is not for another, and each part
// has a request id of its own.
func TestPutsAreSplit(t *testing.T) {
	var commands []Command
	for i, queue := range []string{"a/1", "a/2", "b/1", "plain", "a/1", "other", "plain"} {
		commands = append(commands, Command{Shard: uint32(i / 5), Position: i, Command: &fsm.Put{Queue: queue}})
	}
	for _, tt := range []struct {
		by   string
		how  Split
		want []string
	}{
		{"namespace", ByNamespace, []string{"id a/1,a/2,a/1", "id b/1", "id plain", "id other,plain"}},
		{"queue", ByQueue, []string{
			"id#/queue/a/1 a/1,a/1", "id#/queue/a/2 a/2", "id#/queue/b/1 b/1", "id#/queue/plain plain", "id#/queue/other other",
			"id#/queue/plain plain",
		}},
	} {
		t.Run(tt.by, func(t *testing.T) {
			parts := func(commands []Command) (got []string) {
				for _, part := range splitBatch(commands, tt.how) {
					var names []string
					for _, c := range part {
						names = append(names, c.Command.(*fsm.Put).Queue)
					}
					got = append(got, tt.how.requestID("id", part)+" "+strings.Join(names, ","))
				}
				return got
			}
			if diff := cmp.Diff(tt.want, parts(commands)); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
			// Without some, which may be refused before when the call is repeated, the others are what they
			// were.
			if again := parts(commands[2:]); !slices.Equal(again[len(again)-1:], tt.want[len(tt.want)-1:]) ||
				again[0] != parts(commands[2:3])[0] {
				t.Errorf("the id of a part depends on the others: %q", again)
			}
		})
	}
}
