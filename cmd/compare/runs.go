package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/belfrydb/belfry/cmd/compare/peer"
)

// A record is everything that is known of one or several invocations, enough for a page.
type record struct {
	Runs    []invocation `json:"runs"`
	Samples []sample     `json:"samples"`
}

// An invocation is one run of this program.
type invocation struct {
	Began   time.Time `json:"began"`
	Machine string    `json:"machine"`
	// Commit is that from which Belfry was built, empty if it is not known.
	Commit string `json:"commit,omitempty"`
	// Seconds and Pending are what was asked for.
	Seconds float64 `json:"phaseSeconds"`
	Pending int64   `json:"pendingJobs"`
	// Versions are those of the peers that ran, by name.
	Versions map[string]string `json:"versions"`
}

// readRecord reads a file of samples. If it may be missing, a missing one has none.
func readRecord(path string, mayBeMissing bool) (record, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the user named it
	if mayBeMissing && errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("reading the samples in %s: %w", path, err)
	}
	return r, nil
}

// write writes a record to a file, which is the old or the new one whatever happens.
func (r record) write(path string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// earlier reads the files that -add names.
func earlier(s settings) (record, error) {
	var all record
	if s.add == "" {
		return all, nil
	}
	for _, path := range strings.Split(s.add, ",") {
		one, err := readRecord(path, path == s.json)
		if err != nil {
			return all, fmt.Errorf("-add: %w", err)
		}
		all.Runs, all.Samples = append(all.Runs, one.Runs...), append(all.Samples, one.Samples...)
	}
	return all, nil
}

// has reports whether a peer has done a work in a round, with so many jobs if that is what the work
// depends on.
func (r record) has(round int, w work, p peer.Queue, jobs int64) bool {
	return slices.ContainsFunc(r.Samples, func(s sample) bool {
		return s.Round == round && s.Work == w.name && s.Peer == p.Name && (!w.sized || s.Jobs == jobs)
	})
}

// rounds is how many rounds there are.
func (r record) rounds() int {
	most := 0
	for _, s := range r.Samples {
		most = max(most, s.Round+1)
	}
	return most
}

// invocations describes the runs, those that differ in nothing but the time in one line.
func (r record) invocations() []string {
	var lines []string
	times := map[string][]string{}
	for _, run := range r.Runs {
		var names []string
		for _, p := range peer.All() {
			if _, ok := run.Versions[p.Name]; ok {
				names = append(names, p.Name)
			}
		}
		what := fmt.Sprintf("%s; phases of %v, %d jobs where they wait; %s", run.Machine,
			time.Duration(run.Seconds*float64(time.Second)), run.Pending, strings.Join(names, ", "))
		if run.Commit != "" {
			what += "; Belfry of commit " + run.Commit
		}
		if times[what] == nil {
			lines = append(lines, what)
		}
		times[what] = append(times[what], run.Began.Format("2006-01-02 15:04"))
	}
	for n, what := range lines {
		at := times[what]
		when := at[0]
		if len(at) > 1 {
			when = fmt.Sprintf("%s to %s, %d invocations", at[0], at[len(at)-1], len(at))
		}
		lines[n] = when + ": " + what
	}
	return lines
}

// versions are those of all invocations; peers of different versions have both.
func (r record) versions() map[string]string {
	all := map[string]string{}
	for _, run := range r.Runs {
		for name, version := range run.Versions {
			switch have := all[name]; {
			case have == "":
				all[name] = version
			case !strings.Contains(have, version):
				all[name] = have + "; " + version
			}
		}
	}
	return all
}

// newInvocation describes this run.
func newInvocation(s settings, commit string) invocation {
	return invocation{Began: time.Now().UTC().Truncate(time.Second), Machine: machine(s.data()), Commit: commit,
		Seconds: s.length.Seconds(), Pending: s.jobs, Versions: map[string]string{}}
}

// machine describes this machine, as far as it says what it is; dir is on the disk that is used.
func machine(dir string) string {
	parts := []string{fmt.Sprintf("%d processors", runtime.NumCPU())}
	if model := after(textOf("/proc/cpuinfo"), "model name\t: "); model != "" {
		parts[0] += " (" + model + ")"
	}
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) == nil {
		parts = append(parts, fmt.Sprintf("%.0f GiB of memory", float64(info.Totalram)*float64(info.Unit)/(1<<30)))
	}
	if kind := fileSystem(dir); kind != "" {
		parts = append(parts, kind)
	}
	if release := strings.TrimSpace(textOf("/proc/sys/kernel/osrelease")); release != "" {
		parts = append(parts, "Linux "+release)
	}
	return strings.Join(append(parts, runtime.Version()), ", ")
}

// fileSystem names the file system of a directory, "" if it is not known.
func fileSystem(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	best, kind := "", ""
	for line := range strings.Lines(textOf("/proc/self/mounts")) {
		fields := strings.Fields(line)
		if len(fields) < 3 || len(fields[1]) < len(best) {
			continue
		}
		if at := fields[1]; at == "/" || dir == at || strings.HasPrefix(dir, at+"/") {
			best, kind = at, fields[2]
		}
	}
	return kind
}

// after returns the rest of the first line that begins so.
func after(text, begin string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, begin); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

func textOf(path string) string {
	text, _ := os.ReadFile(path) //nolint:gosec // constants
	return string(text)
}
