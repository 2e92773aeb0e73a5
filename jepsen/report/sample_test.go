package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// small is a report in which everything occurs once or twice.
func small() *Report {
	return &Report{
		Command: "go run ./jepsen run --nodes 3 --time 12s --workload delays,herd --nemesis kill-leader,halves --seed 42",
		Commit:  "0123456789ab",
		Started: time.Date(2031, 4, 5, 6, 7, 8, 0, time.UTC), Seed: 42, Nodes: 3,
		Workloads: []string{"delays", "herd"}, Nemeses: []string{"kill-leader", "halves", "pause-all"},
		Verdict: Invalid,
		Violations: []Violation{
			{Invariant: "I8", At: 5.25, Text: "shard 3, index 812: job 77 was handed out 1.2 s before it was due"},
			{Invariant: "I19", At: 9, Text: "shard 1, index 40: job 5 was handed out again after its ack"},
		},
		Checks: []Check{
			{Invariant: "I1", Title: "every job that was put is delivered or still there", Looked: 4210, Seconds: 0.0123},
			{Invariant: "I8", Title: "nothing is delivered before it is due", Looked: 4100, Violations: 3, Seconds: 0.2},
			{Invariant: "I19", Title: "what was acked is not delivered again", Looked: 3900, Violations: 1, Seconds: 1.5},
			{Invariant: "I22", Title: "dead letters, exactly once", Looked: 0},
		},
		Counts: map[string]int64{"calls": 12345, "elections": 2, "jobs": 4210},
		Seconds: []Second{
			{Applied: 400, Latency: Quantiles{400, 1.5, 8, 12}, Lateness: Quantiles{100, 0.4, 3, 9}},
			{Applied: 410, Latency: Quantiles{410, 1.4, 7, 11}, Lateness: Quantiles{100, 0.5, 4, 9}},
			{Applied: 390, NotApplied: 2, Latency: Quantiles{390, 1.6, 9, 30}, Lateness: Quantiles{90, 0.4, 3, 9}},
			{Applied: 20, NotApplied: 55, Unknown: 4, Latency: Quantiles{20, 90, 700, 1200}},
			{NotApplied: 9},
			{},
			{Applied: 250, Latency: Quantiles{250, 2, 1800, 2400}, Lateness: Quantiles{300, 900, 3100, 3200}},
			{Applied: 400, Latency: Quantiles{400, 1.5, 8, 12}, Lateness: Quantiles{100, 0.4, 3, 9}},
			{Applied: 402, Latency: Quantiles{402, 1.5, 8, 12}, Lateness: Quantiles{100, 0.4, 3, 9}},
			{Applied: 398, Latency: Quantiles{398, 1.5, 8, 12}, Lateness: Quantiles{100, 0.4, 3, 9}},
			{Applied: 100, Latency: Quantiles{100, 1.5, 8, 12}},
			{},
		},
		Faults: []Fault{
			{Name: "kill-leader", Text: "n2, leader of data-0, killed and started again", From: 3.1, To: 5.5, Outage: 1.8},
			{
				Name: "halves", Text: "n1 | n2 n3", From: 4, To: 5.75, Outage: 2.25,
				Effect: &Effect{Began: 4, Struck: 4.1, Healing: 5.7, Healthy: []string{"n2", "n3"}, Victims: []string{"n1"}},
				Availability: &Availability{Served: map[string]float64{"n2": 1.5, "n3": 0.75},
					Named: map[string]float64{"n2": 2.5}},
			},
			{Name: "kill-leader", Text: "n1, leader of data-1, killed and started again", From: 8.2, To: 8.4, Outage: 0.04},
		},
		Probes: []Probe{
			{Name: "the cluster is whole again", Took: 1.25, Limit: 120},
			{Name: "all replicas are equal", Took: 120, Limit: 120, Failure: "n2 has other jobs"},
		},
		LoadSeconds: 10.4, CheckSeconds: 1.75,
	}
}

// a run of so many seconds, faults and violations, as a cluster would behave; the same for the same
// numbers.
type made struct{ seconds, faults, violations int }

