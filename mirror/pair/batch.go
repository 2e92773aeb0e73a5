package pair

import "time"

// BatchMin and BatchMax bound how many entries one script takes.
const (
	BatchMin = 16
	BatchMax = 500
)

// scriptGoal is how long a script should take. After a longer one the next takes fewer entries.
const scriptGoal = 10 * time.Millisecond

// NextBatch returns how many entries the next script should take, by how long one with last entries
// took: [BatchMin] to [BatchMax].
func NextBatch(last int, took time.Duration) int {
	switch {
	case took > scriptGoal:
		return max(BatchMin, last/2)
	case took < scriptGoal/2:
		return min(BatchMax, last+BatchMin)
	default:
		return last
	}
}

// ClaimBytes is how many bytes of payloads a script takes, or a few more.
const ClaimBytes = 3 << 20
