package planted

// The mistakes of the machine in leases and attempts.

func leaseBugs() []Bug {
	return []Bug{
		{
			Name: "fence-kept", What: "a job has one fence for all its grants",
			Claims: []string{"I15"}, Workloads: []string{"stall", "retries"}, Edits: []Edit{grantTerms()},
		},
		{
			Name: "lease-halved", What: "a lease lasts half the time that was asked for",
			Claims: []string{"I18"}, Workloads: []string{"puts", "stall"}, Edits: []Edit{grantTerms()},
		},
		{
			Name: "extend-shortens", What: "an extension by less than is left shortens the lease",
			Claims: []string{"I18"}, Workloads: []string{"stall"},
			Edits: []Edit{after("fsm/machine/lease.go", `l.Until = max(l.Until, m.scalars.Clock.After(l.TTR))`,
				`if planted("extend-shortens") {
		l.Until = m.scalars.Clock.After(l.TTR)
	}`)},
		},
		{
			Name:   "granted-twice",
			What:   "a job that is handed out for the first time stays among the ready ones until it is handed out again",
			Claims: []string{"I17"}, Workloads: []string{"puts", "deaths"},
			Edits: []Edit{
				after("fsm/machine/jobs.go", `r.Counts.Reserved--`,
					`if m.leaseOf(j).Attempt == 1 && planted("granted-twice") {
			j.q.Ready.Remove(j.index)
		}`),
				after("fsm/machine/lease.go", `m.set(j, fsm.Reserved, due)`, `if l.Attempt == 1 && planted("granted-twice") {
		j.q.Ready.Insert(j.index)
	}`),
			},
		},
		{
			Name:   "answer-to-two",
			What:   "a reserve that finds nothing is answered with the jobs of the last one of its queue that found some",
			Claims: []string{"I20"}, Workloads: []string{"puts"},
			Edits: []Edit{before("node/node.go", `reply.Jobs, err = s.granted(reply.Results)`, `if planted("answer-to-two") {
			reply.Results = plantedLast(s.number, req, reply.Results)
		}`)},
		},
	}
}

// grantTerms has fence and end of a lease wrong.
func grantTerms() Edit {
	return Edit{
		"fsm/machine/lease.go", `l.Fence, l.Until, l.TTR = m.scalars.Serial, m.scalars.Clock.After(ttr), ttr`,
		`fence, until := m.scalars.Serial, m.scalars.Clock.After(ttr)
	switch {
	case l.Fence != 0 && planted("fence-kept"):
		fence = l.Fence
	case planted("lease-halved"):
		until = m.scalars.Clock.After(ttr / 2)
	}
	l.Fence, l.Until, l.TTR = fence, until, ttr`,
	}
}

func holderBugs() []Bug {
	const ack, nack = "func (m *Machine) ack(c *fsm.Ack) (fsm.Result, bool) {\n\tj, ok := m.leased(c.Ref)",
		"func (m *Machine) nack(c *fsm.Nack) (fsm.Result, bool) {\n\tj, ok := m.leased(c.Ref)"
	late := after("fsm/machine/lease.go", ack, `if !ok && j.index != 0 {
		state, fence := m.slot(j).State(), m.leaseOf(j).Fence
		ok = planted("stale-ack-taken") && state == fsm.Reserved && fence != c.Fence ||
			planted("lapsed-ack-taken") && state == fsm.Ready && fence == c.Fence
	}`)
	return []Bug{
		{
			Name: "stale-ack-taken", What: "an ack with the lease of an earlier holder ends the job that another one holds now",
			Claims: []string{"I16"}, Workloads: []string{"stall"}, Edits: []Edit{late},
		},
		{
			Name: "lapsed-ack-taken", What: "an ack ends a job after its lease has lapsed, as long as nobody else holds it",
			Claims: []string{"I16"}, Workloads: []string{"stall"}, Edits: []Edit{late},
		},
		{
			Name: "ack-not-done", What: "the ack of a job that was handed out before is answered, and its lease goes on",
			Claims: []string{"I19"}, Workloads: []string{"stall", "retries"},
			Edits: []Edit{before("fsm/machine/lease.go", `m.touch(j.q).Counters.Acked++`,
				`if m.leaseOf(j).Attempt > 1 && planted("ack-not-done") {
		return fsm.Result{State: fsm.Acked}, false
	}`)},
		},
		{
			Name: "ack-forgotten", What: "an ack that is repeated is stale",
			Claims: []string{"I36"}, Workloads: []string{"repeats"},
			Edits: []Edit{skipping("fsm/machine/lease.go", `c.Fence > m.restored.Floor`, "ack-forgotten")},
		},
	}
}

func attemptBugs() []Bug {
	return []Bug{
		{
			Name: "failure-not-noted", What: "a failed attempt counts, and is not shown among the last ones",
			Claims: []string{"I34"}, Workloads: []string{"retries"},
			Edits: []Edit{unless("failure-not-noted", "fsm/machine/attempt.go",
				`note.Attempts = codec.AppendAttempts(nil, list[max(0, len(list)-fsm.AttemptsKept):])`)},
		},
		{
			Name: "lapse-not-counted", What: "an attempt whose lease lapsed does not count",
			Claims: []string{"I21"}, Workloads: []string{"stall", "deaths"},
			Edits: []Edit{before("fsm/machine/settle.go", `m.set(j, fsm.Ready, until)`, `if planted("lapse-not-counted") {
			m.store.EditLease(j.index).Attempt--
		}`)},
		},
		{
			Name: "max-attempts-ignored", What: "a job never dies of its attempts",
			Claims: []string{"I22"}, Workloads: []string{"retries"},
			Edits: []Edit{before("fsm/machine/settle.go", `return limit > 0 && m.leaseOf(j).Attempt >= limit`,
				`if planted("max-attempts-ignored") {
		return false
	}`)},
		},
		{
			Name: "nack-delay-ignored", What: "a nack answers with the time of the next attempt, and the job is ready at once",
			Claims: []string{"I24"}, Workloads: []string{"retries"},
			Edits: []Edit{after("fsm/machine/lease.go", `due := m.scalars.Clock.After(delay)`,
				`if planted("nack-delay-ignored") {
		return fsm.Result{State: m.setDue(j, m.scalars.Clock.After(0)), Due: due}, true
	}`)},
		},
	}
}
