package calls

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/client/internal/failure"
)

// An echo is a service with one method.
type echo struct{}

type request struct{ id string }

func (echo) Say(_ context.Context, req *request) (*string, error) {
	if req.id == "wrong" {
		return nil, failure.Invalidf("wrong")
	}
	return new("said " + req.id), nil
}

// errPublic is in an error of a call as users get it.
var errPublic = errors.New("public")

// said has what a Service was asked for.
type said struct {
	Reads bool
	ID    string
}

// serviceOf returns a service that records what it is asked for. It loses the first answer of each
// call.
func serviceOf(record *[]said) Service[echo] {
	ids := 0
	return Service[echo]{
		Do: func(ctx context.Context, kind Kind, attempt func(context.Context, echo) error) *failure.Error {
			for range 2 {
				s := said{Reads: kind.Reads}
				if kind.ID != nil {
					s.ID = *kind.ID
				}
				*record = append(*record, s)
				if err := attempt(ctx, echo{}); err != nil {
					return failure.Of(err)
				}
			}
			return nil
		},
		NewID:  func() string { ids++; return fmt.Sprintf("r%d", ids) },
		Public: func(err *failure.Error) error { return fmt.Errorf("%w: %w", errPublic, err) },
	}
}

// TestKinds: a change has a new id, the same one when it is repeated. A read and a call that sets a
// value have none.
func TestKinds(t *testing.T) {
	var record []said
	s := serviceOf(&record)
	change, other := &request{}, &request{id: "x"}
	for range 2 {
		if res, err := Change(t.Context(), s, &change.id, Of(echo.Say, change)); err != nil || *res != "said "+change.id {
			t.Errorf("%v, %v", res, err)
		}
	}
	if res, err := Read(t.Context(), s, Of(echo.Say, other)); err != nil || *res != "said x" {
		t.Errorf("%v, %v", res, err)
	}
	if res, err := Set(t.Context(), s, Of(echo.Say, other)); err != nil || *res != "said x" {
		t.Errorf("%v, %v", res, err)
	}
	want := []said{{ID: "r1"}, {ID: "r1"}, {ID: "r2"}, {ID: "r2"}, {Reads: true}, {Reads: true}, {}, {}}
	if diff := cmp.Diff(want, record); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
}

// TestErrors: they are public, but for that of Try. A failed call has no result.
func TestErrors(t *testing.T) {
	var record []said
	s := serviceOf(&record)
	wrong := Of(echo.Say, &request{id: "wrong"})
	for name, call := range map[string]func() (*string, error){
		"read":   func() (*string, error) { return Read(t.Context(), s, wrong) },
		"change": func() (*string, error) { return Change(t.Context(), s, new(string), wrong) },
		"set":    func() (*string, error) { return Set(t.Context(), s, wrong) },
	} {
		if res, err := call(); res != nil || !errors.Is(err, errPublic) {
			t.Errorf("%s: %v, %v", name, res, err)
		}
	}
	if res, err := Try(t.Context(), s, Kind{}, wrong); res != nil || err == nil || err.Reason != failure.Invalid {
		t.Errorf("try: %v, %v", res, err)
	}
}
