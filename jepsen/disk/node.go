package disk

import (
	"context"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// node is what the kernel knows an inode by. Locks (flock, fcntl) are the kernel's own and end with
// the process.
type node struct {
	fs.Inode
	life  *life
	inode *inode
}

var (
	_ fs.NodeLookuper  = (*node)(nil)
	_ fs.NodeGetattrer = (*node)(nil)
	_ fs.NodeSetattrer = (*node)(nil)
	_ fs.NodeReaddirer = (*node)(nil)
	_ fs.NodeCreater   = (*node)(nil)
	_ fs.NodeMkdirer   = (*node)(nil)
	_ fs.NodeUnlinker  = (*node)(nil)
	_ fs.NodeRmdirer   = (*node)(nil)
	_ fs.NodeRenamer   = (*node)(nil)
	_ fs.NodeOpener    = (*node)(nil)
	_ fs.NodeReader    = (*node)(nil)
	_ fs.NodeWriter    = (*node)(nil)
	_ fs.NodeFsyncer   = (*node)(nil)
	_ fs.NodeAllocater = (*node)(nil)
	_ fs.NodeStatfser  = (*node)(nil)
)

// show fills in what the kernel is told of an inode.
func (l *life) show(n *inode, out *fuse.Attr) {
	l.tree.mu.Lock()
	defer l.tree.mu.Unlock()
	*out = fuse.Attr{Ino: n.id, Mode: n.mode, Nlink: 1, Owner: fuse.Owner{Uid: n.uid, Gid: n.gid}, Blksize: 4096}
	switch {
	case n.isDir():
		out.Nlink = 2
	default:
		out.Size = uint64(n.file.length())
		out.Blocks = (out.Size + SectorBytes - 1) / SectorBytes
		if n.parent == nil {
			out.Nlink = 0
		}
	}
	out.SetTimes(&n.modified, &n.modified, &n.modified)
}

// child returns what the kernel shall know an inode by.
func (n *node) child(ctx context.Context, child *inode, out *fuse.EntryOut) *fs.Inode {
	n.life.show(child, &out.Attr)
	return n.NewInode(ctx, &node{life: n.life, inode: child},
		fs.StableAttr{Mode: child.mode & syscall.S_IFMT, Ino: child.id})
}

// Lookup implements fs.NodeLookuper. It is no step.
func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	n.life.tree.mu.Lock()
	child, ok := n.inode.entries[name]
	n.life.tree.mu.Unlock()
	if !ok {
		return nil, syscall.ENOENT
	}
	return n.child(ctx, child, out), 0
}

// Getattr implements fs.NodeGetattrer. It is no step.
func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.life.show(n.inode, &out.Attr)
	return 0
}

// Setattr implements fs.NodeSetattrer. Only a new length is a step; all else is durable at once.
func (n *node) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, ok := in.GetSize(); ok {
		if errno := n.truncate(int64(size)); errno != 0 {
			return errno
		}
	}
	n.life.tree.mu.Lock()
	if mode, ok := in.GetMode(); ok {
		n.inode.mode = n.inode.mode&syscall.S_IFMT | mode&0o7777
	}
	if uid, ok := in.GetUID(); ok {
		n.inode.uid = uid
	}
	if gid, ok := in.GetGID(); ok {
		n.inode.gid = gid
	}
	if modified, ok := in.GetMTime(); ok {
		n.inode.modified = modified
	}
	n.life.tree.mu.Unlock()
	n.life.show(n.inode, &out.Attr)
	return 0
}

func (n *node) truncate(size int64) syscall.Errno {
	return n.life.step(Op{Kind: OpTruncate, Bytes: size}, place{dir: n.inode}, func() error {
		n.touch()
		return n.inode.file.resize(size)
	})
}

// touch notes that the file was written to.
func (n *node) touch() {
	n.life.tree.mu.Lock()
	defer n.life.tree.mu.Unlock()
	n.inode.modified = time.Now()
}

// Readdir implements fs.NodeReaddirer.
func (n *node) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	var list []fuse.DirEntry
	errno := n.life.step(Op{Kind: OpList}, place{dir: n.inode}, func() error {
		n.life.tree.mu.Lock()
		defer n.life.tree.mu.Unlock()
		for _, name := range slices.Sorted(maps.Keys(n.inode.entries)) {
			e := n.inode.entries[name]
			list = append(list, fuse.DirEntry{Name: name, Ino: e.id, Mode: e.mode & syscall.S_IFMT})
		}
		return nil
	})
	if errno != 0 {
		return nil, errno
	}
	return fs.NewListDirStream(list), 0
}

