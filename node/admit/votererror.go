package admit

import (
	"fmt"

	"github.com/belfrydb/belfry/node/outcome"
)

// VotersError says that a shard has fewer voters than the cluster asks for. It wraps
// ErrTooFewVoters.
type VotersError struct {
	Have int `json:"have"`
	Want int `json:"want"`
}

// Error says how many there are and how many there must be.
func (e *VotersError) Error() string {
	return fmt.Sprintf("the shard has %d of the %d voters that min-voters asks for", e.Have, e.Want)
}

// Unwrap returns ErrTooFewVoters.
func (e *VotersError) Unwrap() error { return outcome.ErrTooFewVoters }
