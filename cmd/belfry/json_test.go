package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	"google.golang.org/protobuf/proto"
)

// TestEveryCommandAnswersInJSON runs the command lines of TestCommands with -o json: one line,
// valid, with the server's names and without what is for people. A command whose output has another
// form is left out by name.
func TestEveryCommandAnswersInJSON(t *testing.T) {
	for _, test := range slices.Concat(putCases(), existingCases(), reserveCases(), holderCases(), jobCases(),
		queueCases()) {
		if slices.Contains(test.args, "--body") {
			continue // bytes
		}
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t, clitest.Always(test.answer))
			h.System.In = strings.NewReader(test.stdin)
			got := h.Run(append(test.args, "-o", "json")...)
			if got.Code != 0 || got.Err != "" || strings.Count(got.Out, "\n") != 1 || !json.Valid([]byte(got.Out)) {
				t.Fatalf("got %+v, want one line of JSON", got)
			}
			if strings.Contains(got.Out, "JOB_STATE_") {
				t.Errorf("an enum has its prefix: %s", got.Out)
			}
			// What was printed reads back as what the server answered.
			again := proto.Clone(test.answer)
			proto.Reset(again)
			if err := cli.DecodeJSON([]byte(got.Out), again); err != nil {
				t.Fatalf("reading %s: %v", got.Out, err)
			}
			want, err := cli.EncodeJSON(test.answer)
			if err != nil {
				t.Fatal(err)
			}
			if got.Out != string(want)+"\n" {
				t.Errorf("printed %s, want %s", got.Out, want)
			}
		})
	}
}