func (m made) report() *Report {
	rng := rand.New(rand.NewPCG(uint64(m.seconds), uint64(m.faults))) //nolint:gosec // it makes up a picture
	r := small()
	r.Seed, r.Violations, r.Checks, r.Probes, r.Verdict = rng.Uint64(), nil, nil, nil, Valid
	r.LoadSeconds = float64(m.seconds) * 0.95
	r.Workloads = []string{"delays", "herd", "races", "stalled leases", "retries", "batches", "several queues",
		"dying workers", "same id", "admin"}
	r.Nemeses = madeNames()
	r.Command = fmt.Sprintf("go run ./jepsen run --nodes 5 --time %ds --workload delays,herd,races --nemesis all "+
		"--seed %d", m.seconds, r.Seed)
	r.Faults = m.madeFaults(rng)
	r.Seconds = make([]Second, m.seconds)
	for i := range r.Seconds {
		r.Seconds[i] = r.madeSecond(rng, float64(i))
	}
	titles := []string{"every job that was put is delivered or still there", "nothing is delivered before it is due",
		"one live lease at a time", "replicas have the same digest"}
	for i := range 39 {
		r.Checks = append(r.Checks, Check{Invariant: fmt.Sprintf("I%d", i+1), Title: titles[i%len(titles)],
			Looked: int64(rng.IntN(900_000)) * int64(min(1, i%9)), Seconds: rng.Float64() / 3})
	}
	for i := range m.violations {
		c := &r.Checks[1+i%7]
		c.Violations += 1 + int64(rng.IntN(2))
		c.Looked += 100
		at := math.Floor(rng.Float64()*float64(m.seconds)*1000) / 1000
		r.Violations = append(r.Violations, Violation{c.Invariant,
			at, fmt.Sprintf("shard %d, index %d: job %d was handed out %d ms before it was due, while its lease was held by "+
				"another worker", rng.IntN(8), rng.IntN(1e6), rng.IntN(1e6), rng.IntN(4000))})
		r.Verdict = Invalid
	}
	r.Counts = map[string]int64{"bytes lost in power cuts": 18_234_112, "calls": 1_834_221, "elections": 88,
		"jobs": 912_331, "processes started": 131, "snapshots": 412, "snapshots installed": 17}
	return r
}

func madeNames() []string {
	return []string{"kill-leader", "halves", "pause", "lose-unsynced-all", "slow-disk", "clock-back", "one-way", "flap",
		"bit-flip-log", "transfer-storm", "kill-majority", "hung-disk"}
}

func (m made) madeFaults(rng *rand.Rand) []Fault {
	var faults []Fault
	for range m.faults {
		name := madeNames()[rng.IntN(len(madeNames()))]
		from := math.Floor(rng.Float64()*float64(m.seconds)*900) / 1000
		to := from + 0.5 + math.Floor(rng.ExpFloat64()*8000)/1000
		faults = append(faults, Fault{
			Name: name, Text: fmt.Sprintf("n%d, leader of data-%d, and what follows from it", 1+rng.IntN(5), rng.IntN(4)),
			From: from, To: min(to, float64(m.seconds)), Outage: float64(rng.IntN(4000)) / 1000,
		})
	}
	slices.SortFunc(faults, func(a, b Fault) int {
		if a.From < b.From {
			return -1
		}
		return 1
	})
	return faults
}

func (r *Report) madeSecond(rng *rand.Rand, at float64) Second {
	trouble := 0
	for _, f := range r.Faults {
		if f.From < at+1 && at < f.To {
			trouble++
		}
	}
	noise := func(of float64) float64 { return math.Round(of*math.Exp(rng.NormFloat64()/5)*1000) / 1000 }
	s := Second{Applied: int64(noise(2400))}
	if at >= r.LoadSeconds {
		s.Applied = int64(noise(60))
	}
	p50, p99 := noise(1.4), noise(14)
	if trouble > 0 {
		s.Applied, s.NotApplied, s.Unknown = s.Applied/int64(1+trouble), int64(noise(60)), int64(rng.IntN(6))
		p50, p99 = noise(4), noise(600)
		if rng.IntN(7) == 0 {
			return Second{NotApplied: int64(noise(30))}
		}
	}
	s.Latency = Quantiles{s.Applied, p50, p99, p99 + noise(20)}
	s.Lateness = Quantiles{s.Applied / 3, p50 / 4, p99 / 4, p99/4 + noise(p99)}
	return s
}
