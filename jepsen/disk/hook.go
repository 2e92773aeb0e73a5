package disk

import (
	"slices"
	"sync"
	"syscall"
	"time"
)

// Kind is a kind of step.
type Kind string

// The steps that a Hook sees. What the kernel answers from its cache is no step: most reads, most
// openings and all questions for attributes.
const (
	OpOpen     Kind = "open"
	OpCreate   Kind = "create"
	OpRead     Kind = "read"
	OpList     Kind = "list"
	OpWrite    Kind = "write"
	OpTruncate Kind = "truncate"
	OpAllocate Kind = "allocate"
	OpSync     Kind = "sync" // fsync and fdatasync of a file
	OpSyncDir  Kind = "syncdir"
	OpMkdir    Kind = "mkdir"
	OpRename   Kind = "rename"
	OpRemove   Kind = "remove" // of a file or an empty directory
)

// Mutates says whether steps of the kind change what is on the disk, or what of it is durable.
func (k Kind) Mutates() bool { return k != OpOpen && k != OpRead && k != OpList }

// Op is a step about to be taken.
type Op struct {
	Kind Kind
	// Path is what the step is done to, from the mount point on, which is "/"; of a rename the new
	// name.
	Path string
	// From is the old name of a rename.
	From string
	// Offset and Bytes are the range of a read, write or allocation; of a truncation Bytes is the new
	// length.
	Offset, Bytes int64
	// Count is the how manieth step of its kind since the hook was set this is, from 1.
	Count int
}

// Verdict is what a Hook makes of a step. The zero value lets it be taken.
type Verdict struct {
	// Delay passes before the step.
	Delay time.Duration
	// Hang holds the step back until Release, Crash or Close; after Release it is taken. The process
	// that asked for the step cannot be killed meanwhile.
	Hang bool
	// Err is what the process gets instead of the step. What a sync that failed was to write is
	// durable only after it was written and synced again.
	Err syscall.Errno
	// Lie tells the process that the step was taken, and does not take it. Only syncs can be lied
	// about; of any other step it is EIO.
	Lie bool
	// Then is called after the step was taken without an error, before the process hears of it.
	Then func()
}

// Hook is called before each step, from a goroutine of the step's own and without locks held.
type Hook func(Op) Verdict

// Fail makes steps of some kinds fail; of no kinds, all steps that change something.
func Fail(errno syscall.Errno, kinds ...Kind) Hook { return always(Verdict{Err: errno}, kinds) }

// Hang makes steps of some kinds hang; of no kinds, all steps that change something.
func Hang(kinds ...Kind) Hook { return always(Verdict{Hang: true}, kinds) }

// Slow delays steps of some kinds; of no kinds, all steps that change something.
func Slow(delay time.Duration, kinds ...Kind) Hook { return always(Verdict{Delay: delay}, kinds) }

// ReadOnly is the disk that the kernel mounted read-only after an error.
func ReadOnly() Hook { return Fail(syscall.EROFS) }

// LieSyncs is the disk that says it synced, files and directories, and did not.
func LieSyncs() Hook { return always(Verdict{Lie: true}, []Kind{OpSync, OpSyncDir}) }

// Chain asks hooks in order until one has an objection or wants to be told: a verdict that is not
// the zero one.
func Chain(hooks ...Hook) Hook {
	return func(op Op) Verdict {
		for _, hook := range hooks {
			if v := hook(op); v.Delay != 0 || v.Hang || v.Err != 0 || v.Lie || v.Then != nil {
				return v
			}
		}
		return Verdict{}
	}
}

func always(v Verdict, kinds []Kind) Hook {
	return func(op Op) Verdict {
		if slices.Contains(kinds, op.Kind) || len(kinds) == 0 && op.Kind.Mutates() {
			return v
		}
		return Verdict{}
	}
}

// steps is what decides over steps. It outlives crashes.
type steps struct {
	mu       sync.Mutex
	hook     Hook
	counts   map[Kind]int
	stopped  bool
	released chan struct{} // closed and replaced by Release
}

func newSteps() *steps { return &steps{counts: map[Kind]int{}, released: make(chan struct{})} }

// SetHook replaces the hook; nil removes it. What hangs goes on hanging until Release.
func (d *Disk) SetHook(h Hook) { d.steps.set(h) }

func (s *steps) set(h Hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = h
	clear(s.counts)
}

// Release lets the steps that hang go on. The hook stays: what it lets hang from now on hangs.
func (d *Disk) Release() {
	d.steps.mu.Lock()
	defer d.steps.mu.Unlock()
	close(d.steps.released)
	d.steps.released = make(chan struct{})
}

// Stop lets the disk take no step any more that would change it, until Crash: each ends with EIO,
// whatever the hook says. A hook that kills the process calls it before, so that nothing slips in
// between.
func (d *Disk) Stop() {
	d.steps.mu.Lock()
	defer d.steps.mu.Unlock()
	d.steps.stopped = true
}

func (s *steps) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook, s.stopped = nil, false
	clear(s.counts)
}

// hooked reports whether there is a hook.
func (s *steps) hooked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hook != nil
}

// ask returns what becomes of a step; it takes as long as the hook wants it to. ended cuts that
// short.
func (s *steps) ask(op Op, ended <-chan struct{}) Verdict {
	s.mu.Lock()
	s.counts[op.Kind]++
	op.Count = s.counts[op.Kind]
	hook, released := s.hook, s.released
	s.mu.Unlock()
	if hook == nil {
		return Verdict{}
	}
	v := hook(op)
	if v.Delay > 0 {
		timer := time.NewTimer(v.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ended:
		}
	}
	if v.Hang {
		select {
		case <-released:
		case <-ended:
		}
	}
	if v.Lie && op.Kind != OpSync && op.Kind != OpSyncDir {
		v.Err = syscall.EIO
	}
	return v
}

// refuses reports whether the disk was stopped and the step would change it.
func (s *steps) refuses(kind Kind) bool {
	if !kind.Mutates() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}
