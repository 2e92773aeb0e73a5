package backup

import (
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
)

// TestRestoreOfAnotherFile says just that it is no backup.
func TestRestoreOfAnotherFile(t *testing.T) {
	path := clitest.WriteFile(t, "one.log", "level=INFO msg=ready\n")
	for _, args := range [][]string{{"restore", path}, {"restore", "--check", path}} {
		want := clitest.Outcome{Code: cli.CodeError, Err: "belfry: " + path + ": this is no backup of Belfry\n"}
		if got := newHarness(t, nil).Run(args...); got != want {
			t.Errorf("%v: %+v, want %+v", args, got, want)
		}
	}
}
