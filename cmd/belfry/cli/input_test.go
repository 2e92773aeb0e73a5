package cli

import (
	"errors"
	"io"
	"testing"
)

// letters is a reader without an end.
type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestInputIsNotCut: what is as long as may be is read whole, and what is longer is refused.
func TestInputIsNotCut(t *testing.T) {
	const most = 64 << 20
	a := New(&System{In: io.LimitReader(letters{}, most)})
	if body, err := a.Body(t.Context(), "-"); err != nil || len(body) != most {
		t.Errorf("%d bytes, %v; want %d", len(body), err, most)
	}
	a.In = letters{}
	body, err := a.Body(t.Context(), "-")
	if _, usage := errors.AsType[*UsageError](err); !usage || len(body) > 0 {
		t.Errorf("of more there are %d bytes, %v", len(body), err)
	}
}
