package cron

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// JitterOf returns how long after nominal a firing of the schedule called name happens: whole
// milliseconds, at least 0 and less than jitter. It is fixed for a name and a time: the first eight
// bytes of the SHA-256 of the name and of nominal in milliseconds since 1970, modulo jitter. It is 0
// if jitter is less than a millisecond.
func JitterOf(name string, nominal time.Time, jitter time.Duration) time.Duration {
	ms := jitter.Milliseconds()
	if ms <= 0 {
		return 0
	}
	key := binary.BigEndian.AppendUint64([]byte(name), uint64(nominal.UnixMilli()))
	sum := sha256.Sum256(key)
	return time.Duration(binary.BigEndian.Uint64(sum[:8])%uint64(ms)) * time.Millisecond
}
