package processtest

import (
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/loopback"
)

// Addresses gives out addresses for servers, as loopback.Addresses does, to tests. The zero value
// is ready. Its methods may be called from any goroutine.
type Addresses struct{ picked loopback.Addresses }

// Free returns an address on loopback without a listener, which it never returns again.
func (a *Addresses) Free(t testing.TB) string {
	t.Helper()
	address, err := a.picked.Free()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// FreeRow is Free for so many ports in a row, of which it returns the first.
func (a *Addresses) FreeRow(t testing.TB, n int) string {
	t.Helper()
	address, err := a.picked.FreeRow(n)
	if err != nil {
		t.Fatal(err)
	}
	return address
}
