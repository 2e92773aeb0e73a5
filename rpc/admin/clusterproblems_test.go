package admin

import (
	"strings"
	"testing"
)

func TestList(t *testing.T) {
	words := strings.Fields(strings.Repeat("x ", listedMost+3))
	if got := list(words); !strings.HasSuffix(got, "x and 3 more") {
		t.Error(got)
	}
}
