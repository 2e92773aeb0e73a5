package cli

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"300s": 5 * time.Minute, "5m": 5 * time.Minute, "1h30m": 90 * time.Minute, "90": 90 * time.Second,
		"0.25": 250 * time.Millisecond,
		"7d":   7 * 24 * time.Hour, "100ms": 100 * time.Millisecond, "0": 0,
	} {
		var optional OptionalDuration
		if err := optional.Set(text); err != nil || optional.Proto.AsDuration() != want {
			t.Errorf("%q is %v, %v; want %v", text, optional.Proto.AsDuration(), err, want)
		}
		var d time.Duration
		flag := Duration{value: &d, text: "the default"}
		if err := flag.Set(text); err != nil || d != want || flag.String() != text {
			t.Errorf("%q is %v (%s), %v; want %v", text, d, &flag, err, want)
		}
	}
	for _, text := range []string{"", "soon", "5 minutes", "1y", "--", "1m1"} {
		var optional OptionalDuration
		if err := optional.Set(text); err == nil || optional.Proto != nil {
			t.Errorf("%q was taken for %v", text, &optional)
		}
		if err := (&Duration{value: new(time.Duration)}).Set(text); err == nil {
			t.Errorf("%q was taken for a duration", text)
		}
	}
}

func TestDurationList(t *testing.T) {
	var list DurationList
	if err := list.Set("0s, 10s,2m,6h"); err != nil || list.String() != "0s,10s,2m0s,6h0m0s" {
		t.Errorf("got %s, %v", &list, err)
	}
	if err := list.Set("1s"); err != nil || len(list.Protos) != 1 {
		t.Errorf("set again: %s, %v; want the new one only", &list, err)
	}
	for _, bad := range []string{"", "1s,,2s", "1s,soon"} {
		if err := list.Set(bad); err == nil {
			t.Errorf("%q was taken for durations", bad)
		}
	}
}

func TestMoment(t *testing.T) {
	var m MomentValue
	if m.String() != "" {
		t.Errorf("not set, it is %q", m.String())
	}
	if err := m.Set("2030-01-31T10:00:00.5+01:00"); err != nil || m.String() != "2030-01-31T09:00:00.5Z" {
		t.Errorf("got %s, %v", &m, err)
	}
	for _, bad := range []string{"", "tomorrow", "2030-01-31", "10:00"} {
		if err := m.Set(bad); err == nil {
			t.Errorf("%q was taken for a time", bad)
		}
	}
}

func TestChoice(t *testing.T) {
	var value string
	c := Choice(&value, "table", "json")
	if value != "table" || c.String() != "table" {
		t.Errorf("the default is %q", value)
	}
	if err := c.Set("json"); err != nil || value != "json" {
		t.Errorf("set to %q, %v", value, err)
	}
	if err := c.Set("jsn"); err == nil || !strings.Contains(err.Error(), `did you mean "json"?`) || value != "json" {
		t.Errorf("a wrong word: %v, and the value is %q", err, value)
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]uint64{
		"300MiB": 300 << 20, "2GiB": 2 << 30, "1.5 GiB": 3 << 29, "2Gi": 2 << 30, "300m": 300 << 20, "2g": 2 << 30,
		"1TiB": 1 << 40, "10KB": 10_000,
		"314572800": 300 << 20, "7b": 7, "0": 0,
	} {
		if got, ok := parseSize(text); !ok || got != want {
			t.Errorf("%q is read as %d, %v, want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "GiB", "-1GiB", "2 pears", "2GiBs", "2GG", "0x10", "1e9", "NaN", "Inf", "9999999TiB",
		"1_000", "2iB"} {
		if got, ok := parseSize(text); ok {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}

// TestCount: a number is not below the least one, and fits.
func TestCount(t *testing.T) {
	var signed int
	var unsigned uint32
	all, some := Count(&signed, 0, 100), Count(&unsigned, 1, 10)
	if all.String() != "100" || some.String() != "10" || signed != 100 || unsigned != 10 {
		t.Errorf("the defaults are %s and %s", all, some)
	}
	if err := errors.Join(all.Set("0"), some.Set("4294967295")); err != nil || signed != 0 || unsigned != math.MaxUint32 {
		t.Errorf("%d and %d, %v", signed, unsigned, err)
	}
	for _, bad := range []string{"-1", "", "x", "1.5"} {
		if err := all.Set(bad); err == nil || err.Error() != "want a whole number, 0 or more" {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, bad := range []string{"0", "-1", "4294967296"} {
		if err := some.Set(bad); err == nil || err.Error() != "want a whole number, 1 or more" {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if signed != 0 || unsigned != math.MaxUint32 {
		t.Errorf("what was refused was set: %d and %d", signed, unsigned)
	}
}
