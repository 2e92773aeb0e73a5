package fsm

import (
	"testing"
	"unsafe"
)

// TestJobIsSmall: the jobs of a Reserve of 97 fit into 32 KiB, the most that the runtime takes from
// a processor's own memory. A larger slice costs several times as much.
func TestJobIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Job{}); 97*size > 32<<10 {
		t.Errorf("a job has %d bytes", size)
	}
}

// TestPutIsSmall: an entry has up to 1,000 of them, so no field may leave a gap before another.
func TestPutIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Put{}); size > 192 {
		t.Errorf("a put has %d bytes", size)
	}
}
