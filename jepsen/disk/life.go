package disk

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

const (
	// cacheTime is how long the kernel may believe what it was told: nothing changes behind its back
	// but by damage, which tells it.
	cacheTime = time.Hour
	// writeBytesMax is the largest single write that the kernel hands over.
	writeBytesMax = 1 << 20
	// fileSystem is what the kernel's list of mounts calls a disk.
	fileSystem = "belfry-disk"
)

// life is the disk from one mount to the next crash. A new one has a new connection to the kernel,
// so that nothing of what processes had open, and nothing of what the kernel had cached, reaches
// it.
type life struct {
	disk   *Disk
	tree   *tree
	root   *node
	server *fuse.Server
	ended  chan struct{} // closed when it ends; what hangs or is delayed goes on and fails, and no step is taken any more

	gate sync.RWMutex // steps hold it for reading while they are taken
}

// Mount mounts an empty disk. The error says what the host lacks: it needs Linux with /dev/fuse and
// either root or fusermount3, which comes with the package fuse3. Without root, processes of other
// users have no access to the disk.
func Mount(_ context.Context, cfg Config) (*Disk, error) {
	if err := CheckHost(); err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	if err := sweep(cfg.Logger); err != nil {
		return nil, fmt.Errorf("disk: unmounting what a dead run left behind: %w", err)
	}
	d, err := open(cfg)
	if err != nil {
		return nil, err
	}
	if err := d.mount(); err != nil {
		return nil, err
	}
	return d, nil
}

// mount begins a life.
func mount(d *Disk) (*life, error) {
	l := &life{disk: d, tree: d.names(), ended: make(chan struct{})}
	l.root = &node{life: l, inode: l.tree.root}
	keep := cacheTime
	options := &fs.Options{
		EntryTimeout: &keep, AttrTimeout: &keep, NullPermissions: true, RootStableAttr: &fs.StableAttr{Ino: l.tree.root.id},
		MountOptions: fuse.MountOptions{
			FsName: fileSystem, Name: fileSystem, Options: []string{"default_permissions"},
			AllowOther: isRoot(), DirectMountStrict: isRoot(), MaxWrite: writeBytesMax,
			// A read of what the kernel has cached must not throw that away only because the file was
			// written to: all writes went through it.
			ExplicitDataCacheControl: true, DisableXAttrs: true, DisableReadDirPlus: true,
			Logger: slog.NewLogLogger(d.cfg.Logger.Handler(), slog.LevelWarn),
		},
		Logger: log.New(fuseLog{d.cfg.Logger}, "", 0),
	}
	server, err := fs.Mount(d.Mountpoint(), l.root, options)
	if err != nil {
		return nil, fmt.Errorf("disk: mounting %s: %w", d.Mountpoint(), err)
	}
	l.server = server
	return l, nil
}

// fuseLog carries what the library says to the log.
type fuseLog struct{ *slog.Logger }

// Write implements io.Writer.
func (l fuseLog) Write(line []byte) (int, error) {
	l.Debug("the file system library", slog.String("says", strings.TrimSpace(string(line))))
	return len(line), nil
}

// unmount unmounts. After it no step is under way, and none comes.
func (l *life) unmount() error {
	close(l.ended)
	l.gate.Lock()
	l.gate.Unlock() //nolint:staticcheck // it only waits for the steps that are being taken
	if err := detach(l.server, l.disk.Mountpoint()); err != nil {
		return fmt.Errorf("disk: unmounting %s: %w", l.disk.Mountpoint(), err)
	}
	return nil
}

// step asks the hook for its verdict over a step and takes it.
func (l *life) step(op Op, at place, take func() error) syscall.Errno {
	var v Verdict
	if l.disk.steps.hooked() {
		op.Path = l.tree.pathOf(at)
		v = l.disk.steps.ask(op, l.ended)
	}
	if v.Err != 0 {
		// a process that is killed before a sync has not failed to sync
		if op.Kind == OpSync && at.dir.file != nil && !l.disk.steps.refuses(OpSync) {
			at.dir.file.drop()
		}
		return v.Err
	}
	if v.Lie {
		take = func() error { return nil }
	}
	if err := l.take(op.Kind, take); err != nil {
		return l.errno(op, err)
	}
	if v.Then != nil {
		v.Then()
	}
	return 0
}

func (l *life) take(kind Kind, take func() error) error {
	l.gate.RLock()
	defer l.gate.RUnlock()
	select {
	case <-l.ended:
		return syscall.EIO
	default:
	}
	if l.disk.steps.refuses(kind) {
		return syscall.EIO
	}
	return take()
}

// errno returns what the process gets for an error.
func (l *life) errno(op Op, err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	l.disk.cfg.Logger.Error("a step of the disk failed", "kind", op.Kind, "path", op.Path, "error", err)
	return syscall.EIO
}

// forgetContents makes the kernel forget what it has cached of a file.
func (d *Disk) forgetContents(n *inode) error {
	return d.forget(place{dir: n}, func(known *fs.Inode) syscall.Errno { return known.NotifyContent(0, 0) })
}

// forgetName makes the kernel forget what a name leads to.
func (d *Disk) forgetName(at place) error {
	return d.forget(place{dir: at.dir}, func(known *fs.Inode) syscall.Errno { return known.NotifyEntry(at.name) })
}

// forget tells the kernel of a change to an inode if it knows that. No locks may be held: it waits
// for reads that are under way.
func (d *Disk) forget(at place, notify func(*fs.Inode) syscall.Errno) error {
	l, err := d.present()
	if err != nil {
		return err
	}
	known := l.root.EmbeddedInode()
	for part := range strings.SplitSeq(strings.Trim(l.tree.pathOf(at), "/"), "/") {
		if part != "" {
			known = known.GetChild(part)
		}
		if known == nil {
			return nil
		}
	}
	if errno := notify(known); errno != 0 && errno != syscall.ENOENT {
		return fmt.Errorf("telling the kernel: %w", errno)
	}
	return nil
}
