package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestEveryCommandAnswersInJSON runs the command lines of TestCommands with -o json: one line, valid, with the server's names
// and without what is for people. A command whose output has another form is left out by name.
func TestEveryCommandAnswersInJSON(t *testing.T) {
	for _, test := range slices.Concat(putCases(), reserveCases(), holderCases(), jobCases(), queueCases()) {
		if slices.Contains(test.args, "--body") {
			continue // bytes
		}
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t, always(test.answer))
			h.system.in = strings.NewReader(test.stdin)
			got := h.run(append(test.args, "-o", "json")...)
			if got.code != 0 || got.err != "" || strings.Count(got.out, "\n") != 1 || !json.Valid([]byte(got.out)) {
				t.Fatalf("got %+v, want one line of JSON", got)
			}
			if strings.Contains(got.out, "JOB_STATE_") {
				t.Errorf("an enum has its prefix: %s", got.out)
			}
			// What was printed reads back as what the server answered.
			again := proto.Clone(test.answer)
			proto.Reset(again)
			if err := decodeJSON([]byte(got.out), again); err != nil {
				t.Fatalf("reading %s: %v", got.out, err)
			}
			want, err := encodeJSON(test.answer)
			if err != nil {
				t.Fatal(err)
			}
			if got.out != string(want)+"\n" {
				t.Errorf("printed %s, want %s", got.out, want)
			}
		})
	}
}

// TestJSONIsReadAsTheServerReadsIt takes what curl users write.
func TestJSONIsReadAsTheServerReadsIt(t *testing.T) {
	for _, text := range []string{
		`{"queue":"a","delay":"1h30m"}`, `{"queue":"a","delay":5400}`, `{"queue":"a","delay":"5400s"}`,
	} {
		request := &belfryv1.PutRequest{}
		if err := decodeJSON([]byte(text), request); err != nil || request.GetDelay().AsDuration().Minutes() != 90 {
			t.Errorf("%s is %v, %v; want a delay of 90 minutes", text, request, err)
		}
	}
	err := decodeJSON([]byte(`{"queue":"a","dealy":"5m"}`), &belfryv1.PutRequest{})
	if err == nil || !strings.Contains(err.Error(), `did you mean "delay"`) {
		t.Errorf("a misspelt field: %v, want the right one named", err)
	}
}
