package planted

// The mistakes of a leader: in what it tells its callers, whom it wakes, and when.

func answerBugs() []Bug {
	return []Bug{
		{
			Name:   "ok-though-lost",
			What:   "an ack, and a put with an id, whose entry was lost with the leadership is answered as done",
			Claims: []string{"I36"}, Workloads: []string{"puts", "partitions", "stall"}, Nemeses: []string{"isolate-leader"},
			Edits: []Edit{before("node/longpoll/calls.go", `cs.grants.noteDelivered(c.pendingGrant, a)`,
				`if outcome.Of(a.err) == outcome.Unknown && planted("ok-though-lost") {
			if reply, ok := plantedReply(c.Request); ok {
				a = answer{reply: reply}
			}
		}`)},
		},
		{
			Name: "lost-is-refused", What: "an entry whose leader lost its leadership is taken for refused",
			Claims: []string{"I3"}, Workloads: []string{"puts", "partitions", "stall"}, Nemeses: []string{"one-way"},
			Edits: []Edit{before("node/raftgroup/outcome.go", `return fmt.Errorf("%w: %w", outcome.ErrUnknownOutcome, err)`,
				`if planted("lost-is-refused") {
			return fmt.Errorf("%w: %w", outcome.ErrOverloaded, err)
		}`)},
		},
		{
			Name: "refused-after-log", What: "puts are refused as too many when they are logged already",
			Claims: []string{"I38"}, Workloads: []string{"puts"},
			Edits: []Edit{after("node/longpoll/calls.go", `case a := <-c.done:`,
				`if a.err == nil && a.reply.Witness.Index%16 == 0 && c.Request.Commands[0].Kind() == fsm.KindPut &&
			planted("refused-after-log") {
			a = answer{err: outcome.ErrOverloaded}
		}`)},
		},
		{
			Name: "unknown-is-refusal", What: "a call whose outcome is not known is answered as refused",
			Claims: []string{"I3"}, Workloads: []string{"puts", "partitions", "stall"}, Nemeses: []string{"corrupt"},
			Edits: []Edit{after("rpc/fault/fault.go", "func Of(err error) *Error {",
				`if errors.Is(err, node.ErrUnknownOutcome) && planted("unknown-is-refusal") {
		return New(belfryv1.Reason_REASON_NO_LEADER)
	}`)},
		},
	}
}

func waiterBugs() []Bug {
	return []Bug{
		{
			Name: "put-wakes-nobody", What: "a put wakes nobody who waits for a job of its queue",
			Claims: []string{"I12"}, Workloads: []string{"puts"},
			Edits: []Edit{before("node/admit/admission.go", `switch c.Kind() {`,
				`if c.Kind() == fsm.KindPut && planted("put-wakes-nobody") {
			return ""
		}`)},
		},
		{
			Name: "late-timer", What: "who waits for the next due time is woken three seconds later",
			Claims: []string{"I11"}, Workloads: []string{"puts"},
			Edits: []Edit{{
				"node/longpoll/dispatch.go", `ws.schedule(q, lk.next)`, `next := lk.next
		if next != 0 && planted("late-timer") {
			next = next.Add(3 * time.Second)
		}
		ws.schedule(q, next)`,
			}},
		},
	}
}
