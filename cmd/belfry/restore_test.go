package main

import "testing"

// TestRestoreOfAnotherFile says just that it is no backup.
func TestRestoreOfAnotherFile(t *testing.T) {
	path := write(t, "one.log", "level=INFO msg=ready\n")
	for _, args := range [][]string{{"restore", path}, {"restore", "--check", path}} {
		want := outcome{code: codeError, err: "belfry: " + path + ": this is no backup of Belfry\n"}
		if got := newHarness(t, nil).run(args...); got != want {
			t.Errorf("%v: %+v, want %+v", args, got, want)
		}
	}
}
