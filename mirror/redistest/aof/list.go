package aof

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Actor is the program that changed a list.
type Actor string

// These programs change a ready list. The other keys that a script wrote identify it.
const (
	// Consumer is a command of its own: take(), poll() and the like, or a producer that offers
	// without a delay.
	Consumer Actor = "a client's command"
	// Redisson is a script that wrote Redisson's own keys as well: a transfer of what was due.
	Redisson Actor = "a script of Redisson"
	// Mirror is a script that wrote keys of the mirror as well.
	Mirror Actor = "a script of the mirror"
	// Script is any other script or transaction.
	Script Actor = "another script"
)

// Step is what was done to one element of a list.
type Step struct {
	At Place
	By Actor
	// With is the command.
	With string
}

func (s Step) String() string { return fmt.Sprintf("%s at %s by %s", s.With, s.At, s.By) }

// Fate is what became of all elements of one value.
type Fate struct {
	Pushed, Popped []Step
	// Left is how many are in the list at the end.
	Left int
}

// List is all that was done to one list.
type List struct {
	key   string
	now   []string
	fates map[string]*Fate
}

// ListOf replays what was done to a list. The error names a command on it whose effect is not known
// here.
func ListOf(commands []Command, database int, key string) (*List, error) {
	l := &List{key: key, fates: map[string]*Fate{}}
	selected := 0
	for _, unit := range units(commands) {
		by := actorOf(unit)
		for _, c := range unit {
			name := strings.ToUpper(c.Args[0])
			if name == "SELECT" && len(c.Args) == 2 {
				n, err := strconv.Atoi(c.Args[1])
				if err != nil {
					return nil, fmt.Errorf("%s: %q: %w", c.At, c.Args, err)
				}
				selected = n
			}
			if selected != database && name != "FLUSHALL" {
				continue
			}
			if err := l.apply(name, c, by); err != nil {
				return nil, fmt.Errorf("%s: %w", c.At, err)
			}
		}
	}
	return l, nil
}

// units groups commands: each stands for itself, or with the others between MULTI and EXEC. What
// has no EXEC was not done.
func units(commands []Command) (all [][]Command) {
	var open []Command
	inside := false
	for _, c := range commands {
		switch name := strings.ToUpper(c.Args[0]); {
		case name == "MULTI":
			open, inside = nil, true
		case name == "EXEC":
			all, inside = append(all, open), false
		case inside:
			open = append(open, c)
		default:
			all = append(all, []Command{c})
		}
	}
	return all
}

// actorOf returns the program that ran a unit.
func actorOf(unit []Command) Actor {
	touches := func(prefix string) bool {
		return slices.ContainsFunc(unit, func(c Command) bool {
			return len(c.Args) > 1 && strings.HasPrefix(c.Args[1],
				prefix)
		})
	}
	switch {
	case touches("belfry_"):
		return Mirror
	case touches("redisson_delay_queue"):
		return Redisson
	case len(unit) > 1:
		return Script
	default:
		return Consumer
	}
}

// apply does one command.
func (l *List) apply(name string, c Command, by Actor) error {
	step := Step{c.At, by, name}
	if name == "FLUSHALL" || name == "FLUSHDB" {
		l.cut(0, len(l.now), step)
		return nil
	}
	if !slices.Contains(c.Args[1:], l.key) {
		return nil
	}
	if name == "DEL" || name == "UNLINK" {
		l.cut(0, len(l.now), step)
		return nil
	}
	if len(c.Args) < 2 || c.Args[1] != l.key {
		if name == "SADD" || name == "HSET" || name == "ZADD" || name == "PUBLISH" {
			return nil // its name is a value there
		}
		return fmt.Errorf("%q on the list %s is not understood", name, l.key)
	}
	rest := c.Args[2:]
	switch name {
	case "RPUSH", "RPUSHX":
		for _, value := range rest {
			l.now = append(l.now, value)
			l.fate(value).Pushed = append(l.fate(value).Pushed, step)
		}
	case "LPUSH", "LPUSHX":
		for _, value := range rest {
			l.now = slices.Insert(l.now, 0, value)
			l.fate(value).Pushed = append(l.fate(value).Pushed, step)
		}
	case "LPOP", "RPOP", "LTRIM", "LREM":
		return l.remove(name, rest, step)
	case "PERSIST", "EXPIRE", "PEXPIRE", "PEXPIREAT":
	default:
		return fmt.Errorf("%q on the list %s is not understood", name, l.key)
	}
	return nil
}

