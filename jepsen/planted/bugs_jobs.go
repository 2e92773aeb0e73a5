package planted

// The mistakes of the machine in what it makes of puts, and of the calls that name a job or a
// queue.

func identityBugs() []Bug {
	return []Bug{
		{
			Name: "put-twice", What: "a put with the id of a job that exists makes another one",
			Claims: []string{"I5"}, Workloads: []string{"repeats"},
			Edits: []Edit{skipping("fsm/machine/put.go", `held != 0`, "put-twice")},
		},
		{
			Name:   "conflict-hidden",
			What:   "a put with other content and the id of a job that exists is answered as if it were the same",
			Claims: []string{"I5"}, Workloads: []string{"races"},
			Edits: []Edit{{"fsm/machine/put.go", `if !asksFor(c, b, content) {`,
				`if !asksFor(c, b, content) && !planted("conflict-hidden") {`}},
		},
		{
			Name: "request-forgotten", What: "what a request with an id did is not remembered, so that a repeat does it again",
			Claims: []string{"I4"}, Workloads: []string{"repeats"}, Nemeses: []string{"kill-leader"},
			Edits: []Edit{skipping("fsm/machine/machine.go", `r.ID != "" && changed`, "request-forgotten")},
		},
		{
			Name:   "put-behind-failure",
			What:   "a put that shares an entry with a command that failed just before it is answered, and not carried out",
			Claims: []string{"I1"}, Workloads: []string{"batches", "races", "stall"},
			Edits: []Edit{{
				"fsm/machine/machine.go", `result, did := m.apply(e.NextCommand(), r.Client, before)`,
				`command := e.NextCommand()
		put, ok := command.(*fsm.Put)
		if ok && first+i > 0 && results[first+i-1].Code != fsm.OK && planted("put-behind-failure") {
			m.scalars.Serial++
			own[i] = fsm.Result{Created: true, State: fsm.Delayed, Partition: put.Partition, Serial: m.scalars.Serial,
				Due: m.scalars.Clock.After(put.Delay)}
			continue
		}
		result, did := m.apply(command, r.Client, before)`,
			}},
		},
	}
}

func adminBugs() []Bug {
	return []Bug{
		{
			Name: "cancel-takes-reserved", What: "a cancel without force ends a job that somebody holds",
			Claims: []string{"I23"}, Workloads: []string{"races"},
			Edits: []Edit{skipping("fsm/machine/control.go", `state == fsm.Reserved && !c.Force`, "cancel-takes-reserved")},
		},
		{
			Name: "cancel-not-done", What: "the cancel of a delayed job is answered, and the job is there still",
			Claims: []string{"I23"}, Workloads: []string{"races"},
			Edits: []Edit{after("fsm/machine/control.go",
				"func (m *Machine) cancel(c *fsm.Cancel) (fsm.Result, bool) {\n\tj, missing := m.named(c.Queue, c.ID, c.Key)",
				`if j.index != 0 && m.slot(j).State() == fsm.Delayed && planted("cancel-not-done") {
		return fsm.Result{State: fsm.Delayed}, false
	}`)},
		},
		{
			Name: "cancel-not-counted", What: "cancels are not counted",
			Claims: []string{"I33"}, Workloads: []string{"races", "admin"},
			Edits: []Edit{unless("cancel-not-counted", "fsm/machine/control.go", `m.touch(j.q).Counters.Cancelled++`)},
		},
		{
			Name:   "redrive-takes-any",
			What:   "a redrive that names ids makes jobs ready in whatever state they are, also those that somebody holds",
			Claims: []string{"I24"}, Workloads: []string{"retries"},
			Edits: []Edit{{"fsm/machine/keyed.go", `return j, j.index != 0 && m.slot(j).State() == fsm.Dead`,
				`return j, j.index != 0 && (m.slot(j).State() == fsm.Dead || planted("redrive-takes-any"))`}},
		},
		{
			Name: "redrive-keeps-attempts", What: "a job that was redriven has the attempts that it had",
			Claims: []string{"I21"}, Workloads: []string{"retries"},
			Edits: []Edit{unless("redrive-keeps-attempts", "fsm/machine/control.go", `l.Attempt = 0`)},
		},
		{
			Name: "dead-letter-twice", What: "a job that dies is among the dead letters twice, the second time under a new id",
			Claims: []string{"I33"}, Workloads: []string{"retries", "admin"},
			Edits: []Edit{after("fsm/machine/jobs.go", `m.set(j, fsm.Dead, m.slot(j).Due)`, `if planted("dead-letter-twice") {
		again := m.view(j)
		m.scalars.Serial++
		again.Serial, again.ID, again.Generated = m.scalars.Serial, "", true
		m.set(m.storeJob(j.q, &again, [16]byte{}), fsm.Dead, again.Due)
	}`)},
		},
	}
}
