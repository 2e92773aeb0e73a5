package planted

// The mistakes of the machine in what falls due when, and in which order jobs leave.

func timeBugs() []Bug {
	return []Bug{
		{
			Name: "early-grant", What: "jobs become ready up to 200 ms before they are due, together with those that are",
			Claims: []string{"I8"}, Workloads: []string{"puts"},
			Edits: []Edit{
				{
					"fsm/machine/settle.go", `if at := o.FirstAt(); at != 0 && at <= m.scalars.Clock {`,
					`horizon := m.scalars.Clock
		if planted("early-grant") {
			horizon += fsm.Minute / 300
		}
		if at := o.FirstAt(); at != 0 && at <= horizon {`,
				},
				{
					"fsm/machine/settle.go", `if !ok || k.At > m.scalars.Clock {`,
					`horizon := m.scalars.Clock
		if planted("early-grant") && order == &q.Delayed {
			horizon += fsm.Minute / 300
		}
		if !ok || k.At > horizon {`,
				},
			},
		},
		{
			Name: "due-rounded-down", What: "a put's delay ends at the beginning of its last second",
			Claims: []string{"I8"}, Workloads: []string{"puts"},
			Edits: []Edit{after("fsm/rule/put.go", `j.FirstDue = now.After(c.Delay)`, `if planted("due-rounded-down") {
			j.FirstDue -= j.FirstDue % (fsm.Minute / 60)
		}`)},
		},
		{
			Name: "clock-runs-back", What: "a shard's clock is the wall clock of whoever leads, as it is (coolbeans)",
			Claims: []string{"I9"}, Workloads: []string{"puts"}, Nemeses: []string{"clock-back", "clock-forward"},
			Edits: []Edit{
				after("fsm/machine/machine.go", `m.scalars.Clock = max(before, e.Stamp)`, `if planted("clock-runs-back") {
		m.scalars.Clock = e.Stamp
	}`),
				after("node/clock/clock.go", `c.last = max(c.last, c.read())`, `if planted("clock-runs-back") {
		c.last = c.read()
	}`),
				before("node/clock/clock.go", `elapsed := mono - c.anchorMono`, `if planted("clock-runs-back") {
		return wall
	}`),
				ownWallClock(),
			},
		},
		{
			Name: "own-clock", What: "a leader stamps by its own wall clock and asks nobody what time it is",
			Claims: []string{"I10"}, Workloads: []string{"puts"}, Nemeses: []string{"clock-forward"},
			Edits: []Edit{
				{"node/shardtime.go", `if !others {`, `if !others || planted("own-clock") {`},
				{"node/shardtime.go", `if !current || fits {`, `if !current || fits || planted("own-clock") {`},
				ownWallClock(),
			},
		},
		{
			Name: "no-grace", What: "a new leader grants the leases of the one before no grace",
			Claims: []string{"I17"}, Workloads: []string{"stall", "deaths"}, Nemeses: []string{"transfer", "kill-leader"},
			Edits: []Edit{after("fsm/machine/settle.go", `floor := clock.After(c.Grace)`, `if planted("no-grace") {
		floor = clock
	}`)},
		},
	}
}

// ownWallClock has a node take its wall clock for the time.
func ownWallClock() Edit {
	return after("node/clock/nodeclock.go", `t := c.anchor.Add(elapsed)`,
		`if planted("own-clock") || planted("clock-runs-back") {
		t = wall
	}`)
}

func orderBugs() []Bug {
	return []Bug{
		{
			Name: "priority-ignored", What: "ready jobs leave by due time alone",
			Claims: []string{"I13"}, Workloads: []string{"herd"},
			Edits: []Edit{skipping("fsm/store/key.go", `k.Rank != l.Rank`, "priority-ignored")},
		},
		{
			Name: "map-order", What: "the order of a Go map decides which of several jobs that are due at one time is handed " +
				"out (coolbeans)",
			Claims: []string{"I25"}, Workloads: []string{"herd"},
			Edits: []Edit{after("fsm/machine/keyed.go", `k, _ := q.Ready.Min()`, `if k.Index != 0 && planted("map-order") {
			same := map[uint32]bool{}
			for other, more := k, true; more && other.At == k.At && other.Rank == k.Rank && len(same) < 64; {
				same[other.Index] = true
				other.Serial++
				other, more = q.Ready.From(other)
			}
			for index := range same {
				k.Index = index
				break
			}
		}`)},
		},
		{
			Name: "queue-crossed", What: "a reserve that finds too few jobs takes more from the queue whose name comes next",
			Claims: []string{"I37"}, Workloads: []string{"partitions"},
			Edits: []Edit{after("fsm/machine/lease.go", `m.reserveFrom(q, &r)`, `if planted("queue-crossed") && !r.full {
				m.queues.names.AscendGreaterOrEqual(name, func(next string) bool {
					if next == name {
						return true
					}
					m.settleQueue(m.queues.byName[next])
					m.reserveFrom(m.queues.byName[next], &r)
					return false
				})
			}`)},
		},
		{
			Name:   "body-of-another",
			What:   "of several jobs handed out at once all but the first have the body of the one before",
			Claims: []string{"I2"}, Workloads: []string{"batches"},
			Edits: []Edit{after("fsm/listing/page.go", `jobs[i].Body = room[start:len(room):len(room)]`,
				`if i > 0 && planted("body-of-another") {
			jobs[i].Body = jobs[i-1].Body
		}`)},
		},
	}
}
