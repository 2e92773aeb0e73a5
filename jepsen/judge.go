package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker"
	"github.com/belfrydb/belfry/jepsen/history"
	"github.com/belfrydb/belfry/jepsen/lab"
	"github.com/belfrydb/belfry/jepsen/report"
)

// clockBound is the server's default.
const clockBound = 500 * time.Millisecond

// recheck judges a run again that was kept.
func recheck(_ context.Context, args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("check takes the directory of a run")
	}
	kept, err := readRecord(args[0])
	if err != nil {
		return err
	}
	file, err := os.Open(filepath.Join(args[0], historyName))
	if err != nil {
		return fmt.Errorf("opening the history: %w", err)
	}
	defer file.Close() //nolint:errcheck // it is only read
	h, err := history.Read(file)
	if err != nil {
		return err
	}
	if h.Len() != kept.Calls {
		return fmt.Errorf("the history has %d calls, not %d as when it was written", h.Len(), kept.Calls)
	}
	if err := errors.Join(readPassages(args[0], kept, h), readStatuses(args[0], kept, h)); err != nil {
		return err
	}
	r, err := judge(args[0], kept, h)
	if err != nil {
		return err
	}
	return say(out, r, args[0])
}

// say prints what a run says, and returns whether it is valid.
func say(out io.Writer, r *report.Report, dir string) error {
	fmt.Fprint(out, report.Summary(r, filepath.Join(dir, pageName)))
	if r.Verdict != report.Valid {
		return errInvalid
	}
	return nil
}

// judgeGC is the growth of the heap in percent before a collection while a run is judged. A check
// keeps nearly everything that it allocates until its end, some 4.5 KB a call. So collections free
// little, and they took a third of a check's time.
const judgeGC = 400

// judge holds a run against the promises, and writes the verdict and the page.
func judge(dir string, kept *record, h *history.History) (*report.Report, error) {
	journals, err := readJournals(filepath.Join(dir, lab.JournalsDir), kept.Journals)
	if err != nil {
		return nil, err
	}
	elections, err := readElections(filepath.Join(dir, lab.LogsDir))
	if err != nil {
		return nil, err
	}
	began := time.Now()
	defer debug.SetGCPercent(debug.SetGCPercent(judgeGC))
	if len(elections) == 0 {
		kept.fail(itself, 0, "no node's log tells of an election")
	}
	kept.Failures = append(kept.Failures, cutShort(kept.Replicas, journals)...)
	verdict := checker.Check(&checker.Run{
		History: h, Journals: journals, Elections: elections, Clocks: kept.Clocks, Removals: kept.Removals, Flips: kept.Flips,
		Probes: kept.Probes,
		Faults: spans(kept.Faults), Healed: kept.Healed, Drained: kept.Drained, ClockBound: clockBound,
		Secured: kept.Secured, Roots: kept.Roots, Strikes: strikes(kept.Faults), Stalls: kept.Stalls,
	})
	r := kept.report(&verdict, h)
	r.CheckSeconds = time.Since(began).Seconds()
	err = writeFile(filepath.Join(dir, verdictName), func(w io.Writer) error { return report.WriteJSON(w, r) })
	if err != nil {
		return nil, err
	}
	return r, writeFile(filepath.Join(dir, pageName), func(w io.Writer) error { return report.WritePage(w, r) })
}

// spans are the times of faults. Not nil, since they are known, also if there were none.
func spans(faults []report.Fault) []checker.Span {
	all := make([]checker.Span, 0, len(faults))
	for _, f := range faults {
		all = append(all, checker.Span{From: asDuration(f.From), To: asDuration(f.To)})
	}
	return all
}

func asDuration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// report puts together what a run says.
func (r *record) report(verdict *checker.Verdict, h *history.History) *report.Report {
	out := &report.Report{
		Command: r.Command, Commit: r.Commit, Started: r.Started, Seed: r.Seed, Nodes: r.Nodes, Workloads: r.Workloads,
		Nemeses: r.Nemeses,
		Checks:  slices.Clone(verdict.Checks), Counts: maps.Clone(r.Counts), Faults: slices.Clone(r.Faults),
		LoadSeconds: r.Loaded.Seconds(), Verdict: report.Valid, Seconds: seconds(h),
	}
	if out.Counts == nil {
		out.Counts = map[string]int64{}
	}
	maps.Copy(out.Counts, verdict.Counts)
	out.Counts["calls"] = int64(h.Len())
	judged(out.Faults, verdict.Availability)
	for i, longest := range outages(h, out.Faults, r.Loaded) {
		out.Faults[i].Outage = longest.Seconds()
	}
	for _, p := range r.Probes {
		out.Probes = append(out.Probes, report.Probe{Name: p.Name, Took: p.Took.Seconds(), Limit: p.Limit.Seconds(),
			Failure: p.Failure})
	}
	slices.SortFunc(out.Faults, func(a, b report.Fault) int { return cmp.Compare(a.From, b.From) })
	failures := slices.Concat(r.Failures, r.unproven(verdict, h))
	for _, f := range failures {
		i := slices.IndexFunc(out.Checks, func(c report.Check) bool { return c.Invariant == f.Invariant })
		if i < 0 {
			out.Checks, i = append(out.Checks, report.Check{Invariant: f.Invariant, Title: "what the run itself saw",
				Looked: 1}), len(out.Checks)
		}
		out.Checks[i].Violations++
	}
	out.Violations = slices.Concat(failures, verdict.Violations)
	if len(out.Violations) > 0 {
		out.Verdict = report.Invalid
	}
	return out
}

// unproven says what of a run is missing, without which nothing was proven.
func (r *record) unproven(verdict *checker.Verdict, h *history.History) (missing []report.Violation) {
	unless := func(there bool, text string) {
		if !there {
			missing = append(missing, report.Violation{Invariant: itself, Text: text})
		}
	}
	unless(slices.ContainsFunc(verdict.Checks, func(c report.Check) bool { return c.Looked > 0 }), "nothing was checked")
	unless(slices.ContainsFunc(h.Ops(), (*history.Op).OK), "no call was answered")
	unless(r.Healed > 0, "the run did not get beyond its faults")
	unless(len(r.Probes) > 0, "the cluster was not tried after the last fault")
	unless(r.Drained > 0, "the queues were not emptied")
	unless(len(r.Replicas) > 0, "the replicas were not seen to be equal")
	return missing
}

// writeFile makes a file of what write writes.
func writeFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing a file of the run: %w", err)
	}
	out := bufio.NewWriterSize(file, 1<<20)
	if err := errors.Join(write(out), out.Flush(), file.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// electionWon is what a node logs when it has won an election.
const electionWon = "raft: election won"

// readElections finds in the nodes' logs the elections that they won.
func readElections(dir string) ([]checker.Election, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, fmt.Errorf("looking for logs: %w", err)
	}
	var elections []checker.Election
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading a node's log: %w", err)
		}
		node := strings.TrimSuffix(filepath.Base(path), ".log")
		for line := range bytes.Lines(text) {
			if !bytes.Contains(line, []byte(electionWon)) {
				continue
			}
			var said struct {
				Message string    `json:"msg"`
				Group   string    `json:"group"`
				Term    uint64    `json:"term"`
				Time    time.Time `json:"time"`
			}
			if err := json.Unmarshal(line, &said); err != nil || said.Message != electionWon {
				continue // the last line of a killed process may be torn
			}
			elections = append(elections, checker.Election{Node: node, Group: said.Group, Term: said.Term,
				At: said.Time})
		}
	}
	return elections, nil
}
