package network

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// ownerVariable is the variable of the environment in which a process carries the node that it
// belongs to.
const ownerVariable = "JEPSEN_NODE"

// owners finds out to which node the process belongs that opened a connection: on loopback, the
// kernel gives all of them the same source address. It reads what the kernel tells about sockets
// and processes in /proc, which for processes of the same user needs no right.
type owners struct {
	// mark is what the environment of a node's process holds before the name of the node.
	mark string

	mu sync.Mutex
	// known are the nodes' processes that were seen, by id: nearly all connections are theirs, and to
	// look at every process of the machine takes long. A process that is ending tells its environment
	// no more, and is known all the same.
	known map[int]string
}

// errGone is the error for a connection whose opener no longer has its end.
var errGone = errors.New("nobody has the other end of the connection")

// find returns the name of the node that opened the connection from remote to local; empty if that
// process belongs to none.
func (o *owners) find(remote, local netip.AddrPort) (string, error) {
	inode, err := socketInode(remote, local)
	if err != nil {
		return "", err
	}
	link := fmt.Sprintf("socket:[%d]", inode)
	o.mu.Lock()
	known := maps.Clone(o.known)
	o.mu.Unlock()
	for pid := range known {
		if name, ok := o.nodeOf(pid, known); ok && name != "" && holds(pid, link) {
			return name, nil
		}
	}
	// The opener may have closed it meanwhile, as programs do whose connections are reset again and
	// again.
	if again, err := socketInode(remote, local); err != nil || again != inode {
		return "", errors.Join(errGone, err)
	}
	return o.findAmongAll(link, known)
}

// findAmongAll is find that looks at every process, and knows those of nodes from then on.
func (o *owners) findAmongAll(link string, known map[int]string) (string, error) {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return "", fmt.Errorf("looking for the process of a connection: %w", err)
	}
	owner, found := "", false
	now := map[int]string{}
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		name, ok := o.nodeOf(pid, known)
		if ok && name != "" {
			now[pid] = name
		}
		if ok && !found && holds(pid, link) {
			owner, found = name, true
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = now
	if !found {
		return "", errGone
	}
	return owner, nil
}

// nodeOf returns the node that a process belongs to, empty if to none; ok is false if there is no
// such process.
func (o *owners) nodeOf(pid int, known map[int]string) (name string, ok bool) {
	environment, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", false
	case err != nil, len(environment) == 0:
		return known[pid], true // it is another user's, or it is ending
	}
	for variable := range bytes.SplitSeq(environment, []byte{0}) {
		if name, ok := bytes.CutPrefix(variable, []byte(o.mark)); ok {
			return string(name), true
		}
	}
	return "", true
}

// holds reports whether a process has a file open that is named as a link.
func holds(pid int, link string) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	files, err := os.ReadDir(dir)
	if err != nil {
		return false // it has ended, or is another user's
	}
	for _, f := range files {
		if to, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil && to == link {
			return true
		}
	}
	return false
}
