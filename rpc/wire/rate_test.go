package wire

import (
	"errors"
	"testing"
	"time"
)

func TestKeyRateText(t *testing.T) {
	for text, want := range map[string]struct {
		count uint32
		per   time.Duration
		back  string
	}{
		"10/1m":      {10, time.Minute, "10/1m"},
		" 3 / 1h30m": {3, 90 * time.Minute, "3/1h30m"},
		"1/24h":      {1, 24 * time.Hour, "1/24h"},
		"0":          {0, 0, "0"},
		"0/1s":       {0, time.Second, "0"},
	} {
		r, err := ParseKeyRate(text)
		if err != nil || r.Count != want.count || r.Per.AsDuration() != want.per || FormatKeyRate(r) != want.back {
			t.Errorf("%q became %v, %v, written %s", text, r, err, FormatKeyRate(r))
		}
	}
	for _, text := range []string{"", "10", "10/", "/1m", "-1/1m", "10/soon", "1.5/1s", "10/1m/2", "4294967296/1s"} {
		if r, err := ParseKeyRate(text); !errors.Is(err, ErrKeyRate) {
			t.Errorf("%q became %v, %v", text, r, err)
		}
	}
}
