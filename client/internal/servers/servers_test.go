package servers

import (
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/client/internal/failure"
)

func TestParse(t *testing.T) {
	got, err := Parse(" n1:7400, http://n2:7400/ ,http://n3/base,n4, [::1]/")
	want := []string{
		"http://n1:7400", "http://n2:7400", "http://n3/base", "http://n4:7400", "http://[::1]:7400",
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestWrongAddresses are refused in the same way as a call that the client does not send, but for
// those that are no URLs.
func TestWrongAddresses(t *testing.T) {
	for _, addresses := range []string{
		"", " ", "ftp://n1", "http://n1?a=b", "http://n1#a", "http://", "n1,", "http://n1,https://n2", "https://n1,n2",
	} {
		_, err := Parse(addresses)
		if e, ok := errors.AsType[*failure.Error](err); !ok || e.Reason != failure.Invalid ||
			e.Code.String() != "invalid_argument" || e.Outcome != failure.NotApplied {
			t.Errorf("%q: %v", addresses, err)
		}
	}
	_, err := Parse("http://n1:port")
	if _, ok := errors.AsType[*url.Error](err); !ok {
		t.Errorf("a port that is no number: %v", err)
	}
}

// TestNamedURLs: an address that a server named is reached as those that were given.
func TestNamedURLs(t *testing.T) {
	for _, try := range []struct{ given, address, want string }{
		{"http://n1:7400", "n2:7400", "http://n2:7400"},
		{"https://n1:7400", "[::1]:7400", "https://[::1]:7400"},
		{"http://n1:7400", "0.0.0.0:7400", ""},
		{"http://n1:7400", "[::]:7400", ""},
		{"http://n1:7400", ":7400", ""},
		{"http://n1:7400", "n2", ""},
		{"http://n1:7400", "", ""},
		{"http://gateway/belfry", "n2:7400", ""},
	} {
		if got := namedURL(try.given, try.address); got != try.want {
			t.Errorf("%q beside %s is %q, want %q", try.address, try.given, got, try.want)
		}
	}
}

// TestOneFailureMovesOnOnce: of calls that failed at one server together, only the first moves on.
func TestOneFailureMovesOnOnce(t *testing.T) {
	l := NewList([]string{"a", "b", "c"}, func(base string) string { return base })
	for _, want := range []string{"a", "b", "c", "a"} {
		server, n := l.Pick()
		if again, _ := l.Pick(); server != want || again != want {
			t.Errorf("%s and %s are in use, want %s", server, again, want)
		}
		l.MoveOn(n)
		l.MoveOn(n)
	}
}

// TestNamedServersAreBounded, made once while they are remembered, and never what must not be used.
func TestNamedServersAreBounded(t *testing.T) {
	var made []string
	l := NewList([]string{"http://n1:7400"}, func(base string) *string {
		if base == "http://exposed:7400" {
			return nil
		}
		made = append(made, base)
		return &base
	})
	if l.Named("exposed:7400") != nil || l.Named("0.0.0.0:7400") != nil {
		t.Error("an address that must not be used is used")
	}
	first := l.Named("n2:7400")
	if first == nil || *first != "http://n2:7400" || l.Named("n2:7400") != first || len(made) != 2 {
		t.Errorf("%v were made", made)
	}
	for i := range NamedMax {
		l.Named(fmt.Sprintf("m%d:7400", i))
		if len(l.named) > NamedMax {
			t.Fatalf("%d are remembered", len(l.named))
		}
	}
	if l.Named("n2:7400") == first {
		t.Error("it was not forgotten")
	}
}
