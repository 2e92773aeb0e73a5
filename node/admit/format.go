package admit

import (
	"fmt"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/outcome"
)

// FormatError refuses a request that has what the cluster's format does not have.
type FormatError struct {
	// Field is the field of the API that is too new; empty if the whole call is.
	Field string
	// Need is the first format that has it, Have the cluster's.
	Need, Have fsm.Format
}

// Error names the field and says what to do.
func (e *FormatError) Error() string {
	what := "this call"
	if e.Field != "" {
		what = "this field"
	}
	return fmt.Sprintf("not all nodes run a version that knows %s: upgrade all of them first (it needs format %d, the "+
		"cluster is at format %d); nothing was done", what, e.Need, e.Have)
}

// Unwrap returns what kind of refusal it is.
func (e *FormatError) Unwrap() error { return outcome.ErrUnsupported }

// CheckFormat refuses a request that has what a format does not have, with a *FormatError. A replica
// of an earlier version could not read it.
func CheckFormat(req *fsm.Request, format fsm.Format) error {
	if need := req.Format(); need > format {
		return &FormatError{Field: req.NewField(format), Need: need, Have: format}
	}
	return nil
}
