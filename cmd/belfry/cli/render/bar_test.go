package render

import (
	"strings"
	"testing"
)

func TestBar(t *testing.T) {
	for _, test := range []struct {
		share float64
		want  string
	}{
		{0, strings.Repeat("░", 30)},
		{1, strings.Repeat("█", 30)},
		{0.5, strings.Repeat("█", 15) + strings.Repeat("░", 15)},
		{1.0 / 240, "▏" + strings.Repeat("░", 29)},
	} {
		if got := Bar(test.share); got != test.want {
			t.Errorf("bar(%v) = %q, want %q", test.share, got, test.want)
		}
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := Grouped(n); got != want {
			t.Errorf("grouped(%d) = %q, want %q", n, got, want)
		}
	}
}