// Create implements fs.NodeCreater.
func (n *node) Create(ctx context.Context, name string, _, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle,
	uint32, syscall.Errno) {
	child, errno := n.add(ctx, OpCreate, name, mode&0o7777|syscall.S_IFREG)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	return n.child(ctx, child, out), nil, fuse.FOPEN_KEEP_CACHE, 0
}

// Mkdir implements fs.NodeMkdirer.
func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	child, errno := n.add(ctx, OpMkdir, name, mode&0o7777|syscall.S_IFDIR)
	if errno != 0 {
		return nil, errno
	}
	return n.child(ctx, child, out), 0
}

func (n *node) add(ctx context.Context, kind Kind, name string, mode uint32) (child *inode, errno syscall.Errno) {
	errno = n.life.step(Op{Kind: kind}, place{n.inode, name}, func() (err error) {
		child, err = n.life.tree.add(n.inode, name, mode)
		return err
	})
	if caller, ok := fuse.FromContext(ctx); ok && errno == 0 {
		n.life.tree.mu.Lock()
		child.uid, child.gid = caller.Uid, caller.Gid
		n.life.tree.mu.Unlock()
	}
	return child, errno
}

// Unlink implements fs.NodeUnlinker.
func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	return n.life.step(Op{Kind: OpRemove}, place{n.inode, name}, func() error { return n.life.tree.remove(n.inode, name) })
}

// Rmdir implements fs.NodeRmdirer.
func (n *node) Rmdir(ctx context.Context, name string) syscall.Errno { return n.Unlink(ctx, name) }

// Rename implements fs.NodeRenamer.
func (n *node) Rename(_ context.Context, name string, newParent fs.InodeEmbedder, newName string,
	flags uint32) syscall.Errno {
	to, ok := newParent.(*node)
	if !ok || flags != 0 {
		return syscall.EINVAL
	}
	from, onto := place{n.inode, name}, place{to.inode, newName}
	return n.life.step(Op{Kind: OpRename, From: n.life.tree.pathOf(from)}, onto, func() error {
		return n.life.tree.rename(from, onto)
	})
}

// Open implements fs.NodeOpener. What the kernel has cached stays: it has seen every change.
func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	errno := n.life.step(Op{Kind: OpOpen}, place{dir: n.inode}, func() error { return nil })
	if errno == 0 && flags&syscall.O_TRUNC != 0 {
		errno = n.truncate(0)
	}
	return nil, fuse.FOPEN_KEEP_CACHE, errno
}

// Read implements fs.NodeReader.
func (n *node) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	var read int
	errno := n.life.step(Op{Kind: OpRead, Offset: off, Bytes: int64(len(dest))}, place{dir: n.inode}, func() (err error) {
		read, err = n.inode.file.read(dest, off)
		return err
	})
	return fuse.ReadResultData(dest[:read]), errno
}

// Write implements fs.NodeWriter.
func (n *node) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	errno := n.life.step(Op{Kind: OpWrite, Offset: off, Bytes: int64(len(data))}, place{dir: n.inode}, func() error {
		n.touch()
		return n.inode.file.write(data, off)
	})
	if errno != 0 {
		return 0, errno
	}
	return uint32(len(data)), 0
}

// Fsync implements fs.NodeFsyncer for files and directories.
func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	if n.inode.isDir() {
		return n.life.step(Op{Kind: OpSyncDir}, place{dir: n.inode}, func() error { return n.life.tree.syncDir(n.inode) })
	}
	return n.life.step(Op{Kind: OpSync}, place{dir: n.inode}, n.inode.file.sync)
}

// Allocate implements fs.NodeAllocater, without holes.
func (n *node) Allocate(_ context.Context, _ fs.FileHandle, off, size uint64, mode uint32) syscall.Errno {
	if mode&^allocateKeepSize != 0 {
		return syscall.EOPNOTSUPP
	}
	return n.life.step(Op{Kind: OpAllocate, Offset: int64(off), Bytes: int64(size)}, place{dir: n.inode}, func() error {
		return n.inode.file.allocate(int64(off), int64(size), mode)
	})
}

// Statfs implements fs.NodeStatfser. It is no step.
func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	if err := statfs(n.life.tree.backing, out); err != nil {
		return n.life.errno(Op{Kind: "statfs"}, err)
	}
	if free, limited := n.life.disk.space.free(); limited {
		blocks := free / uint64(out.Bsize)
		out.Bfree, out.Bavail = min(out.Bfree, blocks), min(out.Bavail, blocks)
	}
	return 0
}
