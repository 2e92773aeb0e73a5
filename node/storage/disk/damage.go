package disk

import (
	"errors"
	"fmt"
	"strings"
)

// remedy names only what can be done today. An older copy of a voter's files would break the
// promises to the cluster: the node would vote, and count in majorities, without what it has
// acknowledged.
const remedy = "the files were left as they are; do not delete some and start again: the node would go on without " +
	"what it has acknowledged. " +
	"Move the file back if it was moved. If the cluster has other nodes, start this one with an empty data directory, " +
	"the same name and --join: " +
	"it gets everything from them; never put back an older copy there. A node that is alone can be given a copy of the " +
	"whole data directory that was made " +
	"while it was stopped; what was acknowledged after that copy is lost"

// CorruptError says that a file does not hold what was once durable in it. The group must not
// start; if it runs, the process must end. Otherwise the node would serve or vote with less than it
// has promised.
type CorruptError struct {
	File   string // path of the damaged file, or the one that is missing
	Offset int64  // offset in bytes of the first damaged record in File; 0 when the file as a whole is meant
	Index  uint64 // Raft index of the first damaged or missing entry; 0 when no entry is concerned
	Detail string // what was found and what was expected
	Err    error  // cause, may be nil
}

// Error names file, offset and entry, and says what the operator can do.
func (e *CorruptError) Error() string { return "storage: " + e.finding() + "; " + remedy }

// finding is Error without the advice, which is given once for a chain of findings.
func (e *CorruptError) finding() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is damaged at offset %d", e.File, e.Offset)
	if e.Index > 0 {
		fmt.Fprintf(&b, " (entry %d)", e.Index)
	}
	fmt.Fprintf(&b, ": %s", e.Detail)
	var inner *CorruptError
	switch {
	case errors.As(e.Err, &inner):
		fmt.Fprintf(&b, ": %s", inner.finding())
	case e.Err != nil:
		fmt.Fprintf(&b, ": %s", e.Err)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }
