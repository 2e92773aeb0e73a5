package disk

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
)

// Fate decides what a crash does to a sector of a file that was not synced: true keeps it. It is
// asked in order of sectors, and first of SizeSector if the length of the file was not synced. See
// Disk.Crash for no Fate.
type Fate func(name string, sector int64) bool

// LoseAll is the Fate that keeps nothing unsynced.
func LoseAll(string, int64) bool { return false }

// KeepAll is the Fate of which the kernel had written everything by chance.
func KeepAll(string, int64) bool { return true }

// Step is a creation, renaming or removal of a name.
type Step struct {
	Kind Kind // OpCreate, OpMkdir, OpRename or OpRemove
	Path string
	From string // the old name of a rename
}

// Names decides what a crash does to a step that was not synced: true keeps it. It is asked in the
// order of the steps. The steps of one directory become durable in order: after one that is lost,
// the later ones are too and are not asked for.
type Names func(Step) bool

// LoseNames is the Names that leaves each directory as it was at its last sync.
func LoseNames(Step) bool { return false }

// KeepNames is the Names under which all steps became durable by chance.
func KeepNames(Step) bool { return true }

// Chance returns fates that keep about the given share, 0 to 1, of sectors and of steps. The same
// seed decides the same way over the same name and sector, or step.
func Chance(seed uint64, keep float64) (Fate, Names) {
	decide := func(what string, number int64) bool {
		h := fnv.New64a()
		_, _ = fmt.Fprintf(h, "%d %s %d", seed, what, number) // a hash takes everything
		return rand.New(rand.NewPCG(h.Sum64(), seed)).Float64() < keep
	}
	return decide, func(s Step) bool { return decide(string(s.Kind)+" "+s.Path, 0) }
}

// Losses is what a crash took. A test in which nothing was lost has tested nothing.
type Losses struct {
	// Bytes were written and not synced, in whole sectors as far as their file went.
	Bytes int64
	// Names are creations, renames and removals that were undone.
	Names int
}
