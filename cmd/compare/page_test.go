package main

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cmd/compare/peer"
)

var update = flag.Bool("update", false, "write the pages of made-up samples to testdata")

// madeUp are samples that were not measured: round figures, in which Belfry is ahead in some and
// behind in others.
func madeUp() record {
	at := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	versions := map[string]string{one: "Belfry made-up", three: "Belfry made-up", reference: "Redis made-up",
		"beanstalkd-log": "beanstalkd made-up", "nats-three": "NATS made-up"}
	all := record{Runs: []invocation{{Began: at, Machine: "a machine that is not there", Commit: "made-up", Seconds: 1.5,
		Pending: tenMillion, Versions: versions}}}
	rates := map[string]float64{one: 500, three: 150, reference: 100, "redis-always-auto": 200, "beanstalkd-log": 300,
		"nats-three": 40}
	for round, noise := range []float64{0.9, 1.1} {
		for _, p := range peer.All() {
			rate := rates[p.Name]
			add := func(work, phase string, s sample) {
				if rate > 0 {
					s.Round, s.Work, s.Phase, s.Peer = round, work, phase, p.Name
					all.Samples = append(all.Samples, s)
				}
			}
			for _, work := range []string{"batch", "shared64", "shared512"} {
				add(work, "put", sample{Jobs: int64(1000 * rate * noise), Seconds: 1, CPU: 0.5, ClientCPU: 0.25, Resident: 50e6,
					Half: 1, Most99: 2, Most: 3})
				add(work, "take", sample{Jobs: int64(500 * rate * noise), Seconds: 1, CPU: 0.5, ClientCPU: 0.25, Resident: 50e6,
					Half: 1, Most99: 2, Most: 3})
			}
			if p.Name == "nats-three" || p.Name == "redis-always-auto" {
				continue
			}
			add("lateness", "late", sample{Jobs: 3000, Seconds: 3, CPU: 0.3, Least: 0.1, Half: 300 / rate, Most99: 900 / rate,
				Most: 2000 / rate})
			add("herd", "herd", sample{Jobs: herdJobs, Seconds: 2, CPU: 0.3, Half: 400, Most99: 800, Most: 1000 * noise})
			add("pending", "fill", sample{Jobs: tenMillion, Seconds: 50, CPU: 40, PerJob: 160 + rate/5})
			add("pending", "again", sample{Jobs: tenMillion, Seconds: 8 * noise})
			if p.Belfry {
				add("shards", "put-one", sample{Jobs: 100_000, Seconds: 1})
				add("shards", "put-six", sample{Jobs: 50_000, Seconds: 1})
				add("shards", "take-one", sample{Jobs: 100_000, Seconds: 1})
				add("shards", "take-six", sample{Jobs: 90_000, Seconds: 1})
				add("snapshots", "calm", sample{Jobs: tenMillion, Seconds: 1, Half: 1, Most99: 2, Most: 3})
				add("snapshots", "snapshot", sample{Jobs: tenMillion, Seconds: 1, Half: 1, Most99: 5, Most: 8})
			}
		}
	}
	failed := sample{Work: "herd", Phase: failedPhase, Peer: "beanstalkd-log", Failed: "made-up: it was too slow"}
	all.Samples = append(all.Samples, failed)
	return all
}

// TestPage compares a page and its plot with ones that people looked at.
func TestPage(t *testing.T) {
	text, picture := page(madeUp(), "page.svg")
	for _, file := range []struct {
		name string
		got  []byte
	}{{"page.md", text}, {"page.svg", picture}} {
		path := filepath.Join("testdata", file.name)
		if *update {
			if err := os.WriteFile(path, file.got, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != string(file.got) {
			t.Errorf("%s is another; go test ./cmd/compare -update writes it, and git diff shows what is new", file.name)
		}
	}
}

// TestPlotIsXML: a viewer refuses what is not.
func TestPlotIsXML(t *testing.T) {
	for name, samples := range map[string][]sample{"made-up": madeUp().Samples, "none": nil} {
		decoder := xml.NewDecoder(strings.NewReader(string(plot(samples))))
		for {
			_, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
}

// TestAims: each line says yes, no, or that it does not know.
func TestAims(t *testing.T) {
	verdicts := func(samples []sample) string {
		var all []string
		for _, a := range aims() {
			_, reached := a.check(samples)
			all = append(all, reached.String())
		}
		return strings.Join(all, " ")
	}
	if got, want := verdicts(nil), "– – – – – – – – – – – –"; got != want {
		t.Errorf("of nothing: %s, want %s", got, want)
	}
	// The order of aims: batch put and take, 512 and 64 callers, plain calls, CPU, lateness, herd,
	// memory, kill -9, shards, snapshots.
	if got, want := verdicts(madeUp().Samples), "no yes no yes – yes yes yes no – no yes"; got != want {
		t.Errorf("of the made-up samples: %s, want %s", got, want)
	}
}

// TestLost: a queue that is ahead is named with the factor and a star, and one that is behind or
// early is not.
func TestLost(t *testing.T) {
	fewer := contest{of: func(r row) float64 { return r.half }}
	rows := []row{{peer: one, half: 2}, {peer: three, half: 1}, {peer: reference, half: 0.5}, {peer: "nats-one", half: 1},
		{peer: "redisson-always", half: -1}, {peer: "beanstalkd-sync", half: 3}}
	if got, want := fewer.ahead(rows[0], rows), `redis-always 4.00×, nats-one\* 2.00×`; got != want {
		t.Errorf("ahead are %s, want %s", got, want)
	}
	fewer.more = true
	if got, want := fewer.ahead(rows[0], rows), `beanstalkd-sync 1.50×`; got != want {
		t.Errorf("ahead are %s, want %s", got, want)
	}
}

// TestXOf: twice and half as fast are as far from the middle, and nothing is drawn outside.
func TestXOf(t *testing.T) {
	right, left := xOf(2)-xOf(1), xOf(1)-xOf(0.5)
	if fmt.Sprintf("%.6f", right) != fmt.Sprintf("%.6f", left) || right <= 0 {
		t.Errorf("2 is %v to the right, a half %v to the left", right, left)
	}
	for _, ratio := range []float64{0, 1e-9, 1e9} {
		if x := xOf(ratio); x < plotLeft || x > plotRight {
			t.Errorf("%v is at %v", ratio, x)
		}
	}
}
