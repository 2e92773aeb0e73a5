package routing

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestOrderBody: a body that was read in part comes whole when it is asked for again, and a request
// without one has none.
func TestOrderBody(t *testing.T) {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://n1.1/x", strings.NewReader("whole"))
	if err != nil {
		t.Fatal(err)
	}
	orderBody(request)
	if _, err := io.ReadFull(request.Body, make([]byte, 2)); err != nil || request.ContentLength != 5 {
		t.Errorf("reading: %v; %d bytes", err, request.ContentLength)
	}
	for range 2 {
		again, err := request.GetBody()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(again); string(got) != "whole" || err != nil {
			t.Errorf("again: %q, %v", got, err)
		}
	}
	empty, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://n1.1/x", strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	if orderBody(empty); empty.Body != http.NoBody {
		t.Error("a request without a body got one")
	}
}
