package cli

import (
	"strings"
	"testing"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestJSONIsReadAsTheServerReadsIt takes what curl users write.
func TestJSONIsReadAsTheServerReadsIt(t *testing.T) {
	for _, text := range []string{
		`{"queue":"a","delay":"1h30m"}`, `{"queue":"a","delay":5400}`, `{"queue":"a","delay":"5400s"}`,
	} {
		request := &belfryv1.PutRequest{}
		if err := DecodeJSON([]byte(text), request); err != nil || request.GetDelay().AsDuration().Minutes() != 90 {
			t.Errorf("%s is %v, %v; want a delay of 90 minutes", text, request, err)
		}
	}
	err := DecodeJSON([]byte(`{"queue":"a","dealy":"5m"}`), &belfryv1.PutRequest{})
	if err == nil || !strings.Contains(err.Error(), `did you mean "delay"`) {
		t.Errorf("a misspelt field: %v, want the right one named", err)
	}
}
