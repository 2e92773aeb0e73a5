package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/belfrydb/belfry/node/storage/disk"
)

const (
	walMetaName = "segments"

	// defaultSegmentBytes is what each group allocates ahead. DESIGN.md says why it is a quarter of
	// the library's default.
	defaultSegmentBytes = 16 << 20
)

type walEngine struct {
	log  *wal.WAL
	meta *walMeta
	dir  string
	room *encodingRoom
}

// encodingRoomMax bounds the encoding buffer that is kept for later appends.
const encodingRoomMax = 1 << 20

// encodingRoom is the buffer in which entries are encoded. Each append reuses it, because the
// library asks for a new buffer for each entry and copies it at once. Appends come one at a time.
type encodingRoom struct {
	entryCodec
	room []byte
}

// prepare empties the room and makes it large enough for logs, unless they take more than
// encodingRoomMax.
func (r *encodingRoom) prepare(logs []*raft.Log) {
	var need int
	for _, l := range logs {
		need += encodedBytes(l)
	}
	if r.room = r.room[:0]; cap(r.room) < need && need <= encodingRoomMax {
		r.room = make([]byte, 0, min(max(need, 2*cap(r.room)), encodingRoomMax))
	}
}

// Encode implements wal.Codec.
func (r *encodingRoom) Encode(l *raft.Log, w io.Writer) error {
	n, need := len(r.room), encodedBytes(l)
	if buf, ok := w.(*bytes.Buffer); ok && buf.Len() == 0 && cap(r.room)-n >= need {
		r.room = r.room[:n+need]
		*buf = *bytes.NewBuffer(r.room[n:n:len(r.room)])
	}
	return r.entryCodec.Encode(l, w)
}

func createWAL(cfg engineConfig) error {
	meta := &walMeta{fsys: cfg.fsys, name: filepath.Join(cfg.dir, walMetaName), guard: cfg.guard}
	return meta.CommitState(types.PersistentState{NextSegmentID: 1})
}

// openWAL verifies every segment, repairs what a crash can have left, and only then lets the
// library open the directory: the library takes damage in the last segment for a torn write, and
// deletes files it does not know.
func openWAL(cfg engineConfig) (engine, error) {
	meta := &walMeta{fsys: cfg.fsys, name: filepath.Join(cfg.dir, walMetaName), guard: cfg.guard}
	if err := meta.load(); err != nil {
		return nil, err
	}
	if err := checkSegments(cfg, meta); err != nil {
		return nil, err
	}
	filer := walFiler{Filer: segment.NewFiler(cfg.dir, walVFS{cfg.fsys, cfg.gone}), guard: cfg.guard}
	room := &encodingRoom{entryCodec: cfg.codec}
	log, err := wal.Open(cfg.dir,
		wal.WithMetaStore(meta),
		wal.WithSegmentFiler(filer),
		wal.WithCodec(room),
		wal.WithSegmentSize(cfg.segmentBytes),
		wal.WithLogger(hclog.NewNullLogger()), // meta and filer see the errors that it only logs
	)
	if err != nil {
		if errors.Is(err, types.ErrCorrupt) || errors.Is(err, fs.ErrNotExist) {
			return nil, &disk.CorruptError{File: cfg.dir, Detail: "segments cannot be opened", Err: err}
		}
		return nil, fmt.Errorf("storage: opening segments in %s: %w", cfg.dir, err)
	}
	return &walEngine{log: log, meta: meta, dir: cfg.dir, room: room}, nil
}

func (e *walEngine) span() (uint64, uint64, error) {
	first, err := e.log.FirstIndex()
	if err != nil {
		return 0, 0, err
	}
	last, err := e.log.LastIndex()
	return first, last, err
}

func (e *walEngine) storeLogs(logs []*raft.Log) error {
	e.room.prepare(logs)
	return e.log.StoreLogs(logs)
}

func (e *walEngine) getLog(index uint64, l *raft.Log) error { return e.log.GetLog(index, l) }

func (e *walEngine) deleteRange(first, last uint64) error { return e.log.DeleteRange(first, last) }

func (e *walEngine) fileOf(index uint64) string {
	if info, ok := e.meta.find(index); ok {
		return filepath.Join(e.dir, segment.FileName(info))
	}
	return e.dir
}

func (e *walEngine) close() error { return e.log.Close() }

// walFiler puts our codec's id into segment headers: the library writes its own id there whatever
// codec is set, and then refuses to open the log again.
type walFiler struct {
	*segment.Filer
	guard *disk.Guard
}

// Create implements types.SegmentFiler. A failure fails the group: during a rotation the library
// only logs it.
func (f walFiler) Create(info types.SegmentInfo) (types.SegmentWriter, error) {
	info.Codec = entryCodecID
	w, err := f.Filer.Create(info)
	if err != nil {
		f.guard.Fail(fmt.Errorf("storage: creating segment %s: %w", segment.FileName(info), err))
	}
	return w, err
}

// walVFS lets the library's segments live on our FS.
type walVFS struct {
	fsys disk.FS
	gone *removals
}

// ListDir implements types.VFS.
func (v walVFS) ListDir(dir string) ([]string, error) {
	names, err := v.fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := names[:0]
	for _, name := range names {
		if !strings.HasSuffix(name, "/") {
			files = append(files, name)
		}
	}
	return files, nil
}

// Create implements types.VFS. The directory is synced by the file's first Sync.
func (v walVFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := v.fsys.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_RDWR)
	if err != nil {
		return nil, err
	}
	if err := f.Allocate(int64(size)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &walFile{File: f, fsys: v.fsys, dir: dir, fresh: true}, nil
}

// Delete implements types.VFS.
func (v walVFS) Delete(dir, name string) error {
	return v.gone.delete(removal{name: filepath.Join(dir, name)})
}

// OpenReader implements types.VFS.
func (v walVFS) OpenReader(dir, name string) (types.ReadableFile, error) {
	return v.fsys.OpenFile(filepath.Join(dir, name), os.O_RDONLY)
}

// OpenWriter implements types.VFS.
func (v walVFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := v.fsys.OpenFile(filepath.Join(dir, name), os.O_RDWR)
	if err != nil {
		return nil, err
	}
	// A crash may have come before the directory was synced; do it again with the first append.
	return &walFile{File: f, fsys: v.fsys, dir: dir, fresh: true}, nil
}

// walFile syncs data only, and its directory once, so that an acknowledged entry is never in a
// nameless file. The library syncs from one goroutine at a time.
type walFile struct {
	disk.File
	fsys  disk.FS
	dir   string
	fresh bool
}

// Sync implements types.WritableFile.
func (f *walFile) Sync() error {
	if !f.fresh {
		return f.SyncData()
	}
	if err := f.File.Sync(); err != nil {
		return err
	}
	if err := f.fsys.SyncDir(f.dir); err != nil {
		return err
	}
	f.fresh = false
	return nil
}
