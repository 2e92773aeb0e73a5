package transport

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// nameBytesMax is the most that servers accept of a name.
const nameBytesMax = 64

// DefaultName is how a client names itself if it is not told: the name of the host and the number of
// the process.
func DefaultName() string {
	host, err := os.Hostname()
	if err != nil || CheckName(host) != nil {
		host = "unknown"
	}
	process := "-" + strconv.Itoa(os.Getpid())
	return strings.ToValidUTF8(host[:min(len(host), nameBytesMax-len(process))], "") + process
}

// CheckName returns an error if servers would refuse the name.
func CheckName(name string) error {
	switch {
	case len(name) > nameBytesMax:
		return fmt.Errorf("%d bytes; the limit is %d", len(name), nameBytesMax)
	case !utf8.ValidString(name), strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("%q has characters that cannot be printed", name)
	}
	return nil
}
