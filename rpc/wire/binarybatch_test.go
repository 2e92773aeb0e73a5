package wire

import (
	"math"
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

func TestGeneratedIDs(t *testing.T) {
	for _, partition := range []uint32{0, 7, math.MaxUint32} {
		for _, serial := range []uint64{0, 1, 99, 100, math.MaxUint64} {
			if got, want := string(appendGeneratedID(nil, partition, serial)), fsm.FormatID(partition, serial); got != want {
				t.Errorf("got %q, the machine reads %q", got, want)
			}
		}
	}
}
