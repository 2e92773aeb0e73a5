package pair

import "time"

const (
	// BatchMax and batchMin bound how many entries a script takes, scriptGoal how long it should
	// take: what takes longer takes fewer the next time.
	BatchMax   = 500
	BatchMin   = 16
	scriptGoal = 10 * time.Millisecond
)

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
