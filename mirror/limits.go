package mirror

import "time"

// Limits of Belfry that entries of Redis may exceed.
const (
	bodyMax  = 1 << 20
	delayMax = 100 * 8766 * time.Hour // years of 365.25 days
)
