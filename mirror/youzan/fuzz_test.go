package youzan

import (
	"bytes"
	"math"
	"testing"
)

func FuzzParse(f *testing.F) {
	f.Add(unhex(f, orderHex))
	f.Add(unhex(f, "de0004 d90131a174 a132a169 a133d3ffffffffffffffff a134ce0000003c"))
	f.Add(unhex(f, "85 a131dbffffffff"))
	f.Fuzz(func(t *testing.T, value []byte) {
		j, err := Parse(value)
		if err != nil {
			return
		}
		b, err := j.Append(nil)
		if err != nil {
			t.Fatalf("%x is read as %+v, which cannot be written: %v", value, j, err)
		}
		if again, err := Parse(b); err != nil || again != j {
			t.Fatalf("%x is read as %+v, written as %x and read as %+v, %v", value, j, b, again, err)
		}
		if bodiless := []byte("\xa15\xa0"); len(b) > len(value)+len(bodiless) || len(b) > len(value) &&
			!bytes.HasSuffix(b, bodiless) {
			t.Errorf("%x is written in more bytes, %x", value, b)
		}
	})
}

func FuzzAppend(f *testing.F) {
	f.Add("order", "15702398321", int64(1795261238), int64(120), `{"uid": 10829378}`)
	f.Add("", "\x00", int64(math.MinInt64), int64(math.MaxInt64), "\xff")
	f.Fuzz(func(t *testing.T, topic, id string, due, ttr int64, body string) {
		j := Job{Topic: topic, ID: id, Due: due, TTR: ttr, Body: body}
		b, err := j.Append(nil)
		if err != nil {
			t.Fatalf("%+v cannot be written: %v", j, err)
		}
		if again, err := Parse(b); err != nil || again != j {
			t.Errorf("%+v is written as %x and read as %+v, %v", j, b, again, err)
		}
	})
}
