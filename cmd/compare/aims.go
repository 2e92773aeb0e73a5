package main

import (
	"bytes"
	"fmt"
	"strings"
)

// An aim is a line of the table of what was aimed at.
type aim struct {
	work, must, aim string
	// check returns what was measured, and whether it is what must be; nothing if it was not measured.
	check func(m medians) (text string, reached verdict)
}

// verdict says whether a figure is what it must be.
type verdict int

const (
	no verdict = iota
	unknown
	yes
)

func (v verdict) String() string { return [...]string{"no", "–", "yes"}[v] }

// both is yes if all are, and no if one is.
func both(all ...verdict) verdict {
	if len(all) == 0 {
		return unknown
	}
	least := yes
	for _, v := range all {
		least = min(least, v)
	}
	return least
}

func is(ok bool) verdict {
	if ok {
		return yes
	}
	return no
}

// medians are samples that can be asked for the row of a peer.
type medians []sample

// row returns a peer's row in a part.
func (m medians) row(work, phase, peer string, jobs int64) (row, bool) {
	return find(rowsOf(m, part{work, phase, jobs}), peer)
}

const (
	one   = "belfry-one"
	three = "belfry-three"
	// million and tenMillion are the numbers of jobs of which the table speaks.
	million    = 1_000_000
	tenMillion = 10 * million
)

// ratio is that of two rates in one part.
func (m medians) ratio(work, phase, peer string) (float64, bool) {
	ours, ok := m.row(work, phase, peer, 0)
	base, there := m.row(work, phase, reference, 0)
	if !ok || !there || base.rate <= 0 {
		return 0, false
	}
	return ours.rate / base.rate, true
}

// need is the least ratio of a peer in a phase of a work.
type need struct {
	phase, peer string
	least       float64
}

// ratios checks rates against the reference.
func ratios(work string, needs ...need) func(m medians) (string, verdict) {
	return func(m medians) (string, verdict) {
		var parts []string
		reached := yes
		for _, n := range needs {
			got, ok := m.ratio(work, n.phase, n.peer)
			if !ok {
				reached = both(reached, unknown)
				continue
			}
			parts = append(parts, fmt.Sprintf("%s %s %.2f×", strings.TrimPrefix(n.peer, "belfry-"), n.phase, got))
			reached = both(reached, is(got >= n.least))
		}
		return strings.Join(parts, ", "), reached
	}
}

// aims are the lines of the table.
func aims() []aim {
	return []aim{
		{"puts, batches of 100", "three 2×, one 4.5× " + reference, "3.5×, 8×",
			ratios("batch", need{"put", three, 2}, need{"put", one, 4.5})},
		{"reserve and ack, batches of 100", "three 1.1×, one 2.5×", "2.2×, 4.5×",
			ratios("batch", need{"take", three, 1.1}, need{"take", one, 2.5})},
		{
			"512 single callers through the SDK, put / reserve and ack", "three 1.4× / 1.7×, one 2.6× / 3.5×",
			"2.5× / 3×, 4.5× / 6×",
			ratios("shared512", need{"put", three, 1.4}, need{"take", three, 1.7}, need{"put", one, 2.6},
				need{"take", one, 3.5}),
		},
		{
			"64 single callers through the SDK", "three 0.45× / 0.45×, one 0.9× / 1×", "1× / 1×, 1.5× / 2×",
			ratios("shared64", need{"put", three, 0.45}, need{"take", three, 0.45}, need{"put", one, 0.9}, need{"take", one, 1}),
		},
		{"plain Connect calls, 64 clients", "one 1.2×, three 0.8× lmstfy with appendfsync always, which is not measured here",
			"1.8×, 1.2×", plainCalls},
		{"servers' CPU for 100,000 batch puts, all three nodes together", "≤ 0.7× of one " + reference, "≤ 0.4×", batchCPU},
		{"lateness, 2,000 due a second, three nodes, p50 / p99", "≤ 4 / ≤ 9 ms, never early", "≤ 1.5 / ≤ 5", latenessAim},
		{"100,000 due in one second, 64 workers reserving up to 100, three nodes", "≤ 1.5 s", "≤ 1 s", herdAim},
		{"resident bytes a pending job and replica at rest, 10,000,000 jobs, generated ids", "≤ 230", "≤ 170", memoryAim},
		{"kill -9 to serving again, 1,000,000 / 10,000,000 pending", "≤ 1.5 s / ≤ 10 s", "≤ 1.2 s", againAim},
		{"six shards evenly loaded against one, three nodes", "≥ 0.6×", "≥ 0.9×", shardsAim},
		{"p99 of puts while snapshots of 10,000,000 jobs are written, against without", "≤ 3×", "unnoticed", snapshotAim},
	}
}

