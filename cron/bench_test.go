package cron_test

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/cron"
)

// BenchmarkNext steps through the firings of a rule: one step an operation.
func BenchmarkNext(b *testing.B) {
	for _, c := range []struct {
		name string
		spec cron.Spec
	}{
		{"minutes", cron.Spec{Cron: "*/5 * * * *"}},
		{"daily", cron.Spec{Cron: "30 2 * * *", TimeZone: "America/New_York"}},
		{"weekdays", cron.Spec{Cron: "0 9-17 * * MON-FRI", TimeZone: "Europe/Berlin"}},
		{"yearly", cron.Spec{Cron: "0 0 1 1 *", TimeZone: "Europe/Berlin"}},
		{"leapday", cron.Spec{Cron: "0 0 29 2 *", TimeZone: "Europe/Berlin"}},
		{"excludes", cron.Spec{Cron: "*/5 * * * *", TimeZone: "Europe/Berlin",
			Exclude: []string{"* 0-7 * * *", "* * * * SAT,SUN", "* * 24-26 12 *", "* * 1 1,5 *"}}},
		{"every", cron.Spec{Every: time.Minute}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := compile(b, &c.spec)
			start := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
			t := start
			b.ReportAllocs()
			for b.Loop() {
				next, ok := r.Next(t)
				if t = next; !ok {
					t = start
				}
			}
		})
	}
}

// BenchmarkNone asks for a firing that does not come, so that all is searched up to the horizon.
func BenchmarkNone(b *testing.B) {
	for _, c := range []struct {
		name string
		spec cron.Spec
	}{
		{"gap", cron.Spec{Cron: "30 2 * 3 0#2", TimeZone: "America/New_York", DST: cron.Literal}},
		{"end", cron.Spec{Cron: "0 0 29 2 *", End: time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := compile(b, &c.spec)
			start := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
			for b.Loop() {
				if next, ok := r.Next(start); ok {
					b.Fatal(next)
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	spec := &cron.Spec{Cron: "0 9-17 * * MON-FRI", TimeZone: "Europe/Berlin"}
	z := zones(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := cron.Compile(spec, z); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkZones(b *testing.B) {
	for b.Loop() {
		z, err := cron.BuiltInZones()
		if err != nil {
			b.Fatal(err)
		}
		z.Version()
	}
}
