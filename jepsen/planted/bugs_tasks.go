package planted

// The mistakes of the leader that carries out acts on all jobs that match.

func taskBugs() []Bug {
	const runner, step = "cluster/tasks/tasks.go", "fsm/bulk/step.go"
	workloads, killed := []string{"tasks"}, []string{"kill-catalog-leader"}
	return []Bug{
		{
			Name: "task-meets-again", What: "a task also acts on jobs that were put, died or failed after it began",
			Claims: []string{"I40"}, Workloads: workloads,
			Edits: []Edit{after(step, `begun := fsm.Time(t.Created)`, `if planted("task-meets-again") {
			return false
		}`)},
		},
		{
			Name: "task-place-early", What: "the place of a task is recorded a while before its step is done",
			Claims: []string{"I41"}, Workloads: workloads, Nemeses: killed,
			Edits: []Edit{before(runner, `results, err := w.act(ctx, shard, next, w.found)`, `if planted("task-place-early") {
		early := w.task.Clone()
		early.Advance(next, w.found, nil)
		_ = w.Records.AdvanceTask(ctx, early.ID, early.Progress)
		pause(ctx, 100*time.Millisecond)
	}`)},
		},
		{
			Name: "task-counts-anew", What: "a new leader of the catalog begins the counts of a task at zero",
			Claims: []string{"I41"}, Workloads: workloads, Nemeses: killed,
			Edits: []Edit{after(runner, `again := retryMin`, `if planted("task-counts-anew") {
		p := &w.task.Progress
		p.Searched, p.Matched, p.Changed, p.Skipped = 0, 0, 0, 0
	}`)},
		},
		{
			Name: "task-stop-unheard", What: "a leader of the catalog hears no stop of a task that another one began",
			Claims: []string{"I42"}, Workloads: workloads, Nemeses: killed,
			Edits: []Edit{
				before(runner, `for ctx.Err() == nil {
		finished, err := w.step(ctx)`, `plantedDeaf.Store(w, len(t.Progress.Places) > 0 && planted("task-stop-unheard"))`),
				after(runner, `w.task.Stop = t.Stop`, `if deaf, _ := plantedDeaf.Load(w); deaf == true && planted("task-stop-unheard") {
		w.task.Stop = false
	}`),
			},
		},
	}
}
