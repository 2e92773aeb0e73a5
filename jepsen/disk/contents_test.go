package disk

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newTestContents(t *testing.T) *contents {
	t.Helper()
	c, err := newContents(filepath.Join(t.TempDir(), "file"), &space{})
	must(t, err)
	t.Cleanup(func() { must(t, c.file.Close()) })
	return c
}

// all returns what processes see.
func (c *contents) all(t *testing.T) []byte {
	t.Helper()
	b := make([]byte, c.length())
	n, err := c.read(b, 0)
	must(t, err)
	if n != len(b) {
		t.Fatalf("read %d of %d bytes", n, len(b))
	}
	return b
}

// sectorOf returns the part of a file that is in a sector, zeros where the file has none.
func sectorOf(b []byte, sector int64) []byte {
	s := make([]byte, SectorBytes)
	if from := int(sector * SectorBytes); from < len(b) {
		copy(s, b[from:])
	}
	return s
}

// TestContentsAgainstModel: whatever is written, cut, allocated and synced, a crash brings back the
// last synced state, or keeps all, or takes each sector from one of the two.
func TestContentsAgainstModel(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := newTestContents(t)
		var live, durable []byte
		for range 4 + r.IntN(30) {
			off, n := r.IntN(4000), r.IntN(1500)
			switch r.IntN(8) {
			case 0:
				must(t, c.sync())
				durable = slices.Clone(live)
			case 1:
				must(t, c.resize(int64(off)))
				live = append(live, make([]byte, max(0, off-len(live)))...)[:off]
				live = slices.Clip(live)
			case 2:
				must(t, c.allocate(int64(off), int64(n+1), 0))
				live = append(live, make([]byte, max(0, off+n+1-len(live)))...)
			default:
				b := bytes.Repeat([]byte{byte(1 + r.IntN(255))}, n+1)
				must(t, c.write(b, int64(off)))
				live = append(live, make([]byte, max(0, off+len(b)-len(live)))...)
				copy(live[off:], b)
			}
			if !bytes.Equal(c.all(t), live) {
				t.Fatalf("seed %d: the process sees something else than it wrote", seed)
			}
		}
		checkSettled(t, seed, c, live, durable)
	}
}

func checkSettled(t *testing.T, seed uint64, c *contents, live, durable []byte) {
	t.Helper()
	kept := map[int64]bool{}
	mode := seed % 3
	_, err := c.cutPower(func(sector int64) bool {
		kept[sector] = mode == 1 || mode == 2 && (uint64(sector)+seed)%2 == 0
		return kept[sector]
	})
	must(t, err)
	got := c.all(t)
	switch {
	case mode == 0 && !bytes.Equal(got, durable):
		t.Fatalf("seed %d: not what was durable: %d and %d bytes", seed, len(got), len(durable))
	case mode == 1 && !bytes.Equal(got, live):
		t.Fatalf("seed %d: not what the process saw: %d and %d bytes", seed, len(got), len(live))
	}
	for sector, was := range kept {
		if end := min(int(sector+1)*SectorBytes, len(live)); was && sector >= 0 && len(got) < end {
			t.Fatalf("seed %d: sector %d was kept, and the file ends at %d, before %d", seed, sector, len(got), end)
		}
	}
	for sector := range int64(len(got)+SectorBytes-1) / SectorBytes {
		have, old, fresh := sectorOf(got, sector), sectorOf(durable, sector), sectorOf(live, sector)
		end := min(SectorBytes, len(got)-int(sector*SectorBytes)) // a length that was lost cuts the last sector
		if kept[sector] {
			old = fresh
		}
		if !bytes.Equal(have[:end], old[:end]) {
			t.Fatalf("seed %d: sector %d (kept: %v) is neither the durable one nor the live one", seed, sector, kept[sector])
		}
	}
	_, err = c.cutPower(func(int64) bool { return false })
	must(t, err)
	if !bytes.Equal(c.all(t), got) {
		t.Fatalf("seed %d: what survived one crash did not survive the next", seed)
	}
}

