package server

import "testing"

func TestCollectorPercent(t *testing.T) {
	for _, test := range []struct {
		name string
		live uint64
		want int
	}{
		{"nothing known", 0, 800},
		{"a small heap gets its room at once", 4 << 20, 800},
		{"room for 128 MiB", 128 << 20, 100},
		{"in steps", 100 << 20, 125},
		{"a larger heap pays a quarter", 512 << 20, 25},
		{"the largest ones less", 100 << 30, 15},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := collectorPercent(test.live); got != test.want {
				t.Errorf("%d bytes: %d percent, want %d", test.live, got, test.want)
			}
		})
	}
}
