package rpc

import (
	"strconv"
	"strings"
	"time"
)

// itoa returns n in decimal.
func itoa(n int) string { return strconv.Itoa(n) }

// indexed returns the path of an element of a repeated field.
func indexed(field string, i int) string { return field + "[" + itoa(i) + "]" }

// shortDuration writes a duration for people: "100y", "24h", "1m30s".
func shortDuration(d time.Duration) string {
	if d != 0 && d%year == 0 {
		return strconv.FormatInt(int64(d/year), 10) + "y"
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
