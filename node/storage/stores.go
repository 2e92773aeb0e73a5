package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// OpenMode says whether Open may create a group.
type OpenMode int

// The modes. A node whose own records say that it holds a group opens it with MustExist, so that a
// lost directory is an error.
const (
	CreateIfMissing OpenMode = iota
	MustExist
)

// Config is what Open needs to know. It is not changed after Open.
type Config struct {
	Group    string           // identity of the group, such as cluster id and shard; a directory of another is refused
	Mode     OpenMode         // default CreateIfMissing
	Engine   Engine           // for a new group, default EngineWAL; an existing one keeps its own
	FS       disk.FS          // default OSFS
	Now      func() time.Time // default time.Now; for latencies, ages and the pace of mark syncs only
	Logger   *slog.Logger     // default discards; gets each repair at Open
	Watchdog *disk.Watchdog   // watches every durable write; nil for none

	// OnFatal is called once with the first failed write or damaged read, from the goroutine that
	// found it. It must not call the stores. The process must end; otherwise Raft goes on, or
	// panics, as its own rules say.
	OnFatal func(error)

	SegmentBytes  int           // wal engine: bytes allocated ahead, default 16 MiB
	MarkSyncEvery time.Duration // maximum age of the high-water mark after a power cut, default 1 s
}

