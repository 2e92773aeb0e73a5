package bench

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Memory is what a process uses at one moment.
type Memory struct {
	// ResidentBytes is what the operating system counts as the process's memory.
	ResidentBytes uint64 `json:"residentBytes"`
	// HeapBytes is what is alive on Go's heap, 0 if that is not known.
	HeapBytes uint64 `json:"heapBytes"`
}

// Collection is what one cycle of the garbage collector cost.
type Collection struct {
	// CPU is what the runtime counts for the cycle: the time for which its workers had a processor, or
	// believed so. Where other processes compete for the machine it is too high.
	CPU time.Duration
	// ProcessCPU is what the operating system counts for the process meanwhile, sweeping included.
	ProcessCPU time.Duration
	// Wall is how long it took.
	Wall time.Duration
}

// OwnMemory returns what this process uses.
func OwnMemory(context.Context) (Memory, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return Memory{}, fmt.Errorf("reading the resident memory: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return Memory{}, fmt.Errorf("reading the resident memory: %q has no second field", text)
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return Memory{}, fmt.Errorf("reading the resident memory: %w", err)
	}
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return Memory{
		ResidentBytes: pages * uint64(os.Getpagesize()), HeapBytes: sample[0].Value.Uint64(),
	}, nil //nolint:gosec // positive
}

// CollectOwn runs this process's garbage collector once, and gives unused memory back to the
// operating system. The figure is of the whole cycle, also of what otherwise idle processors did
// for it.
func CollectOwn() Collection {
	runtime.GC() // ends a cycle that may be under way, so that the next is whole
	before, processBefore, began := collectorCPU(), processCPU(), time.Now()
	runtime.GC()
	cost := Collection{Wall: time.Since(began), CPU: collectorCPU() - before, ProcessCPU: processCPU() - processBefore}
	debug.FreeOSMemory()
	return cost
}

// processCPU returns the processor time of this process; 0 if the system does not tell.
func processCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// collectorCPU returns the processor time that the collector has used; the runtime brings it up to
// date with each cycle.
func collectorCPU() time.Duration {
	sample := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(sample)
	return time.Duration(sample[0].Value.Float64() * float64(time.Second))
}

// ServerMemory returns a function that reads a server's memory from its metrics page with a client.
func ServerMemory(caller *http.Client, url string) func(context.Context) (Memory, error) {
	return func(ctx context.Context) (Memory, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
		if err != nil {
			return Memory{}, fmt.Errorf("reading the server's metrics: %w", err)
		}
		response, err := caller.Do(request)
		if err != nil {
			return Memory{}, fmt.Errorf("reading the server's metrics: %w", err)
		}
		defer response.Body.Close()
		var m Memory
		lines := bufio.NewScanner(response.Body)
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), " ")
			number, err := strconv.ParseFloat(value, 64)
			switch {
			case err != nil:
			case name == "process_resident_memory_bytes":
				m.ResidentBytes = uint64(number)
			case name == "go_memstats_heap_alloc_bytes":
				m.HeapBytes = uint64(number)
			}
		}
		if err := lines.Err(); err != nil {
			return Memory{}, fmt.Errorf("reading the server's metrics: %w", err)
		}
		if m.ResidentBytes == 0 {
			return Memory{}, fmt.Errorf("%s/metrics has no process_resident_memory_bytes", url)
		}
		return m, nil
	}
}