// aimTable writes what was aimed at and what was measured.
func aimTable(b *bytes.Buffer, samples []sample) {
	table := newTable(b, markdown, "work", "must reach", "aim", "measured", "reached")
	for _, a := range aims() {
		text, reached := a.check(medians(samples))
		if text == "" {
			text = "not measured"
		}
		table.line(a.work, a.must, a.aim, text, reached.String())
	}
	table.flush()
}

func plainCalls(m medians) (string, verdict) {
	var parts []string
	for _, peer := range []string{one, three} {
		for _, phase := range []string{"put", "take"} {
			if r, ok := m.row("single", phase, peer, 0); ok {
				parts = append(parts, fmt.Sprintf("%s %s %.0f/s", strings.TrimPrefix(peer, "belfry-"), phase, r.rate))
			}
		}
	}
	return strings.Join(parts, ", "), unknown
}

func batchCPU(m medians) (string, verdict) {
	ours, ok := m.row("batch", "put", three, 0)
	base, there := m.row("batch", "put", reference, 0)
	if !ok || !there || base.cpu <= 0 {
		return "", unknown
	}
	return fmt.Sprintf("%.2f s, %.2f×", ours.cpu, ours.cpu/base.cpu), is(ours.cpu <= 0.7*base.cpu)
}

func latenessAim(m medians) (string, verdict) {
	text, reached := "", unknown
	for _, way := range [][2]string{{"lateness", "SDK"}, {"lateplain", "plain calls"}} {
		r, ok := m.row(way[0], "late", three, 0)
		if !ok {
			continue
		}
		if text != "" {
			text += "; "
		} else {
			reached = is(r.half <= 4 && r.p99 <= 9 && r.early >= 0)
		}
		text += fmt.Sprintf("%s %.2f / %.2f ms, least %.2f", way[1], r.half, r.p99, r.early)
	}
	return text, reached
}

func herdAim(m medians) (string, verdict) {
	r, ok := m.row("herd", "herd", three, 0)
	if !ok {
		return "", unknown
	}
	return fmt.Sprintf("%.2f s", r.last/1000), is(r.last <= 1500)
}

func memoryAim(m medians) (string, verdict) {
	var parts []string
	all := []verdict{}
	for _, peer := range []string{one, three} {
		for _, jobs := range []int64{million, tenMillion} {
			for _, work := range []string{"pending", "pendingids"} {
				r, ok := m.row(work, "fill", peer, jobs)
				if !ok {
					continue
				}
				ids := ""
				if work == "pendingids" {
					ids = " with ids of 16 bytes"
				} else if jobs == tenMillion {
					all = append(all, is(r.perJob <= 230))
				}
				parts = append(parts, fmt.Sprintf("%s %.0f B (%d M%s)", strings.TrimPrefix(peer, "belfry-"), r.perJob,
					jobs/million, ids))
			}
		}
	}
	return strings.Join(parts, ", "), both(all...)
}

func againAim(m medians) (string, verdict) {
	var parts []string
	all := []verdict{}
	for _, limit := range []struct {
		jobs    int64
		seconds float64
	}{{million, 1.5}, {tenMillion, 10}} {
		for _, peer := range []string{one, three} {
			r, ok := m.row("pending", "again", peer, limit.jobs)
			if !ok {
				all = append(all, unknown)
				continue
			}
			all = append(all, is(r.seconds <= limit.seconds))
			parts = append(parts, fmt.Sprintf("%s %.2f s (%d M)", strings.TrimPrefix(peer, "belfry-"), r.seconds,
				limit.jobs/million))
		}
	}
	return strings.Join(parts, ", "), both(all...)
}

func shardsAim(m medians) (string, verdict) {
	var parts []string
	all := []verdict{}
	for _, phase := range []string{"put", "take"} {
		alone, ok := m.row("shards", phase+"-one", three, 0)
		spread, there := m.row("shards", phase+"-six", three, 0)
		if !ok || !there || alone.rate <= 0 {
			all = append(all, unknown)
			continue
		}
		all = append(all, is(spread.rate >= 0.6*alone.rate))
		parts = append(parts, fmt.Sprintf("%s %.2f×", phase, spread.rate/alone.rate))
	}
	return strings.Join(parts, ", "), both(all...)
}

func snapshotAim(m medians) (string, verdict) {
	var parts []string
	all := []verdict{}
	for _, jobs := range []int64{million, tenMillion} {
		for _, peer := range []string{one, three} {
			calm, ok := m.row("snapshots", "calm", peer, jobs)
			during, there := m.row("snapshots", "snapshot", peer, jobs)
			if !ok || !there || calm.p99 <= 0 {
				continue
			}
			parts = append(parts, fmt.Sprintf("%s %.2f ms to %.2f ms, %.1f× (%d M)", strings.TrimPrefix(peer, "belfry-"),
				calm.p99, during.p99, during.p99/calm.p99, jobs/million))
			if jobs == tenMillion {
				all = append(all, is(during.p99 <= 3*calm.p99))
			}
		}
	}
	return strings.Join(parts, ", "), both(all...)
}
