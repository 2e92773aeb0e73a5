package planted

// The mistakes of the mirror. Some take their time between two steps, so that a kill or a
// suspension falls there: a mirror without the mistake may be as slow.

func bridgeBugs() []Bug {
	unfenced := before("mirror/pair/script.go", `*w.last++`, `if planted("bridge-unfenced") {
		fence = plantedFence()
	}`)
	careless := after("mirror/bridge.go", `ctx, cancel := context.WithTimeout(ctx, g.ttr)`,
		`if planted("bridge-unfenced") {
		plantedWait(ctx.Done())
		ctx, pushing = context.WithoutCancel(ctx), context.WithoutCancel(pushing)
	}`)
	return []Bug{
		{
			Name: "bridge-unfenced",
			What: "scripts carry what the clock says in the place of the fence, and a bridge goes on after its leases have " +
				"ended",
			Claims: []string{"M2"}, Workloads: []string{"mirror"}, Edits: []Edit{unfenced, careless},
		},
		{
			Name: "forgotten-before-ack", What: "that a job was put on the ready list is forgotten before it is acked",
			Claims: []string{"M2"}, Workloads: []string{"mirror"},
			Edits: []Edit{before("mirror/bridge.go", `errs, _ := g.Belfry.AckBatch(ctx, leases)`,
				`if planted("forgotten-before-ack") {
		tags := make([]any, len(jobs))
		for n, job := range jobs {
			tags[n] = tagOf(job)
		}
		_, _, _ = g.link.Script(ctx, forgetScript, []string{g.keys.delivered}, tags...)
		plantedPause()
	}`)},
		},
		{
			Name: "payload-cut", What: "one payload of sixteen loses its last byte on its way to the ready list",
			Claims: []string{"M1", "M4"}, Workloads: []string{"mirror"},
			Edits: []Edit{after("mirror/entry.go", `payload, err := codec.Encode(job.Body)`,
				`if len(payload) > 0 && len(payload)%16 == 0 && planted("payload-cut") {
		payload = payload[:len(payload)-1]
	}`)},
		},
	}
}

func importBugs() []Bug {
	return []Bug{
		{
			Name: "ack-before-put", What: "an entry is removed from Redis before it is put into Belfry",
			Claims: []string{"M1"}, Workloads: []string{"mirror"},
			Edits: []Edit{after("mirror/handover.go", `acks := make([]any, 0, len(puts))`, `if planted("ack-before-put") {
		members := make([]any, len(of))
		for n, e := range of {
			members[n] = e.member
		}
		if err := i.ack(ctx, ackScript, i.keys.handover, members); err != nil {
			return err
		}
		plantedPause()
	}`)},
		},
		{
			Name: "repeat-is-new", What: "an entry that is put again gets another id",
			Claims: []string{"M2"}, Workloads: []string{"mirror"},
			Edits: []Edit{
				after("mirror/entry.go", `h := sha256.New()`, `if planted("repeat-is-new") {
		fmt.Fprint(h, plantedFence())
	}`),
				before("mirror/handover.go", `if err := i.ack(ctx, ackScript, i.keys.handover, acks); err != nil {`,
					`if planted("repeat-is-new") {
		plantedPause()
	}`),
			},
		},
		{
			Name: "due-in-seconds", What: "the milliseconds of a due time are cut off on its way to Belfry",
			Claims: []string{"M3"}, Workloads: []string{"mirror"},
			Edits: []Edit{after("mirror/entry.go", `due := time.UnixMilli(ms)`, `if planted("due-in-seconds") {
		due = time.Unix(ms/1000, 0)
	}`)},
		},
	}
}
