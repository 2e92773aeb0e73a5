package wire

import (
	"strings"
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"300s": 300 * time.Second, "5m": 5 * time.Minute, "1h30m": 90 * time.Minute, "0s": 0, "0": 0, "5": 5 * time.Second,
		"0.25": 250 * time.Millisecond, "250ms": 250 * time.Millisecond, "1.5h": 90 * time.Minute, "7d": 168 * time.Hour,
		"1d12h": 36 * time.Hour, "-5s": -5 * time.Second, "-5": -5 * time.Second, "-1d": -24 * time.Hour,
		"36525d":      876600 * time.Hour,
		"0.000000001": 1, "0.0000000001": 1, "1.0000000000": time.Second, "1.00000000001": time.Second + 1,
		"2.":  2 * time.Second,
		"1e3": 1000 * time.Second, "1.5e-3": 1500 * time.Microsecond, "+3s": 3 * time.Second, "2µs": 2 * time.Microsecond,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("parseDuration(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "s", "5x", "five", "1h-30m", "--5s", "5 m", " 5s", "5s ", ".", "-", "-.5", ".5", "1.2.3", "1e", "e5", "1e400",
		"0x10", "d", "-d",
		"1.5d", "1d-2h", "1d+2h", "99999999999d", "9223372036854775807", "1e300", "293y", "NaN", "Inf", "-Inf", "1_000",
		strings.Repeat("1", 65), "5м", "106752d24h",
	} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("parseDuration(%q) = %v; want an error", text, got)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, seed := range []string{"300s", "5m", "1h30m", "7d", "0.1", "1e3", "-4", "9223372036", "1d2h3m4.5s"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDuration(text)
		if err != nil {
			return
		}
		if again, err := ParseDuration(d.String()); err != nil || again != d {
			t.Fatalf("parseDuration(%q) = %v, which reads back as %v, %v", text, d, again, err)
		}
		if std, err := time.ParseDuration(text); err == nil && std != d {
			t.Fatalf("parseDuration(%q) = %v; the standard library says %v", text, d, std)
		}
	})
}

func TestShortDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Millisecond: "1ms", time.Minute: "1m", 24 * time.Hour: "24h", 90 * time.Minute: "1h30m",
		100 * Year:       "100y (876600h)",
		61 * time.Second: "1m1s", -5 * time.Second: "-5s",
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("shortDuration(%d) = %q; want %q", d, got, want)
		}
	}
}
