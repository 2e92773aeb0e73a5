package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Result is what one phase of a workload measured.
type Result struct {
	Workload      string  `json:"workload"`
	Phase         string  `json:"phase"`
	Callers       int     `json:"callers"`
	Calls         uint64  `json:"calls"`
	Jobs          uint64  `json:"jobs"`
	Errors        uint64  `json:"errors"`
	Seconds       float64 `json:"seconds"`
	JobsPerSecond float64 `json:"jobsPerSecond"`
	// Latency is of calls; in the phases "put to arrival" and "lateness" of jobs.
	Latency Percentiles `json:"latency"`
	// OfferedPerSecond is the rate at which jobs were scheduled, 0 in phases without a schedule.
	// Saturated tells that jobs did not arrive at that rate, so that the latencies are those of a
	// backlog.
	OfferedPerSecond float64 `json:"offeredPerSecond,omitempty"`
	Saturated        bool    `json:"saturated,omitempty"`
	// Early counts jobs that came before their due time. Any is a broken promise.
	Early      uint64      `json:"early"`
	Memory     *MemoryCost `json:"memory,omitempty"`
	Collection *Collection `json:"collection,omitempty"`
}

// Percentiles are of durations, exact to three digits.
type Percentiles struct {
	P50, P90, P99, P999, Max time.Duration
}

// MemoryCost is what a server's jobs cost in memory.
type MemoryCost struct {
	// Before is without the jobs, Filled with them, as it comes, with what the collector had not
	// collected yet.
	Before      Memory  `json:"before"`
	Filled      Memory  `json:"filled"`
	BytesPerJob float64 `json:"bytesPerJob"`
	// Settled is after a collection, with unused memory given back; nil if that could not be done.
	Settled            *Memory `json:"settled,omitempty"`
	SettledBytesPerJob float64 `json:"settledBytesPerJob,omitempty"`
}

// MarshalJSON writes milliseconds, which people read, with the unit in the name.
func (p Percentiles) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		P50  float64 `json:"p50Ms"`
		P90  float64 `json:"p90Ms"`
		P99  float64 `json:"p99Ms"`
		P999 float64 `json:"p999Ms"`
		Max  float64 `json:"maxMs"`
	}{milliseconds(p.P50), milliseconds(p.P90), milliseconds(p.P99), milliseconds(p.P999), milliseconds(p.Max)})
}

// MarshalJSON writes milliseconds.
func (c Collection) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		CPU        float64 `json:"cpuMs"`
		ProcessCPU float64 `json:"processCpuMs"`
		Wall       float64 `json:"wallMs"`
	}{milliseconds(c.CPU), milliseconds(c.ProcessCPU), milliseconds(c.Wall)})
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// result makes a result of what was measured.
func (r *run) result(phase string, m measured, callers int) Result {
	micros := func(percentile float64) time.Duration {
		return time.Duration(m.latency.ValueAtPercentile(percentile)) * time.Microsecond
	}
	return Result{
		Workload: r.Workload, Phase: phase, Callers: callers, Calls: m.calls, Jobs: m.jobs, Errors: m.errors,
		Seconds: m.length.Seconds(), JobsPerSecond: float64(m.jobs) / max(m.length.Seconds(), 1e-9),
		Latency: Percentiles{
			P50: micros(50), P90: micros(90), P99: micros(99), P999: micros(99.9),
			Max: time.Duration(m.latency.Max()) * time.Microsecond,
		},
	}
}

func mebibytes(m Memory) float64 { return float64(m.ResidentBytes) / (1 << 20) }

// Write writes results as a table.
func Write(w io.Writer, results []Result) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "WORKLOAD\tPHASE\tCALLERS\tJOBS\tJOBS/S\tP50 MS\tP99 MS\tP99.9 MS\tMAX MS\tERRORS")
	for _, r := range results {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%.0f\t%.3f\t%.3f\t%.3f\t%.3f\t%d\n", r.Workload, r.Phase, r.Callers, r.Jobs,
			r.JobsPerSecond,
			milliseconds(r.Latency.P50), milliseconds(r.Latency.P99), milliseconds(r.Latency.P999), milliseconds(r.Latency.Max),
			r.Errors)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	for _, r := range results {
		if r.OfferedPerSecond > 0 {
			fmt.Fprintf(w, "%s: offered %.0f jobs a second, achieved %.0f%s\n", r.Phase, r.OfferedPerSecond, r.JobsPerSecond,
				saturation(r))
		}
		if m := r.Memory; m != nil {
			fmt.Fprintf(w, "resident memory: %.1f MiB before, %.1f MiB filled: %.1f bytes per pending job\n",
				mebibytes(m.Before), mebibytes(m.Filled), m.BytesPerJob)
			if m.Settled != nil {
				fmt.Fprintf(w, "after a collection, and with unused memory given back: %.1f MiB: %.1f bytes per pending job\n",
					mebibytes(*m.Settled), m.SettledBytesPerJob)
			}
		}
		if c := r.Collection; c != nil {
			fmt.Fprintf(w, "one cycle of the garbage collector: %.1f ms of processor time by the runtime's count, %.1f ms by "+
				"the system's, in %.1f ms\n",
				milliseconds(c.CPU), milliseconds(c.ProcessCPU), milliseconds(c.Wall))
		}
	}
	return nil
}

// saturation says what the latencies of a phase are worth that did not keep up.
func saturation(r Result) string {
	if !r.Saturated {
		return ""
	}
	return "; SATURATED: the jobs did not arrive at the offered rate, so these are the latencies of a backlog; lower " +
		"--rate or raise --callers"
}
