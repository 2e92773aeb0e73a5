package flips

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"

	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// trialsPerLife is how often one directory is damaged, each time a copy of it.
const trialsPerLife = 150

// Options say what to damage.
type Options struct {
	// Seed makes everything; the same seed repeats all of it.
	Seed uint64
	// Flips is the number of bits to flip; other damage comes on top.
	Flips int
	// What follows plants mistakes. All of it is nil or false in earnest.

	// repair changes the files of a group before it is opened.
	repair func(disk *diskfault.Disk, dir string)
	// quiet keeps the stores from telling their process to end.
	quiet bool
	// blind keeps the judge of clusters from looking at files, so that only what the cluster does can
	// give a mistake away.
	blind bool
	// enough ends the campaign after so many violations; 0 is none.
	enough int
}

// RunStores damages the files of single groups and opens them. It must be called inside a bubble of
// testing/synctest.
func RunStores(o Options) *Report {
	report := newReport()
	for life := uint64(0); report.Flips < o.Flips; life++ {
		r := rand.New(rand.NewPCG(o.Seed, life))
		g, err := newGroup(r, o)
		if err == nil {
			err = g.sound()
		}
		if err != nil {
			report.Violations = append(report.Violations,
				fmt.Sprintf("seed %d, life %d, before any damage: %v", o.Seed, life, err))
			return report
		}
		for n := 0; n < trialsPerLife && report.Flips < o.Flips; n++ {
			live := r.IntN(5) == 0
			d := draw(r, g.disk, targets(g.disk, groupDir), live)
			result, err := g.strike(d, live)
			if err != nil {
				result = violated
				report.Violations = append(report.Violations,
					fmt.Sprintf("seed %d, life %d, trial %d, %v: %v", o.Seed, life, n, d, err))
			}
			report.note(d, live, result)
			if o.enough > 0 && len(report.Violations) >= o.enough {
				return report
			}
		}
	}
	return report
}

// on returns the group on another disk.
func (g *group) on(disk *diskfault.Disk) *group {
	other := *g
	other.disk, other.told, other.held = disk, nil, *g.held.clone()
	return &other
}

// sound returns an error unless the undamaged directory opens with what was acknowledged.
func (g *group) sound() error {
	whole := g.on(g.disk.Clone())
	if err := whole.open(); err != nil {
		return err
	}
	got, err := read(whole.stores)
	if err != nil {
		return err
	}
	if what := got.differs(&g.held); what != "" {
		return errors.New(what)
	}
	return whole.close()
}

// strike damages a copy of the directory and judges what comes of it. The error says what a
// violation consists in.
func (g *group) strike(d *damage, live bool) (outcome, error) {
	hurt := g.on(g.disk.Clone())
	if live {
		return hurt.strikeLive(d)
	}
	d.inflict(hurt.disk)
	return hurt.judge(d, d.matters(nil))
}

// judge opens a directory that was damaged; matters says that at least one byte of the damage must
// be noticed.
func (g *group) judge(d *damage, matters bool) (outcome, error) {
	mark := logMark(g.disk.Contents(groupDir + "/high-water"))
	if err := g.open(); err != nil {
		return reported, blames(d, err)
	}
	got, err := read(g.stores)
	if err != nil {
		return violated, errors.Join(fmt.Errorf("opened, and then: %w", err), g.close())
	}
	result := unread
	if what := got.differs(&g.held); what != "" {
		if !g.lostBatch(d, got, mark) {
			return violated, errors.Join(errors.New(what), g.close())
		}
		result, g.held = lastBatch, *got.clone()
	} else if matters {
		return violated, errors.Join(errors.New("opened as if nothing were damaged, though all bytes of this part count"),
			g.close())
	}
	return result, g.goOn()
}

// goOn uses a group that opened, and opens it once more: what damage left behind must not surface
// later.
func (g *group) goOn() error {
	for _, step := range []func() error{g.newTerm, g.append, g.restart} {
		if err := step(); err != nil {
			return fmt.Errorf("further use: %w", err)
		}
	}
	got, err := read(g.stores)
	if err != nil {
		return fmt.Errorf("after further use: %w", errors.Join(err, g.close()))
	}
	if what := got.differs(&g.held); what != "" {
		return fmt.Errorf("after further use: %w", errors.Join(errors.New(what), g.close()))
	}
	return g.close()
}

// lostBatch reports whether what is gone is what cannot be told from a write that was never
// acknowledged: the end of the log, above the mark that the disk has. A flipped bit takes the last
// batch at most, since a batch behind it would prove that it was durable.
func (g *group) lostBatch(d *damage, got *contents, mark uint64) bool {
	if !lostEnd(&g.held, got, mark) || d.wound <= flipTwo && got.last() < g.batch-1 {
		return false
	}
	return g.unmarked || d.names(groupDir+"/high-water")
}

// lostEnd reports whether all that is gone of a group are entries at the end of its log, above the
// mark.
func lostEnd(want, got *contents, mark uint64) bool {
	return got.last() < want.last() && got.last() >= mark && got.differs(want.upTo(got.last())) == ""
}

// strikeLive damages files that are in use.
func (g *group) strikeLive(d *damage) (outcome, error) {
	if err := g.open(); err != nil {
		return violated, fmt.Errorf("before the damage: %w", err)
	}
	d.inflict(g.disk)
	wounded := g.disk.Clone()
	var err error
	if g.random.IntN(2) == 0 {
		err = g.append()
	}
	var got *contents
	if err == nil {
		got, err = read(g.stores)
	}
	if err != nil {
		_ = g.close() // it has failed
		return foundLive, errors.Join(blames(d, err), g.heard(err))
	}
	if what := got.differs(&g.held); what != "" {
		return violated, errors.Join(fmt.Errorf("in use: %s", what), g.close())
	}
	if err := g.close(); err != nil {
		return violated, fmt.Errorf("closing: %w", err)
	}
	result, err := g.judge(d, d.matters(func(e edit) bool { return supersedes(g.disk, wounded, e) }))
	if err == nil && result == unread && d.matters(nil) {
		result = superseded
	}
	return result, err
}

// heard returns an error unless the process was told, once, to end because of err.
func (g *group) heard(err error) error {
	if len(g.told) != 1 || !errors.Is(err, g.told[0]) {
		return fmt.Errorf("%w, and the process was told %v", err, g.told)
	}
	return nil
}

// blames returns an error unless err reports damage in a file that was damaged.
func blames(d *damage, err error) error {
	corrupt, ok := errors.AsType[*disk.CorruptError](err)
	if !ok {
		return fmt.Errorf("failed without saying that anything is damaged: %w", err)
	}
	if !d.names(corrupt.File) {
		return fmt.Errorf("the wrong file is blamed: %w", err)
	}
	return nil
}

// supersedes reports whether an edit does not count on a disk any more, because its file was
// replaced or removed since, its bytes were written again, or a newer snapshot was taken.
func supersedes(disk, wounded *diskfault.Disk, e edit) bool {
	was, is := wounded.Contents(e.file), disk.Contents(e.file)
	if is == nil || strings.HasSuffix(e.file, ".snap") && newestSnapshots(disk.Files())[path.Dir(e.file)] != e.file {
		return true
	}
	if e.part != partSegment { // it is replaced as a whole
		return !bytes.Equal(was, is)
	}
	end := e.at + max(e.zero, 1)
	return !bytes.Equal(was[e.at:end], is[e.at:end])
}
