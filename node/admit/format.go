package admit

import (
	"fmt"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/outcome"
)

// CheckFormat refuses a request that has what a format does not have, with ErrUnsupported. A replica
// of an earlier version could not read it.
func CheckFormat(req *fsm.Request, format fsm.Format) error {
	if need := req.Format(); need > format {
		return fmt.Errorf("%w: it needs format %d, the cluster is at format %d", outcome.ErrUnsupported, need, format)
	}
	return nil
}
