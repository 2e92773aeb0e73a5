package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/belfrydb/belfry/jepsen/disk"
	"github.com/belfrydb/belfry/jepsen/nemesis"
	"github.com/belfrydb/belfry/jepsen/network"
	"github.com/belfrydb/belfry/jepsen/workload"
)

// settings are those of one run.
type settings struct {
	nodes     int
	shards    int
	time      time.Duration
	workloads string
	nemeses   string
	seed      uint64
	pace      time.Duration
	rhythm    nemesis.Rhythm
	snapshot  int64
	network   network.Mode
	dir       string
	program   string
	// built is the server that runs when program is empty; built for this run when it is empty too.
	built   string
	keep    bool
	compose bool
	secured bool
	// env is added to the environment of the servers.
	env []string
}

// These faults strike by default: a few that work everywhere, in no order but that of this list.
// The second part does not work in containers.
const (
	usual         = "usual"
	usualAnywhere = "kill-leader,pause-leader,restart,transfer,clock-forward,lag-install"
	usualOutside  = "isolate-leader"
	usualOnDisks  = "power-all"
)

// usualNemeses returns the default faults for this host. It has faults of disks only where disks
// can be mounted. A run that names such a fault elsewhere fails.
func usualNemeses(compose bool) string {
	if compose {
		return usualAnywhere
	}
	if disk.CheckHost() != nil {
		return usualAnywhere + "," + usualOutside
	}
	return usualAnywhere + "," + usualOutside + "," + usualOnDisks
}

// parse reads the settings of a run.
func parse(args []string) (*settings, error) {
	s := &settings{}
	return s, s.parse(s.flags("run"), args)
}

// flags returns the flags that set them.
func (s *settings) flags(name string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the caller prints the error
	flags.IntVar(&s.nodes, "nodes", 3, "how many nodes found the cluster")
	flags.IntVar(&s.shards, "shards", 3, "how many shards it has")
	flags.DurationVar(&s.time, "time", time.Minute, "for how long clients work and faults strike")
	flags.StringVar(&s.workloads, "workload", "all", "what clients do, separated by commas; see list. all: all but "+
		"access, in containers without mirror; with --secured all but mirror")
	flags.StringVar(&s.nemeses, "nemesis", usual, "which faults strike, separated by commas, a+b for both at once; see "+
		"list. usual: "+usualAnywhere+", outside of containers "+usualOutside+", and where disks can be mounted "+
		usualOnDisks)
	flags.Uint64Var(&s.seed, "seed", 0, "what decides everything that is random here; 0 takes one from the clock")
	flags.DurationVar(&s.pace, "pace", 30*time.Millisecond, "mean time between two rounds of a client")
	flags.DurationVar(&s.rhythm.Calm, "calm", nemesis.CalmDefault, "mean time before a fault")
	flags.DurationVar(&s.rhythm.Hold, "hold", nemesis.HoldDefault, "mean time that a fault lasts")
	flags.BoolVar(&s.rhythm.Once, "once", false, "end when each fault has struck once, before --time is over")
	flags.Int64Var(&s.snapshot, "snapshot-bytes", 256<<10,
		"how much a shard logs before it takes a snapshot, and how much log it keeps")
	flags.Func("network", "namespaces, loopback, or auto for namespaces where they can be made (default auto)",
		s.setNetwork)
	flags.StringVar(&s.dir, "dir", "", "where everything about the run is kept; by default a new directory in jepsen-runs")
	flags.StringVar(&s.program, "program", "", "the server, built with the tag jepsen; by default it is built")
	flags.BoolVar(&s.keep, "keep", false, "keep the data directories of the nodes")
	flags.BoolVar(&s.compose, "compose", false, "run the cluster of docker-compose.yml, in containers")
	flags.BoolVar(&s.secured, "secured", false, "a cluster with TLS between nodes and for clients, in which each call "+
		"needs a token; the workload access always has one")
	return flags
}

// parse reads them from arguments.
func (s *settings) parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(os.Stdout)
		flags.Usage()
		return err
	} else if err != nil {
		return err
	}
	if s.seed == 0 {
		s.seed = uint64(time.Now().UnixNano())
	}
	var problems []error
	unless := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	unless(flags.NArg() == 0, "%s takes no argument, but was given %q", flags.Name(), flags.Args())
	unless(s.nodes >= 1 && s.nodes <= 9, "--nodes: have %d, want 1 to 9", s.nodes)
	unless(s.shards >= 1 && s.shards <= 64, "--shards: have %d, want 1 to 64", s.shards)
	unless(s.snapshot > 0, "--snapshot-bytes: have %d, want more than 0", s.snapshot)
	for name, d := range map[string]time.Duration{"time": s.time, "pace": s.pace, "calm": s.rhythm.Calm,
		"hold": s.rhythm.Hold} {
		unless(d > 0, "--%s: have %v, want more than 0", name, d)
	}
	if s.nemeses == usual {
		s.nemeses = usualNemeses(s.compose)
	}
	if s.compose && s.workloads == "all" {
		s.workloads = strings.Join(workload.Names(slices.DeleteFunc(workload.Open(), func(w workload.Workload) bool {
			return w.NeedsRedis
		})), ",")
	}
	picked, err := workload.Pick(s.workloads)
	unless(err == nil, "--workload: %w", err)
	unless(!s.compose || !workload.NeedRedis(picked),
		"--workload: mirror needs a Redis that every node reaches, and containers reach none")
	faults, nemesisErr := nemesis.Pick(s.nemeses)
	unless(nemesisErr == nil, "--nemesis: %w", nemesisErr)
	if err == nil && nemesisErr == nil {
		problems = append(problems, s.secure(picked, faults))
	}
	return errors.Join(problems...)
}

