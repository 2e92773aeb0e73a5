package lab

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// golden is a clock that was set wrong at the beginning of 2000: three seconds late, a quarter too
// fast, and seven seconds missed. The server's own test, with the tag jepsen, reads the same file.
const golden = "../../cmd/belfry/server/testdata/clock.golden"

// TestClockFile holds the layout of the file that servers map.
func TestClockFile(t *testing.T) {
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "n1")
	synctest.Test(t, func(t *testing.T) {
		c, err := newClock(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != string(make([]byte, 40)) {
			t.Errorf("a clock that is right has the file %x, %v", got, err)
		}
		c.Set(-3*time.Second, 0.25)
		c.Miss(7 * time.Second)
	})
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("the file is\n%swant\n%s", hex.Dump(got), hex.Dump(want))
	}
}

// TestClockMissesOnly has a clock miss time before it was ever set: its wall clock stays right.
func TestClockMissesOnly(t *testing.T) {
	c, err := newClock(filepath.Join(t.TempDir(), "n1"))
	if err != nil {
		t.Fatal(err)
	}
	before := uint64(time.Now().UnixNano())
	c.Miss(time.Minute)
	c.Miss(time.Hour)
	after := uint64(time.Now().UnixNano())
	at, reading := c.words[wordAt].Load(), c.words[wordReading].Load()
	if missed := time.Duration(c.words[wordMissed].Load()); missed != time.Hour+time.Minute {
		t.Errorf("it missed %v", missed)
	}
	if at != reading || at < before || at > after || c.words[wordRate].Load() != 0 {
		t.Errorf("the wall clock reads %d at %d, which is between %d and %d", reading, at, before, after)
	}
}
