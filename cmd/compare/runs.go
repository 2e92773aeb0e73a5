package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
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
	// Rounds and Seconds are what was asked for.
	Rounds  int     `json:"rounds"`
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
func newInvocation(s settings) invocation {
	return invocation{Began: time.Now().UTC().Truncate(time.Second), Machine: machine(s.data()), Rounds: s.rounds, Seconds: s.length.Seconds(), Pending: s.jobs, Versions: map[string]string{}}
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
