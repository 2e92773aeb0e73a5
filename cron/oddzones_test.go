package cron_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/cron"
)

// A change of a made-up zone: from at on, its offset is offset.
type change struct {
	at     time.Time
	offset time.Duration
}

// oddZone makes the data of a zone that begins in UTC (TZif of version 1, RFC 9636).
func oddZone(changes ...change) []byte {
	var b bytes.Buffer
	b.WriteString("TZif")
	b.Write(make([]byte, 16))
	put := func(v any) { binary.Write(&b, binary.BigEndian, v) } //nolint:errcheck // a buffer has no errors
	n := len(changes)
	for _, count := range []int{0, 0, 0, n, n + 1, 4} {
		put(uint32(count))
	}
	for _, c := range changes {
		put(int32(c.at.Unix()))
	}
	for i := range changes {
		b.WriteByte(byte(i + 1))
	}
	put(int32(0))
	put([]byte{0, 0})
	for _, c := range changes {
		put(int32(c.offset / time.Second))
		put([]byte{0, 0})
	}
	b.WriteString("ODD\x00")
	return b.Bytes()
}

func oddRule(t testing.TB, data []byte, spec cron.Spec) *cron.Rule {
	t.Helper()
	spec.TimeZone = "Odd"
	r, err := cron.Compile(&spec, readZones(t, fstest.MapFS{"Odd": {Data: data}}))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestOddZones has changes so close to each other that one acts on what another left out or
// repeated. IANA's data have none of them since 1970.
func TestOddZones(t *testing.T) {
	day := time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC)
	on := func(hour, minute int, offset time.Duration) change {
		return change{day.Add(time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute), offset}
	}
	for _, c := range []struct {
		name          string
		zone          []byte
		cron          string
		once, lit, sk []string // hours and minutes in UTC
	}{
		{
			name: "two gaps, with a time in each", zone: oddZone(on(2, 0, time.Hour), on(3, 0, 2*time.Hour)),
			cron: "30 2,4 * * *", once: []string{"02:00", "03:00"},
		},
		{
			name: "two gaps without time between them", zone: oddZone(on(2, 0, time.Hour), on(2, 1, 2*time.Hour)),
			cron: "30 2,3 * * *", once: []string{"02:00", "02:01"},
		},
		{
			name: "two folds over the same time", zone: oddZone(on(3, 0, -time.Hour), on(4, 0, -2*time.Hour)),
			cron: "30 2 * * *", once: []string{"02:30"}, lit: []string{"02:30", "03:30", "04:30"}, sk: []string{"02:30"},
		},
		{
			// The second fold begins before the clock has caught up with the first.
			name: "a fold in a fold", zone: oddZone(on(6, 0, -3*time.Hour), on(7, 0, -4*time.Hour)),
			cron: "30 3,5 * * *", once: []string{"03:30", "05:30"},
			lit: []string{"03:30", "05:30", "06:30", "07:30", "09:30"}, sk: []string{"03:30", "05:30"},
		},
		{
			name: "a gap whose time comes after all", zone: oddZone(on(2, 0, 2*time.Hour), on(2, 10, 0)),
			cron: "30 2 * * *", once: []string{"02:00"}, lit: []string{"02:30"},
		},
		{
			name: "a fold that a gap undoes", zone: oddZone(on(3, 0, -time.Hour), on(3, 20, 0)),
			cron: "10,30 2 * * *", once: []string{"02:10", "02:30"}, lit: []string{"02:10", "02:30", "03:10"},
			sk: []string{"02:10", "02:30"},
		},
	} {
		for dst, want := range map[cron.DST][]string{cron.Once: c.once, cron.Literal: c.lit, cron.Skip: c.sk} {
			r := oddRule(t, c.zone, cron.Spec{Cron: c.cron, DST: dst})
			var got []string
			for at := range r.Times(day.Add(-time.Second)) {
				if !at.Before(day.Add(12 * time.Hour)) {
					break
				}
				got = append(got, at.UTC().Format("15:04"))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s with %v: %s", c.name, dst, cmp.Diff(want, got))
			}
		}
	}
}

// TestWalkOddZones walks zones that change at random, some times in a day.
func TestWalkOddZones(t *testing.T) {
	from := time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC)
	for seed := range uint64(40) {
		g := generator{rand.New(rand.NewPCG(seed, 2))}
		var changes []change
		for at := from; len(changes) < 12; {
			at = at.Add(time.Duration(1+g.IntN(600)) * time.Minute)
			changes = append(changes, change{at, time.Duration(g.IntN(49)-24) * 15 * time.Minute})
		}
		walks := walksOf(t, seed, 40, "UTC")
		for _, w := range walks {
			w.rule = oddRule(t, oddZone(changes...), cron.Spec{Cron: w.expression.text, DST: w.dst})
		}
		if _, err := walkZone(walks[0].rule.Zone(), from, from.AddDate(0, 0, 10), walks); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// TestFingerprintIsOfMeaning adds a change to a zone that changes nothing.
func TestFingerprintIsOfMeaning(t *testing.T) {
	a, b := change{time.Unix(1e9, 0), time.Hour}, change{time.Unix(11e8, 0), time.Hour}
	version := func(data []byte) string { return readZones(t, fstest.MapFS{"Odd": {Data: data}}).Version() }
	if one, two := version(oddZone(a)), version(oddZone(a, b)); one != two {
		t.Errorf("one change is %s, with another that changes nothing %s", one, two)
	}
	if one, two := version(oddZone(a)), version(oddZone(b)); one == two {
		t.Errorf("different changes are %s", one)
	}
}
