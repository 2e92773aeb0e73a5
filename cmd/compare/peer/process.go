package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Process is the process of one server.
type Process struct {
	dir, program, Log string
	args              []string

	command *exec.Cmd
	ended   chan struct{}
}

// start runs a program with its data and its log in dir.
func start(dir, program string, args ...string) (*Process, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &Process{dir: dir, program: program, args: args, Log: filepath.Join(dir, "log")}
	return p, p.Start()
}

// Start starts the program again, after Kill.
func (p *Process) Start() error {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()                              //nolint:errcheck // the process has its own
	p.command = exec.Command(p.program, p.args...) //nolint:noctx // killed at the end
	p.command.Dir, p.command.Stdout, p.command.Stderr = p.dir, log, log
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.program, err)
	}
	command, ended := p.command, make(chan struct{})
	p.ended = ended
	go func() {
		_ = command.Wait() // it is killed
		close(ended)
	}()
	return nil
}

// Kill ends the process at once.
func (p *Process) Kill() {
	_ = p.command.Process.Kill() // it may have ended
	<-p.ended
}

// await waits until a server answers as ready asks, or has ended.
func (p *Process) await(ctx context.Context, ready func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			text, _ := os.ReadFile(p.Log) // then there is none
			return fmt.Errorf("%s ended before it served:\n%s", p.command.Path, text)
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve: %w", p.command.Path, err)
		case <-time.After(awaitEvery):
		}
	}
}

const (
	// startMax is several times what a cluster of three takes on an idle machine: Belfry moves one
	// replica of a shard after the other.
	startMax   = time.Minute
	awaitEvery = 5 * time.Millisecond
)

// Usage is what processes have used so far, and what they have in memory.
type Usage struct {
	CPU      time.Duration // of all processors together
	Resident int64         // bytes
}

// ticksPerSecond is the unit of the kernel's CPU times, USER_HZ, which is the same on all of Linux.
const ticksPerSecond = 100

// UsageOf adds up what processes have used.
func UsageOf(processes []*Process) (Usage, error) {
	var sum Usage
	for _, p := range processes {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
		if err != nil {
			return sum, err
		}
		one, err := parseUsage(text, os.Getpagesize())
		if err != nil {
			return sum, err
		}
		sum.CPU += one.CPU
		sum.Resident += one.Resident
	}
	return sum, nil
}

// errStat is a line of /proc/PID/stat that is not of its form.
var errStat = errors.New("/proc/PID/stat is not as expected")

// parseUsage reads a line of /proc/PID/stat, as proc_pid_stat(5) describes it.
func parseUsage(stat []byte, page int) (Usage, error) {
	fields := bytes.Fields(stat[1+bytes.LastIndexByte(stat, ')'):]) // the program's name may have spaces and brackets
	if len(fields) < 22 {
		return Usage{}, errStat
	}
	ok := true
	number := func(field int) int64 { // as the manual numbers them
		n, err := strconv.ParseInt(string(fields[field-3]), 10, 64)
		if err != nil {
			ok = false
		}
		return n
	}
	sum := Usage{
		CPU:      time.Duration(number(14)+number(15)) * (time.Second / ticksPerSecond),
		Resident: number(24) * int64(page),
	}
	if !ok {
		return Usage{}, errStat
	}
	return sum, nil
}
