package lab

import (
	"fmt"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is one process of a server, which was started.
type process interface {
	// Wait returns when it has ended, and what it ended with. It is called once.
	Wait() error
	// Signal sends a signal; os.ErrProcessDone says that the process has ended.
	Signal(syscall.Signal) error
	// LimitFiles has the process open no file or connection at which it would have more than most, and
	// returns how many it could have before.
	LimitFiles(most uint64) (before uint64, err error)
	// PID returns its number on this machine; 0 if it has none here.
	PID() int
}

// local is a process of this machine.
type local struct{ command *exec.Cmd }

// Wait implements process.
func (p local) Wait() error { return p.command.Wait() }

// Signal implements process.
func (p local) Signal(signal syscall.Signal) error { return p.command.Process.Signal(signal) }

// PID implements process.
func (p local) PID() int { return p.command.Process.Pid }

// LimitFiles implements process.
func (p local) LimitFiles(most uint64) (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Prlimit(p.command.Process.Pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		return 0, fmt.Errorf("asking for the limit of files: %w", err)
	}
	before := limit.Cur
	limit.Cur = most
	if err := unix.Prlimit(p.command.Process.Pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		return 0, fmt.Errorf("setting the limit of files: %w", err)
	}
	return before, nil
}
