package peer

import (
	"strings"
	"testing"
	"time"
)

func TestUsage(t *testing.T) {
	const line = "4242 (a (b) c) S 1 4242 4242 0 -1 4194560 500 0 3 0 120 30 0 0 20 0 9 0 98765 1073741824 2500 " +
		"18446744073709551615 1 1 0"
	got, err := parseUsage([]byte(line), 4096)
	if want := (Usage{CPU: 1500 * time.Millisecond, Resident: 2500 * 4096}); err != nil || got != want {
		t.Errorf("used %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "1 (x) S 1", strings.Replace(line, " 120 ", " x ", 1)} {
		if _, err := parseUsage([]byte(bad), 4096); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
