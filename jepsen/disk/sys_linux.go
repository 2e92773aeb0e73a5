package disk

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	deviceName       = "/dev/fuse"
	unmounter        = "fusermount3" // it mounts too
	allocateKeepSize = unix.FALLOC_FL_KEEP_SIZE
)

func isRoot() bool { return os.Geteuid() == 0 }

// CheckHost says what the host lacks for Mount; nil if it lacks nothing.
func CheckHost() error {
	missing := "missing: the device %s, which the kernel's module fuse makes and a container must be given: %w"
	if !isRoot() {
		_, stat := os.Stat(deviceName)
		if stat != nil {
			stat = fmt.Errorf(missing, deviceName, stat)
		}
		_, look := exec.LookPath(unmounter)
		if look != nil {
			look = fmt.Errorf("missing: root, or else %s; on Debian: apt-get install -y fuse3: %w", unmounter, look)
		}
		return errors.Join(stat, look)
	}
	f, err := os.OpenFile(deviceName, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf(missing, deviceName, err)
	}
	return f.Close()
}

// sweep unmounts the disks of runs whose process is gone. The kernel ends what a process served
// when it dies, and keeps the mount.
func sweep(log *slog.Logger) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		ours := isRoot() || strings.Contains(line, fmt.Sprintf("user_id=%d,", os.Geteuid()))
		if !ours || !slices.Contains(fields, "fuse."+fileSystem) {
			continue
		}
		at := unescape.Replace(fields[4])
		if !errors.Is(unix.Statfs(at, &unix.Statfs_t{}), unix.ENOTCONN) {
			continue
		}
		log.Warn("unmounting the disk of a run that died", "at", at)
		if err := unmount(at, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return nil
}

// unmount takes a mount away. What another one's sweep took away meanwhile is gone.
func unmount(at string, flags int) error {
	if isRoot() {
		if err := unix.Unmount(at, flags); !errors.Is(err, unix.EINVAL) {
			return err
		}
		return nil
	}
	// There is no force without root. A process with open files keeps the connection, over which it
	// gets errors until it closes them.
	//nolint:noctx // it does not wait
	if out, err := exec.Command(unmounter, "-u", "-z", at).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// detach takes the disk away from all processes, whatever they have open, and ends the connection
// to the kernel.
func detach(server *fuse.Server, mountpoint string) error {
	// By force, so that waiting calls get an error; and detached, so that open files do not keep the
	// mount point.
	err := unmount(mountpoint, unix.MNT_FORCE|unix.MNT_DETACH)
	if err == nil && isRoot() {
		server.Wait()
	}
	return err
}

func dataSync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func allocate(f *os.File, mode uint32, off, bytes int64) error {
	for {
		if err := unix.Fallocate(int(f.Fd()), mode, off, bytes); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func statfs(dir string, out *fuse.StatfsOut) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	out.Blocks, out.Bfree, out.Bavail, out.Files, out.Ffree = st.Blocks, st.Bfree, st.Bavail, st.Files, st.Ffree
	out.Bsize, out.NameLen, out.Frsize = uint32(st.Bsize), uint32(st.Namelen), uint32(st.Frsize)
	return nil
}
