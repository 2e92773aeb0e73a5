package rpc

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// itoa returns n in decimal.
func itoa(n int) string { return strconv.Itoa(n) }

// indexed returns the path of an element of a repeated field.
func indexed(field string, i int) string { return field + "[" + itoa(i) + "]" }

// shortDuration writes a duration for people: "24h", "1m30s", and "100y (876600h)", since years, of 365.25 days, are not read as a unit.
func shortDuration(d time.Duration) string {
	if d != 0 && d%year == 0 {
		return fmt.Sprintf("%dy (%dh)", d/year, d/time.Hour)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
