package lmstfy

import (
	"fmt"
	"math/bits"
	"strings"
	"time"
)

const (
	ulidChars = 26
	// alphabet is Crockford's base32, each character standing for its position. Servers write
	// capitals only; other spellings of the same number would be other keys in Redis.
	alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
)

// An ID is what the id of a job says. It is a ULID whose last four bytes were overwritten with the
// delay.
type ID struct {
	Version int           // 0: the ULID alone, and the job's value is its body; 1: "1" and the ULID, and the value is JSON
	Created time.Time     // when the job was published, to the millisecond, by the server's clock
	Delay   time.Duration // the delay it was published with, in whole seconds; a later life of the job does not change it
}

// ParseID reads the id of a job. It takes nothing that no server would have written, and no version
// that it does not know.
func ParseID(id string) (ID, error) {
	version, ulid := 0, id
	switch {
	case len(id) == ulidChars:
	case len(id) == 1+ulidChars && id[0] == '1':
		version, ulid = 1, id[1:]
	case len(id) == 1+ulidChars:
		return ID{}, fmt.Errorf("lmstfy: id %q is of version %q, this program reads %q", id, id[0], '1')
	default:
		return ID{}, fmt.Errorf("lmstfy: id %.40q has %d characters, want %d or %d", id, len(id), ulidChars, 1+ulidChars)
	}
	var hi, lo uint64
	for i, c := range []byte(ulid) {
		digit := strings.IndexByte(alphabet, c)
		if digit < 0 {
			return ID{}, fmt.Errorf("lmstfy: id %q has %q, which is no digit of a ULID", id, c)
		}
		if i == 0 && digit > 7 {
			return ID{}, fmt.Errorf("lmstfy: id %q has more than the 128 bits of a ULID", id)
		}
		hi, lo = hi<<5|lo>>59, lo<<5|uint64(digit)
	}
	return ID{
		Version: version,
		Created: time.UnixMilli(int64(hi >> 16)).UTC(),
		Delay:   time.Duration(bits.ReverseBytes32(uint32(lo))) * time.Second,
	}, nil
}
