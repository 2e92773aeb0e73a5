package rule

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// RequestTime returns the time in a request id that is a UUID of version 7 (RFC 9562, section 5.7);
// false if it is none. The edge derives ids for the parts of a request, and for its second round, by
// appending a # or a ~ and more.
func RequestTime(id string) (fsm.Time, bool) {
	if i := strings.IndexAny(id, "#~"); i >= 0 {
		id = id[:i]
	}
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' || id[14] != '7' {
		return 0, false
	}
	var b [16]byte
	digits := id[:8] + id[9:13] + id[14:18] + id[19:23] + id[24:]
	if _, err := hex.Decode(b[:], []byte(digits)); err != nil || b[8]>>6 != 2 {
		return 0, false
	}
	ms := binary.BigEndian.Uint64(b[:8]) >> 16
	if ms > uint64(fsm.TimeMax)/uint64(time.Millisecond) {
		return fsm.TimeMax, true
	}
	return fsm.Time(ms) * fsm.Time(time.Millisecond), true
}