// remove does one command that takes elements away.
func (l *List) remove(name string, args []string, step Step) error {
	numbers := make([]int, 2)
	for n := range min(len(args), 2) {
		if name == "LREM" && n == 1 {
			break
		}
		number, err := strconv.Atoi(args[n])
		if err != nil {
			return fmt.Errorf("%s %q: %w", name, args, err)
		}
		numbers[n] = number
	}
	size := len(l.now)
	switch {
	case name == "LTRIM" && len(args) == 2:
		from, to := max(0, index(numbers[0], size)), min(size-1, index(numbers[1], size))
		if from > to {
			l.cut(0, size, step)
			return nil
		}
		l.cut(to+1, size, step)
		l.cut(0, from, step)
	case name == "LREM" && len(args) == 2:
		l.removeValue(args[1], numbers[0], step)
	case name == "LREM" || name == "LTRIM" || len(args) > 1:
		return fmt.Errorf("%s %q is not understood", name, args)
	default:
		n := 1
		if len(args) == 1 {
			n = numbers[0]
		}
		n = min(n, size)
		if name == "LPOP" {
			l.cut(0, n, step)
		} else {
			l.cut(size-n, size, step)
		}
	}
	return nil
}

// index is a place counted from the beginning, of one that may count from the end.
func index(at, size int) int {
	if at < 0 {
		return size + at
	}
	return at
}

// removeValue takes away up to so many elements of a value: the first ones, the last ones if count
// is below 0, all if it is 0.
func (l *List) removeValue(value string, count int, step Step) {
	for left := max(count, -count); count == 0 || left > 0; left-- {
		at := slices.Index(l.now, value)
		if count < 0 && at >= 0 {
			backwards := slices.Clone(l.now)
			slices.Reverse(backwards)
			at = len(l.now) - 1 - slices.Index(backwards, value)
		}
		if at < 0 {
			return
		}
		l.cut(at, at+1, step)
	}
}

// cut takes a stretch away.
func (l *List) cut(from, to int, step Step) {
	for _, value := range l.now[from:to] {
		l.fate(value).Popped = append(l.fate(value).Popped, step)
	}
	l.now = slices.Delete(l.now, from, to)
}

func (l *List) fate(value string) *Fate {
	if l.fates[value] == nil {
		l.fates[value] = &Fate{}
	}
	return l.fates[value]
}

// Of returns what became of a value.
func (l *List) Of(value string) Fate {
	f := *l.fate(value)
	for _, one := range l.now {
		if one == value {
			f.Left++
		}
	}
	return f
}

// Judge says why a value that was received so many times was not received once more. explained is
// true if a consumer popped it and the answer did not come: that is the client's loss, by
// Redisson's own rules. Else the text says what went wrong on the way to the list.
func (f Fate) Judge(received int) (text string, explained bool) {
	var consumed []Step
	for _, step := range f.Popped {
		if step.By == Consumer {
			consumed = append(consumed, step)
		}
	}
	switch {
	case len(consumed) > received:
		last := consumed[len(consumed)-1]
		return fmt.Sprintf("popped from the ready list, %s, whose answer did not come: at most once, as ever with "+
			"Redisson", last), true
	case len(f.Pushed) == 0:
		return "it never arrived on the ready list", false
	case f.Left > 0:
		return fmt.Sprintf("it is on the ready list still, since %s", f.Pushed[len(f.Pushed)-1]), false
	case len(f.Popped) > len(consumed):
		return fmt.Sprintf("it was taken from the ready list by no consumer: %s", f.Popped[len(f.Popped)-1]), false
	default:
		return fmt.Sprintf("it was pushed %d times, and each was received", len(f.Pushed)), false
	}
}
