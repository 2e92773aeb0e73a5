// Command compare measures Belfry beside other queues. It starts one of them at a time on loopback,
// gives all the same work, and prints medians and ratios.
//
// The servers and their clients share the machine. Compare only rows of one run, as ratios; rates
// of different runs and machines say little.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/belfrydb/belfry/cmd/compare/peer"
)

// settings are the flags of the command.
type settings struct {
	rounds int
	budget time.Duration
	limit  time.Duration
	length time.Duration
	jobs   int64 // of the work pending
	peers  string
	works  string
	belfry string
	dir    string
	json   string
	add    string
	page   string
}

// data is a directory on the disk that is measured.
func (s settings) data() string {
	if s.dir == "" {
		return os.TempDir()
	}
	return s.dir
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "compare:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// run carries out the command.
func run(ctx context.Context, args []string) error {
	s := settings{}
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.IntVar(&s.rounds, "rounds", 5, "how often each work is done by each peer, together with what -add has; 0 "+
		"shows that only")
	flags.DurationVar(&s.budget, "budget", 0, "begin nothing new after so long; with -json and -add the same command "+
		"goes on")
	flags.DurationVar(&s.length, "time", 1500*time.Millisecond, "how long a phase takes")
	flags.DurationVar(&s.limit, "limit", 8*time.Minute, "how long a peer may take for one work")
	flags.Int64Var(&s.jobs, "pending", 1_000_000, "how many jobs wait in the works pending, pendingids and snapshots")
	flags.StringVar(&s.peers, "peers", "", "only these, with commas between: "+strings.Join(peer.Names(), ", "))
	flags.StringVar(&s.works, "works", "", "only these, with commas between: "+strings.Join(workNames(), ", "))
	flags.StringVar(&s.belfry, "belfry", "", "the program of Belfry; built if empty")
	flags.StringVar(&s.dir, "dir", "", "where the servers keep their data, on the disk that is to be measured; a "+
		"temporary directory if empty")
	flags.StringVar(&s.json, "json", "", "also write all samples to this file, as they come")
	flags.StringVar(&s.add, "add", "", "begin with the samples of these files of -json, with commas between; the one "+
		"that -json names may be missing")
	flags.StringVar(&s.page, "page", "", "also write a page to this file, as Markdown, with a plot beside it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	peers, err := choose(peer.All(), s.peers, func(p peer.Queue) string { return p.Name })
	if err != nil {
		return fmt.Errorf("-peers: %w", err)
	}
	works, err := choose(allWorks(), s.works, func(w work) string { return w.name })
	if err != nil {
		return fmt.Errorf("-works: %w", err)
	}
	if s.rounds < 0 || s.length < 100*time.Millisecond || s.jobs < pendingBatch || s.jobs%pendingBatch != 0 {
		return fmt.Errorf("-rounds must be 0 or more, -time 100ms or more, and -pending a multiple of %d", pendingBatch)
	}
	all, err := earlier(s)
	if err != nil {
		return err
	}
	if s.rounds > 0 {
		if all, err = measured(ctx, s, all, peers, works); err != nil && !errors.Is(err, errMore) {
			return err
		}
	}
	return errors.Join(show(os.Stdout, s, all), err)
}

// measured returns a record with what peers do now.
func measured(ctx context.Context, s settings, all record, peers []peer.Queue, works []work) (record, error) {
	if err := peer.Missing(peers); err != nil {
		return all, err
	}
	if err := raiseFiles(); err != nil {
		return all, err
	}
	stage, err := newStage(ctx, s)
	if err != nil {
		return all, err
	}
	defer stage.close()
	return stage.play(ctx, peers, works, all)
}

// raiseFiles lets this process and the servers that it starts have as many connections as the
// system allows: 10,000 callers have one each.
func raiseFiles() error {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("asking how many files may be open: %w", err)
	}
	files.Cur = files.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("raising how many files may be open: %w", err)
	}
	return nil
}

// choose picks from a list by names; an empty text picks all.
func choose[T any](all []T, names string, nameOf func(T) string) ([]T, error) {
	if names == "" {
		return all, nil
	}
	var chosen []T
	for _, name := range strings.Split(names, ",") {
		found := false
		for _, one := range all {
			if nameOf(one) == name {
				chosen, found = append(chosen, one), true
			}
		}
		if !found {
			return nil, fmt.Errorf("there is no %q", name)
		}
	}
	return chosen, nil
}