// TestSettleCounts: the bytes that were lost are counted, and only those.
func TestSettleCounts(t *testing.T) {
	c := newTestContents(t)
	must(t, c.write(make([]byte, 1000), 0))
	must(t, c.sync())
	must(t, c.write([]byte("x"), 3))
	must(t, c.write(make([]byte, 100), 1000)) // in sectors 1 and 2
	if got := c.unsynced(); got != 1100 {
		t.Errorf("%d bytes are not synced, want 1100", got)
	}
	lost, err := c.cutPower(func(sector int64) bool { return sector == 0 })
	must(t, err)
	if lost != 588 || c.length() != 1000 {
		t.Errorf("lost %d bytes and kept %d, want 588 and 1000", lost, c.length())
	}
}

// TestFailedSync: what the kernel could not write it shows and calls written, so that a later sync
// says nothing about it, unless it is written again.
func TestFailedSync(t *testing.T) {
	n := newNames(t)
	n.create("/a")
	n.sync("/")
	f, err := n.tree.find("/a")
	must(t, err)
	l := &life{disk: &Disk{steps: newSteps(), tree: n.tree}, tree: n.tree, ended: make(chan struct{})}
	for _, tc := range []struct {
		hook  Hook
		again bool
		want  string
	}{
		{Fail(syscall.EIO), false, "/a"},
		{Fail(syscall.EIO), true, "newer"},
		// it was killed, and the kernel goes on
		{func(Op) Verdict { l.disk.Stop(); return Verdict{Err: syscall.EIO} }, false, "later"},
	} {
		text := map[bool]string{false: "later", true: "newer"}[tc.again]
		must(t, f.file.write([]byte(text), 0))
		l.disk.SetHook(tc.hook)
		if errno := l.step(Op{Kind: OpSync}, place{dir: f}, f.file.sync); errno != syscall.EIO {
			t.Fatalf("the sync ended with %v", errno)
		}
		l.disk.steps.start()
		if tc.again {
			must(t, f.file.write([]byte(text), 0))
		}
		if errno := l.step(Op{Kind: OpSync}, place{dir: f}, f.file.sync); errno != 0 {
			t.Fatal(errno)
		}
		if got := string(f.file.all(t)); got != text {
			t.Errorf("the process sees %q, wrote %q", got, text)
		}
		lost, err := f.file.cutPower(func(sector int64) bool { return sector == SizeSector })
		must(t, err)
		if got := string(f.file.all(t)); !strings.HasPrefix(got, tc.want) || (lost > 0) != (tc.want == "/a") {
			t.Errorf("written again: %v: a power cut left %q of %q, lost %d", tc.again, got, text, lost)
		}
	}
}

// TestDamage: it is in what the process sees and in what a crash brings back.
func TestDamage(t *testing.T) {
	for _, synced := range []bool{true, false} {
		c := newTestContents(t)
		must(t, c.write(bytes.Repeat([]byte("o"), 2000), 0))
		must(t, c.sync())
		if !synced {
			must(t, c.write(bytes.Repeat([]byte("n"), 2000), 0))
		}
		live, durable := c.all(t), bytes.Repeat([]byte("o"), 2000)
		must(t, c.damage(600, 1, func(b []byte) { b[0] ^= 4 }))
		must(t, c.damage(900, 300, func(b []byte) { clear(b) }))
		for _, b := range [][]byte{live, durable} {
			b[600] ^= 4
			clear(b[900:1200])
		}
		must(t, c.cut(1100))
		if !bytes.Equal(c.all(t), live[:1100]) {
			t.Errorf("synced %v: the process does not see the damage", synced)
		}
		_, err := c.cutPower(func(int64) bool { return false })
		must(t, err)
		if !bytes.Equal(c.all(t), durable[:1100]) {
			t.Errorf("synced %v: the crash repaired the damage", synced)
		}
	}
}
