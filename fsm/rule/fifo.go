package rule

import (
	"cmp"

	"github.com/belfrydb/belfry/fsm"
)

// ListPlace returns the place of a job in the list of its state: its due time and serial. A READY FIFO
// job has the time of its put instead, and a DEAD one the time and the fence of its death. One whose death
// is not settled yet has no such fence: the one of its last lease counts, or its serial.
func ListPlace(v *fsm.Job) fsm.Cursor {
	switch {
	case v.FIFO && v.State == fsm.Ready:
		return fsm.Cursor{Due: v.Created, Serial: v.Serial}
	case v.FIFO && v.State == fsm.Dead:
		return fsm.Cursor{Due: v.Died, Serial: cmp.Or(v.Fence, v.Serial)}
	default:
		return fsm.Cursor{Due: v.Due, Serial: v.Serial}
	}
}