// secure makes the cluster a secured one if workloads or faults need that. All workloads are then
// those that have tokens.
func (s *settings) secure(workloads []workload.Workload, faults []nemesis.Fault) error {
	s.secured = s.secured || workload.NeedSecrets(workloads) ||
		slices.ContainsFunc(faults, func(f nemesis.Fault) bool { return f.NeedsSecrets })
	switch {
	case !s.secured:
	case s.compose:
		return errors.New("--compose: the cluster of docker-compose.yml has no TLS and no tokens, as --secured, the " +
			"workload access and rotations of secrets need them")
	case s.workloads == "all":
		s.workloads = strings.Join(workload.Names(workload.Secured()), ",")
	case workload.NeedRedis(workloads):
		return errors.New("--workload: the processes of mirror have no token, and a cluster that is secured wants one")
	}
	return nil
}

// decided refuses flags whose values a command decides by itself.
func decided(flags *flag.FlagSet, names ...string) error {
	var problems []error
	flags.Visit(func(f *flag.Flag) {
		if slices.Contains(names, f.Name) {
			problems = append(problems, fmt.Errorf("--%s: %s decides that by itself", f.Name, flags.Name()))
		}
	})
	return errors.Join(problems...)
}

// setNetwork reads --network.
func (s *settings) setNetwork(text string) error {
	for _, mode := range []network.Mode{network.Auto, network.Namespaces, network.Loopback} {
		if mode.String() == text {
			s.network = mode
			return nil
		}
	}
	return fmt.Errorf("have %q, want auto, namespaces or loopback", text)
}

// command is what repeats the run, as a shell reads it.
func (s *settings) command() string {
	words := []string{
		"go", "run", "./jepsen", "run", "--nodes", fmt.Sprint(s.nodes), "--shards", fmt.Sprint(s.shards), "--time",
		s.time.String(),
		"--workload", s.workloads, "--nemesis", s.nemeses, "--seed", fmt.Sprint(s.seed), "--pace", s.pace.String(),
		"--calm", s.rhythm.Calm.String(), "--hold", s.rhythm.Hold.String(), "--snapshot-bytes", fmt.Sprint(s.snapshot),
		"--network", s.network.String(),
	}
	if s.compose {
		words = append(words, "--compose")
	}
	if s.secured {
		words = append(words, "--secured")
	}
	if s.rhythm.Once {
		words = append(words, "--once")
	}
	if s.program != "" {
		words = append(words, "--program", s.program)
	}
	if len(s.env) > 0 {
		words = slices.Concat([]string{"env"}, s.env, words)
	}
	return shell(words)
}

// again is what repeats a command of many runs, as a shell reads it: the flags that it was given,
// with the seed that it took.
func (s *settings) again(flags *flag.FlagSet) string {
	words := []string{"go", "run", "./jepsen", flags.Name()}
	flags.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "dir", "seed":
		case "network":
			words = append(words, "--network="+s.network.String())
		default:
			words = append(words, "--"+f.Name+"="+f.Value.String())
		}
	})
	return shell(append(words, fmt.Sprintf("--seed=%d", s.seed)))
}

// shell joins words to a command.
func shell(words []string) string {
	for i, word := range words {
		words[i] = quoted(word)
	}
	return strings.Join(words, " ")
}

// quoted returns a word as a shell reads it.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./,+=:@", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// list lists what there is.
func list(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "workload\t\t")
	for _, w := range workload.All() {
		fmt.Fprintf(table, "  %s\t%s\t\n", w.Name, w.What)
	}
	fmt.Fprintln(table, "nemesis\t\t")
	for _, f := range slices.Concat(nemesis.All(), nemesis.ContainerFaults()) {
		fmt.Fprintf(table, "  %s\t%s\t%d\n", f.Name, f.What, f.Number)
	}
	fmt.Fprintln(table, "no nemesis\t\t")
	for _, f := range nemesis.NotInjected() {
		why := "brought by the workload " + f.Workload
		if f.Workload == "" {
			why = "waits for " + f.Feature
		}
		fmt.Fprintf(table, "  %s\t%s\t%d\n", f.Fault, why, f.Number)
	}
	return table.Flush()
}
