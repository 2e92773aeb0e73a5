package queues

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// keyFlags are the settings of the keys of a queue as flags.
type keyFlags struct {
	concurrency, burst                uint32
	rate                              cli.KeyRateValue
	ordered, fair, holdOnDead, noKeys bool
}

// add adds the flags in the order in which a reader wants them.
func (f *keyFlags) add(flags *pflag.FlagSet) {
	flags.Uint32Var(&f.concurrency, flag.KeyConcurrency, 0,
		"how many jobs of one key may be reserved at one time, 0 for no limit")
	flags.Var(&f.rate, flag.KeyRate, "how often jobs of one key are handed out, such as 10/1m; 0 for no limit")
	flags.Uint32Var(&f.burst, flag.KeyBurst, 0, "how many of them at once; 0 for as many as the count of --key-rate")
	flags.BoolVar(&f.ordered, flag.KeyOrdered, false, "hand out the jobs of one key in put order, one at a time")
	flags.BoolVar(&f.fair, flag.KeyFair, false, "let keys take turns")
	flags.BoolVar(&f.holdOnDead, flag.HoldOnDead, false, "hand out no job of a key while one of its jobs is dead")
	flags.BoolVar(&f.noKeys, flag.NoKeys, false, "refuse puts that have a key")
}

// build sets the settings that were given, and no others.
func (f *keyFlags) build(flags *pflag.FlagSet, s *belfryv1.QueueSettings) {
	s.KeyConcurrency = ifGiven(flags, flag.KeyConcurrency, f.concurrency)
	s.KeyOrdered, s.KeyFair = ifGiven(flags, flag.KeyOrdered, f.ordered), ifGiven(flags, flag.KeyFair, f.fair)
	s.HoldOnDead, s.NoKeys = ifGiven(flags, flag.HoldOnDead, f.holdOnDead), ifGiven(flags, flag.NoKeys, f.noKeys)
	if flags.Changed(flag.KeyRate) || flags.Changed(flag.KeyBurst) {
		s.KeyRate = &belfryv1.KeyRate{Count: f.rate.Proto.GetCount(), Per: f.rate.Proto.GetPer(), Burst: f.burst}
	}
}

// partOfRate reports whether one of the two flags of the rate was given. The server takes a rate as a
// whole.
func (f *keyFlags) partOfRate(flags *pflag.FlagSet) bool {
	return flags.Changed(flag.KeyRate) != flags.Changed(flag.KeyBurst)
}

// completeRate takes the part of the rate that was not given from the rate in force.
func (f *keyFlags) completeRate(flags *pflag.FlagSet, rate, before *belfryv1.KeyRate) {
	switch {
	case !f.partOfRate(flags):
	case flags.Changed(flag.KeyBurst):
		rate.Count, rate.Per = before.GetCount(), before.GetPer()
	case rate.GetCount() > 0:
		rate.Burst = before.GetBurst()
	}
}

// keySettings shows the settings of keys in one line.
func keySettings(s *belfryv1.QueueSettings) string {
	var parts []string
	if n := s.GetKeyConcurrency(); n > 0 {
		parts = append(parts, render.Grouped(uint64(n))+" reserved at one time")
	}
	if r := s.GetKeyRate(); r.GetCount() > 0 {
		text := fmt.Sprintf("%s every %s", render.Grouped(uint64(r.GetCount())), render.Duration(r.GetPer()))
		if r.GetBurst() > 0 {
			text += ", up to " + render.Grouped(uint64(r.GetBurst())) + " at once"
		}
		parts = append(parts, text)
	}
	for _, f := range []struct {
		set  bool
		text string
	}{
		{s.GetKeyOrdered(), "in put order"}, {s.GetKeyFair(), "take turns"}, {s.GetHoldOnDead(), "held by a dead job"},
		{s.GetNoKeys(), "refused"},
	} {
		if f.set {
			parts = append(parts, f.text)
		}
	}
	if len(parts) == 0 {
		return "no limits"
	}
	return strings.Join(parts, "; ")
}
