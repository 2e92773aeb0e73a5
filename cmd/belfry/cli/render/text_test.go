package render

import (
	"strings"
	"testing"
	"time"
)

func TestShort(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		0:                                 "0s",
		1500 * time.Nanosecond:            "2µs",
		2345 * time.Microsecond:           "2.3ms",
		1 * time.Second:                   "1s",
		2345 * time.Millisecond:           "2.3s",
		time.Minute:                       "1m",
		90 * time.Second:                  "1m30s",
		90*time.Second + time.Millisecond: "1m30s",
		time.Hour:                         "1h",
		time.Hour + 30*time.Minute:        "1h30m",
		time.Hour + time.Second:           "1h0m1s",
		26 * time.Hour:                    "1d2h",
		5*day - time.Millisecond:          "5d",
		day - time.Millisecond:            "1d",
		time.Minute - time.Millisecond:    "1m",
		100*day - time.Millisecond:        "100d",
		100 * day:                         "100d",
		36525 * day:                       "36525d",
	} {
		if got := Short(d); got != want {
			t.Errorf("short(%d) = %q, want %q", d, got, want)
		}
	}
}

func TestPreview(t *testing.T) {
	for _, test := range []struct{ body, want string }{
		{"", ""},
		{"close order 42", "close order 42"},
		{"two\nlines\x1b[31m", "two·lines·[31m"},
		{"größer als sechzehn", "größer als sechz…"},
		{"\xff\xfe", "(2 bytes, not text)"},
	} {
		if got := Preview([]byte(test.body), 16); got != test.want {
			t.Errorf("preview(%q) = %q, want %q", test.body, got, test.want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 bytes", 1: "1 byte", 1023: "1,023 bytes", 1 << 10: "1.0 KiB", 5 << 20: "5.0 MiB", 1 << 60: "1.0 EiB",
	} {
		if got := Size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
}

// TestTablesKeepTheirColumns: what people wrote ends no line, opens no column and commands no
// terminal.
func TestTablesKeepTheirColumns(t *testing.T) {
	var got strings.Builder
	Rows(&got, []string{"ID", "ABOUT", "END"}, [][]string{{"a", "one\ttwo\nthree\x1b[2J", "x"}, {"long-id", "né", "y"}})
	want := "ID       ABOUT              END\n" +
		"a        one·two·three·[2J  x\n" +
		"long-id  né                 y\n"
	if got.String() != want {
		t.Errorf("%s, want\n%s", got.String(), want)
	}
}
