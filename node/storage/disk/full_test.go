package disk

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

func TestExplainFull(t *testing.T) {
	for _, tt := range []struct {
		free, inodes, inodesFree uint64
		want                     string
	}{
		{5 << 30, 1000, 0, "has 5120 MiB free, and 0 of 1000 inodes: 'df -i /data'"},
		{5 << 30, 1000, 7, "7 of 1000 inodes"},
		{3 << 20, 1000, 8, "is full, with 3 MiB free"},
		{0, 0, 0, "is full, with 0 MiB free"}, // no fixed number of inodes
	} {
		if got := explainFull("/data", tt.free, tt.inodes, tt.inodesFree); !strings.Contains(got, tt.want) ||
			!strings.Contains(got, "start the node again") {
			t.Errorf("%+v: %s", tt, got)
		}
	}
	if got := ExplainFull("/", errors.New("another")); got != "" {
		t.Errorf("of another error: %s", got)
	}
	if got := ExplainFull(t.TempDir(), fmt.Errorf("writing: %w", syscall.ENOSPC)); !strings.Contains(got, "MiB free") {
		t.Errorf("of a real file system: %q", got)
	}
}