func (c Config) withDefaults() (Config, error) {
	var problems []error
	if c.Group == "" {
		problems = append(problems, errors.New("no Group"))
	}
	if c.Engine == "" {
		c.Engine = EngineWAL
	}
	if c.Engine != EngineWAL && c.Engine != EngineBolt {
		problems = append(problems, fmt.Errorf("the Engine %q is none of %q and %q", c.Engine, EngineWAL, EngineBolt))
	}
	if c.FS == nil {
		c.FS = disk.OSFS{}
	}
	if _, ok := c.FS.(disk.OSFS); c.Engine == EngineBolt && !ok {
		problems = append(problems, errors.New("the Engine bolt needs the real file system"))
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.SegmentBytes == 0 {
		c.SegmentBytes = defaultSegmentBytes
	}
	if c.SegmentBytes < 4<<10 || c.SegmentBytes > 1<<30 {
		problems = append(problems, fmt.Errorf("the SegmentBytes %d are not between 4 KiB and 1 GiB", c.SegmentBytes))
	}
	if c.MarkSyncEvery == 0 {
		c.MarkSyncEvery = markSyncDefault
	}
	if len(problems) > 0 {
		return c, fmt.Errorf("storage: config: %w", errors.Join(problems...))
	}
	return c, nil
}

// Stores is one open group. Give Log, Stable and Snapshots to raft.NewRaft; wrap Log in a
// raft.LogCache freely.
type Stores struct {
	Log       *LogStore
	Stable    *StableStore
	Snapshots *SnapshotStore

	dir   string
	guard *disk.Guard
	marks *marks
	gone  *removals

	restart     chan struct{}
	restartOnce sync.Once
}

// Close releases the files. Shut Raft down first. Later calls of the stores return ErrClosed or
// fail.
func (s *Stores) Close() error {
	s.guard.Close()
	s.gone.close()
	return errors.Join(s.Log.engine.close(), s.marks.close())
}

// Err returns nil while the group is sound, else an error wrapping ErrFailed and its cause, or
// ErrClosed.
func (s *Stores) Err() error { return s.guard.Failure() }

// Tidy removes the files that log and snapshots have given up since Open, in small steps, beside
// all other work. After each step it calls pause, if that is not nil, with the duration of the
// step. pause may wait, and says whether to go on. Files that are left then, or cannot be removed,
// go with the next call or at the next Open.
func (s *Stores) Tidy(pause func(worked time.Duration) bool) { s.gone.carryOut(pause) }

// Stats returns counters since Open.
func (s *Stores) Stats() Stats { return Stats{Log: s.Log.stats(), Snapshot: s.Snapshots.Stats()} }

// RestartNeeded is closed when an installed snapshot has cleared a log that reached beyond it. Raft
// then keeps the vanished last index in memory and refuses every entry for ever (hashicorp/raft
// issue 697). The node must shut the Raft instance down, Close the stores, Open them and start Raft
// anew.
func (s *Stores) RestartNeeded() <-chan struct{} { return s.restart }

// noteClear notes that the log is about to be emptied up to last.
func (s *Stores) noteClear(last uint64) {
	// Compaction after an own snapshot, and a restore by the operator, leave nothing beyond the
	// snapshot.
	if newest, ok := s.Snapshots.Newest(); ok && last > newest.Index {
		s.restartOnce.Do(func() { close(s.restart) })
	}
}

type paths struct{ manifest, marks, stable, log, snapshots string }

func pathsIn(dir string) paths {
	return paths{
		manifest: filepath.Join(dir, "MANIFEST"), marks: filepath.Join(dir, "high-water"),
		stable: filepath.Join(dir, "stable"), log: filepath.Join(dir, "log"), snapshots: filepath.Join(dir, "snapshots"),
	}
}

// Open verifies and opens the group in dir, or creates it. It reads every entry of the log and
// every block of the newest snapshot. It repairs what a crash can have left. Anything else is a
// *CorruptError, and the damaged file stays as it is. The caller must hold the data directory's
// lock (see Lock).
func Open(dir string, cfg Config) (*Stores, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := pathsIn(dir)
	m, err := readManifest(cfg.FS, p.manifest)
	if disk.IsMissing(err) {
		m, err = create(dir, p, cfg)
	}
	if err != nil {
		return nil, err
	}
	if m.Group != cfg.Group {
		return nil, &disk.CorruptError{
			File: p.manifest, Detail: fmt.Sprintf("belongs to group %q, not %q", m.Group, cfg.Group),
		}
	}
	cfg.Engine = m.Engine
	if err := disk.RemoveTemporaries(cfg.FS, dir); err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	return open(dir, p, cfg, m)
}

func open(dir string, p paths, cfg Config, m manifest) (_ *Stores, err error) {
	// A process that was killed may have renamed files without a sync. Open acts on what it finds
	// here, so no power cut may take it back.
	if err := disk.SyncDirs(cfg.FS, filepath.Dir(dir), dir, p.log, p.snapshots); err != nil && !disk.IsMissing(err) {
		return nil, fmt.Errorf("storage: syncing the directories of %s: %w", dir, err)
	}
	g := &disk.Guard{Watchdog: cfg.Watchdog, OnFatal: cfg.OnFatal}
	s := &Stores{dir: dir, guard: g, restart: make(chan struct{})}
	s.gone = &removals{fsys: cfg.FS, guard: g, logger: cfg.Logger, now: cfg.Now, steps: disk.NewChannelMutex()}
	if s.marks, err = openMarks(cfg.FS, p.marks, cfg.MarkSyncEvery, cfg.Now); err != nil {
		return nil, err
	}
	s.marks.guard = g
	defer func() {
		if err != nil {
			err = errors.Join(err, s.marks.file.Close())
		}
	}()
	if s.Stable, err = openStable(cfg.FS, p.stable, g); err != nil {
		return nil, err
	}
	s.Snapshots = &SnapshotStore{
		fsys: cfg.FS, dir: p.snapshots, marks: s.marks, guard: g, now: cfg.Now, logger: cfg.Logger, gone: s.gone,
		publishing: disk.NewChannelMutex(),
	}
	if err := openSnapshots(s.Snapshots); err != nil {
		return nil, err
	}
	e, err := openEngine(m.Engine, cfg.engine(p, g, m, s.marks.get(), s.gone))
	if err != nil {
		return nil, err
	}
	if err := s.marks.makeDurable(); err != nil {
		return nil, errors.Join(err, e.close())
	}
	s.Log = &LogStore{mu: disk.NewChannelMutex(), engine: e, marks: s.marks, guard: g, now: cfg.Now, onClear: s.noteClear}
	if err := s.reconcile(p, cfg.Logger); err != nil {
		return nil, errors.Join(err, e.close())
	}
	s.gone.postpone()
	return s, nil
}

func (c Config) engine(p paths, g *disk.Guard, m manifest, at mark, gone *removals) engineConfig {
	return engineConfig{
		fsys: c.FS, dir: p.log, codec: entryCodec{salt: m.Salt}, segmentBytes: c.SegmentBytes,
		mark: at, guard: g, logger: c.Logger, gone: gone,
	}
}

func openEngine(kind Engine, cfg engineConfig) (engine, error) {
	switch kind {
	case EngineWAL:
		return openWAL(cfg)
	case EngineBolt:
		return openBolt(cfg)
	}
	return nil, fmt.Errorf("storage: manifest names engine %q, which this program does not have", kind)
}

// reconcile compares log, snapshot, marks and term with one another.
func (s *Stores) reconcile(p paths, logger *slog.Logger) error {
	first, last, err := s.Log.engine.span()
	if err != nil {
		return fmt.Errorf("storage: asking the log's range: %w", err)
	}
	s.Log.held.Store(&span{first: first, last: last})
	newest, _ := s.Snapshots.Newest()
	if mark := s.marks.get().log; last < mark {
		return &disk.CorruptError{File: s.Log.engine.fileOf(last + 1), Index: last + 1,
			Detail: fmt.Sprintf("the log ends at entry %d, but entry %d was durable", last, mark)}
	}
	if last > 0 && first > newest.Index+1 {
		return &disk.CorruptError{File: s.Log.engine.fileOf(newest.Index + 1), Index: newest.Index + 1,
			Detail: fmt.Sprintf("the log begins at entry %d, the newest snapshot ends at %d", first, newest.Index)}
	}
	if err := s.checkTerm(p, newest); err != nil {
		return err
	}
	return s.clearStale(newest, logger)
}

// checkTerm finds a stable file that is older than the log or the snapshot: Raft makes a term
// durable before any entry of it.
func (s *Stores) checkTerm(p paths, newest raft.SnapshotMeta) error {
	current, err := s.Stable.GetUint64([]byte(keyCurrentTerm))
	if err != nil {
		return &disk.CorruptError{File: p.stable, Detail: "its term cannot be read", Err: err}
	}
	highest := newest.Term
	if held := s.Log.held.Load(); held.last > 0 {
		var l raft.Log
		if err := s.Log.GetLog(held.last, &l); err != nil {
			return err
		}
		highest = max(highest, l.Term)
	}
	if highest > current {
		return &disk.CorruptError{File: p.stable,
			Detail: fmt.Sprintf("its term is %d, but log or snapshot reach term %d: it is an old copy", current, highest)}
	}
	return nil
}

// clearStale empties a log that disagrees with the newest snapshot: the process ended after a
// snapshot was installed and before Raft had cleared the log. Entries up to the snapshot are in it;
// entries after it follow an entry that was never committed, so none of them was. Left there, they
// would be sent to other replicas as committed once this node leads.
//
// A log that begins right after the snapshot has nothing at the snapshot's index and is not stale:
// everything before was compacted, or cleared by the install that wrote the snapshot.
func (s *Stores) clearStale(newest raft.SnapshotMeta, logger *slog.Logger) error {
	held := *s.Log.held.Load()
	if newest.Index == 0 || held.last == 0 || held.first == newest.Index+1 {
		return nil
	}
	reason := "ends before it"
	if held.last >= newest.Index {
		var l raft.Log
		if err := s.Log.GetLog(newest.Index, &l); err != nil {
			return err
		}
		if l.Term == newest.Term {
			return nil
		}
		reason = fmt.Sprintf("has term %d there", l.Term)
	}
	logger.Warn("clearing a log that an installed snapshot has replaced", "dir", s.dir, "first", held.first,
		"last", held.last, "snapshot", newest.Index, "term", newest.Term, "log", reason)
	onClear := s.Log.onClear
	s.Log.onClear = nil // Raft is not running yet, so it remembers nothing that a restart would have to clear
	defer func() { s.Log.onClear = onClear }()
	return s.Log.DeleteRange(held.first, held.last)
}
