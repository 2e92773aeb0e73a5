package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/access"

	"github.com/belfrydb/belfry/jepsen/checker"
	"github.com/belfrydb/belfry/jepsen/report"
)

// The files of a run's directory.
const (
	recordName  = "run.json"
	historyName = "history.ndjson"
	passageName = "passages.ndjson"
	statusName  = "statuses.ndjson"
	verdictName = "verdict.json"
	pageName    = "run.html"
)

// record is what the harness knows of a run beside the history and the nodes' journals and logs:
// with them it is all that the judgement needs.
type record struct {
	Command   string    `json:"command"`
	Commit    string    `json:"commit"`
	Started   time.Time `json:"started"`
	Seed      uint64    `json:"seed"`
	Nodes     int       `json:"nodes"`
	Workloads []string  `json:"workloads"`
	Nemeses   []string  `json:"nemeses"`
	// Loaded is when clients had stopped, Healed when all faults had ended, Drained when the queues
	// were empty; 0 for what was not reached.
	Loaded  time.Duration `json:"loadedNs"`
	Healed  time.Duration `json:"healedNs"`
	Drained time.Duration `json:"drainedNs"`
	// Faults are the faults that struck, Clocks the errors of clocks, Removals the nodes that left the
	// cluster, Probes the attempts after the last fault.
	Faults   []report.Fault     `json:"faults"`
	Clocks   []checker.Clock    `json:"clocks"`
	Removals []checker.Removal  `json:"removals"`
	Flips    checker.Flips      `json:"flips"`
	Probes   []checker.Probe    `json:"probes"`
	Failures []report.Violation `json:"failures"`
	Counts   map[string]int64   `json:"counts"`
	// Journals are how long the journals are, by their names, Replicas how far they must reach at
	// least.
	Journals map[string]int64 `json:"journals"`
	Replicas []replica        `json:"replicas"`
	// Secured says that the cluster was secured, Roots are the tokens that nodes found in their files.
	Secured bool          `json:"secured,omitempty"`
	Roots   []access.Root `json:"roots,omitempty"`
	// Calls is how many calls the history has, Passages how many payloads came to Redis or left it.
	Calls    int `json:"calls"`
	Passages int `json:"passages,omitempty"`
	// Statuses is how many times nodes were asked how the cluster is, Stalls are the times in which
	// the harness did not get the processor.
	Statuses int            `json:"statuses,omitempty"`
	Stalls   []checker.Span `json:"stalls,omitempty"`
}

// itself is what a violation says that the run saw without a look at the history, beside what an
// invariant names.
const itself = "run"

// fail notes something that is wrong without a look at the history.
func (r *record) fail(invariant string, at time.Duration, format string, args ...any) {
	r.Failures = append(r.Failures, report.Violation{Invariant: invariant, At: at.Seconds(),
		Text: fmt.Sprintf(format, args...)})
}

// write keeps the record in the directory of its run.
func (r *record) write(dir string) error {
	return writeFile(filepath.Join(dir, recordName), func(w io.Writer) error {
		lines := json.NewEncoder(w)
		lines.SetIndent("", "  ")
		return lines.Encode(r)
	})
}

// readRecord reads what write wrote.
func readRecord(dir string) (*record, error) {
	file, err := os.Open(filepath.Join(dir, recordName))
	if err != nil {
		return nil, fmt.Errorf("this is no directory of a run: %w", err)
	}
	defer file.Close() //nolint:errcheck // it is only read
	in := json.NewDecoder(file)
	in.DisallowUnknownFields()
	r := &record{}
	if err := in.Decode(r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", recordName, err)
	}
	if in.More() {
		return nil, fmt.Errorf("reading %s: something follows the record", recordName)
	}
	return r, nil
}
