package mirrortrial

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// attempt is one command and its end.
type attempt struct {
	verb string
	args []string
	// blind is when it is killed if it does not have the hold by then; zero: it is waited for. after
	// is when it is killed once it has it; zero: it is left to end.
	blind, after time.Duration
}

// step is what one queue goes through next: a command, perhaps a second one beside it, and the
// other programs that are there.
type step struct {
	attempt
	second *attempt
	// idle is for how long no program works before: longer than the leases of a bridge that was
	// killed.
	idle time.Duration
	// beside is for how long both run, frozen for how long the first stands still then.
	beside, frozen time.Duration
	// secondFirst kills the second before the first.
	secondFirst bool
	// quiet has no process of Redisson there; taking its consumers, putting producers of Belfry.
	// resume ends the pause of an export that came to its end.
	quiet, taking, putting, resume bool
}

// String is how a step is shown in logs.
func (s step) String() string {
	text := fmt.Sprintf("%s%v", s.verb, s.args)
	if s.second != nil {
		text += fmt.Sprintf(" beside %s%v", s.second.verb, s.second.args)
	}
	return fmt.Sprintf("%s, frozen %v, quiet %v, resume %v", text, s.frozen, s.quiet, s.resume)
}

// verbs are the commands, as often as they should come.
var verbs = []string{
	"import", "import", "follow", "follow", "follow", "run", "run", "run", "run", "export", "export", "export", "rollback",
	"rollback", "cutover", "cutover", "finalize", "finalize", "inspect",
}

// sequence makes steps. It asks nothing but its own source of randomness, so that the same seed
// gives the same steps.
type sequence struct {
	*rand.Rand
	aside bool // the queue has entries that Belfry cannot take
	quiet bool // the last step was a cut-over that may have come to its end
}

// next is the next step.
func (s *sequence) next() step {
	one := step{
		attempt: s.attempt(verbs[s.IntN(len(verbs))]), quiet: s.IntN(4) == 0, taking: s.IntN(2) == 0, putting: s.IntN(2) == 0,
		resume: s.IntN(5) > 0,
		beside: s.short(700 * time.Millisecond), secondFirst: s.IntN(5) == 0,
	}
	if s.IntN(3) == 0 {
		second := s.attempt(verbs[s.IntN(len(verbs))])
		one.second = &second
		if s.IntN(3) == 0 {
			one.frozen = time.Second + s.short(2*time.Second) // the hold lasts for one
		}
	}
	if s.IntN(5) == 0 {
		one.idle = 3 * time.Second
	}
	if s.quiet {
		one.attempt = s.attempt("finalize")
	}
	if s.quiet || one.verb == "cutover" && s.IntN(3) > 0 { // they have nothing to wait for and to refuse then
		one.quiet, one.taking, one.putting, one.second, one.idle = true, true, false, nil, 0
	}
	s.quiet = one.quiet && one.verb == "cutover"
	return one
}

// short is a time up to a limit, short ones more often.
func (s sequence) short(limit time.Duration) time.Duration {
	return time.Duration(s.Int64N(s.Int64N(int64(limit)) + 1))
}

// attempt is a command.
func (s sequence) attempt(verb string) attempt {
	a := attempt{verb: verb, args: s.args(verb)}
	if s.IntN(10) == 0 || verb == "finalize" || verb == "inspect" {
		a.blind = s.short(1500 * time.Millisecond)
	}
	if s.IntN(3) > 0 || verb == "follow" || verb == "run" {
		a.after = 1 + s.short(500*time.Millisecond)
	} else {
		a.blind = 0
	}
	return a
}

// args are the options of a command.
func (s sequence) args(verb string) []string {
	var args []string
	maybe := func(of int, more ...string) {
		if s.IntN(of) == 0 {
			args = append(args, more...)
		}
	}
	if verb == "inspect" {
		return args
	}
	if verb != "finalize" {
		args = append(args, "--codec", "bytes")
		maybe(2, "--share", "1")
	}
	switch verb {
	case "import", "follow":
		maybe(2, "--ready")
	case "run":
		if of := s.IntN(8); of < 2 {
			args = append(args, []string{"--no-in", "--no-out"}[of])
		}
	case "cutover":
		args = append(args, "--quiet", "1s")
	case "export", "rollback":
		args = append(args, "--redisson-format", "new")
	}
	if (verb == "follow" || verb == "run") && s.IntN(4) > 0 {
		args = append(args, "--again") // else it waits for ever after a rollback
	}
	if s.aside && slices.Contains([]string{"import", "follow", "run", "cutover"}, verb) {
		args = append(args, "--set-aside")
	}
	return args
}

// TestSequence: a seed gives the same steps again, and all commands come.
func TestSequence(t *testing.T) {
	one, same := &sequence{Rand: rand.New(rand.NewPCG(7, 1))}, &sequence{Rand: rand.New(rand.NewPCG(7, 1))}
	seen := map[string]bool{}
	for range 200 {
		step := one.next()
		if got := same.next(); got.String() != step.String() || got.after != step.after || got.blind != step.blind {
			t.Fatalf("the same seed gave %v and %v", step, got)
		}
		seen[step.verb] = true
	}
	if len(seen) != 8 {
		t.Errorf("of 200 steps the commands are %v", seen)
	}
}
