package planted

// The mistakes of the machine with keys, with jobs that are replaced, and with schedules.

func keyBugs() []Bug {
	const lists, contents = "fsm/keys/keys.go", "fsm/machine/existing.go"
	workloads := []string{"keys"}
	return []Bug{
		{
			Name: "key-limit-over", What: "a key may have one lease more than its limit",
			Claims: []string{"I43"}, Workloads: workloads,
			Edits: []Edit{before(lists, `switch {
	case g.Memory != 0 &&`, `if limit > 0 && planted("key-limit-over") {
		limit++
	}`)},
		},
		{
			Name: "key-pause-ignored", What: "a key that is paused hands out jobs",
			Claims: []string{"I43"}, Workloads: workloads,
			Edits: []Edit{{lists, `q.keys.Memory(g.Memory).Paused:`,
				`q.keys.Memory(g.Memory).Paused && !planted("key-pause-ignored"):`}},
		},
		{
			Name: "key-order-lost", What: "a job that failed lets the later ones of an ordered key pass",
			Claims: []string{"I44"}, Workloads: workloads,
			Edits: []Edit{skipping(lists, `settings.Ordered`, "key-order-lost")},
		},
		{
			Name: "replaced-body-kept", What: "a job that is replaced has the new due time and the old body",
			Claims: []string{"I45"}, Workloads: workloads,
			Edits: []Edit{after(contents, `v.Serial, v.Version = s.Serial, m.versionOf(j)+1`,
				`if planted("replaced-body-kept") {
		var old fsm.Job
		m.payload(j).Read(&old)
		v.Body = append([]byte(nil), old.Body...)
		v.BodyBytes = uint32(len(v.Body))
	}`)},
		},
		{
			Name: "successor-lost", What: "what is to follow a job goes with it",
			Claims: []string{"I45"}, Workloads: workloads,
			Edits: []Edit{{contents, `found := m.successorOf(j)
	if found == nil {`, `found := m.successorOf(j)
	if found == nil || planted("successor-lost") {`}},
		},
		{
			Name: "max-wait-ignored", What: "a job may be put off for ever",
			Claims: []string{"I45"}, Workloads: workloads,
			Edits: []Edit{skipping(contents, `c.MaxWait > 0`, "max-wait-ignored")},
		},
	}
}

func scheduleBugs() []Bug {
	const plan, rules, machine = "fsm/schedules/plan.go", "fsm/schedules/schedules.go", "fsm/machine/schedule.go"
	workloads, killed := []string{"schedules"}, []string{"kill-leader"}
	return []Bug{
		{
			Name: "fired-twice", What: "a firing puts its job twice",
			Claims: []string{"I46"}, Workloads: workloads,
			Edits: []Edit{after(machine, `m.addJob(q, &j, codec.ContentHash(&p))`, `if planted("fired-twice") {
		p.ID += "-again"
		again := m.newJob(q, &p)
		again.FirstDue, again.Due = j.FirstDue, j.Due
		m.addJob(q, &again, codec.ContentHash(&p))
	}`)},
		},
		{
			Name: "fired-early", What: "a leader whose clock is ahead fires before the shard's time has come",
			Claims: []string{"I46"}, Workloads: workloads,
			Edits: []Edit{
				before("node/scheduler/scheduler.go", `if wait := next.Sub(now); wait > 0 {`, `if planted("fired-early") {
		now = now.Add(400 * time.Millisecond)
	}`),
				before(rules, `latest := max(s.Last, c.LastMissed, c.Put)`, `if planted("fired-early") {
		clock += 1_000_000_000
	}`),
				after(plan, `f.Put, f.Due = at, p.calendar.Due(at)`, `if planted("fired-early") {
		f.Due -= 400_000_000
	}`),
			},
		},
		{
			Name: "planned-from-now", What: "a new leader goes on with the latest nominal time, and forgets those before it",
			Claims: []string{"I47"}, Workloads: workloads, Nemeses: killed,
			Edits: []Edit{after(plan, `at := s.Next`, `if planted("planned-from-now") {
		for next := calendar.Next(at); next != 0 && next <= now; next = calendar.Next(at) {
			at = next
		}
	}`)},
		},
		{
			Name: "missed-uncounted", What: "nominal times that are passed over are not counted",
			Claims: []string{"I47"}, Workloads: workloads, Nemeses: killed,
			Edits: []Edit{unless("missed-uncounted", rules, `s.Counts.Missed += c.Missed`)},
		},
		{
			Name: "fired-without-job", What: "every fifth second a firing is counted, and its job is lost",
			Claims: []string{"I47"}, Workloads: workloads,
			Edits: []Edit{before(machine, `j := m.newJob(q, &p)`, `if nominal/1_000_000_000%5 == 0 && planted("fired-without-job") {
		return 1, false
	}`)},
		},
	}
}
