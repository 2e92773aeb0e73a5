package mirror

import (
	"strings"
	"time"
)

// Limits of Belfry that entries of Redis may exceed.
const (
	bodyMax  = 1 << 20
	nameMax  = 256                    // bytes of a queue's name
	delayMax = 100 * 8766 * time.Hour // years of 365.25 days
)

// nameLetters may be in a part of a queue's name.
const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-"

// canBeName reports whether a queue of Belfry can have a name: one part or two, with a slash between.
func canBeName(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." || strings.Trim(part, nameLetters) != "" {
			return false
		}
	}
	return len(name) <= nameMax && strings.Count(name, "/") <= 1
}
