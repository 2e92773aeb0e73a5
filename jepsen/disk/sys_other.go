//go:build !linux

package disk

import (
	"errors"
	"log/slog"
	"os"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

const allocateKeepSize = 1

var errHost = errors.New("missing: Linux, whose mounts the disk uses")

func isRoot() bool { return false }

// CheckHost says what the host lacks for Mount; nil if it lacks nothing.
func CheckHost() error { return errHost }

func sweep(*slog.Logger) error { return errHost }

func detach(*fuse.Server, string) error { return errHost }

func dataSync(f *os.File) error { return f.Sync() }

func allocate(*os.File, uint32, int64, int64) error { return syscall.ENOTSUP }

func statfs(string, *fuse.StatfsOut) error { return syscall.ENOTSUP }
