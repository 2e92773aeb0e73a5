package pair

import (
	"time"
)

// Limits of Belfry that entries of Redis may exceed.
const (
	BodyMax  = 1 << 20
	NameMax  = 256                    // bytes of a queue's name
	DelayMax = 100 * 8766 * time.Hour // years of 365.25 days
)
