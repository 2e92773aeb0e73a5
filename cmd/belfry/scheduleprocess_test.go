package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
)

// appliedSchedules has each field of a schedule.
const appliedSchedules = `
queue: reports
schedules:
  - name: nightly/all
    spec:
      cron: "*/15 2 * * *"
      timeZone: Europe/Berlin
      dst: skip
      start: 2030-01-01T00:00:00.001Z
      end: 2040-01-01T00:00:00Z
      jitter: 90
      exclude: ["* * 24 12 *", "* * * * 0"]
    policy: {catchUp: all, window: 1h30m, overlap: one_waiting, maxFires: 7, pauseOnDead: true}
    job:
      text: "all\tshops\r\n"
      headers: {kind: report, empty: ""}
      key: 7
      ttr: 90s
      ttl: 7d
      priority: 0
      maxAttempts: 0
      retryDelays: [0, 1m, 1500ms]
---
queue: sync
prefix: shop-
schedules:
  - name: shop-7
    spec: {every: 15m, phase: 1m}
    job: {data: "/w=="}
`

// TestScheduleApply applies a file to a real server: a repeat changes nothing, and neither does what an
// export of it says. A change shows, and so does what is there besides.
func TestScheduleApply(t *testing.T) {
	t.Parallel()
	p := serve(t, launcher, t.TempDir())
	file := clitest.WriteFile(t, "schedules.yaml", appliedSchedules)
	run := func(code int, says string, args ...string) clitest.Outcome {
		t.Helper()
		got := p.run(launcher, append([]string{"schedule"}, args...)...)
		if got.Code != code || !strings.Contains(got.Out+got.Err, says) {
			t.Fatalf("%v: %+v, want exit code %d and %q", args, got, code, says)
		}
		return got
	}
	run(cli.CodeUsage, "say --yes", "apply", "-f", file)
	run(0, "2 created, 0 changed, 0 deleted, 0 unchanged\n", "apply", "-f", file, "--yes")
	run(0, "nothing to do, 2 unchanged\n", "apply", "-f", file, "--yes")
	for _, form := range []string{"table", "json"} {
		export := run(0, "nightly/all", "export", "reports", "sync", "-o", form)
		again := clitest.WriteFile(t, "export.yaml", export.Out)
		run(0, "nothing to do, 2 unchanged\n", "apply", "-f", again, "--prune", "--dry-run")
	}
	run(0, "created", "put", "sync", "shop-8", "--every", "1h")
	run(0, "created", "put", "sync", "other", "--every", "1h")
	run(0, "replaced", "put", "sync", "shop-7", "--every", "20m")
	got := run(cli.CodeDiffers, "0 to create, 1 to change, 1 to delete, 1 unchanged\n", "apply", "-f", file, "--prune",
		"--dry-run")
	for _, part := range []string{
		"    spec.every  20m → 15m\n    spec.phase  - → 1m\n    job.body    - → (1 byte, not text)\n",
		"delete shop-8 in sync: every 1h\n",
	} {
		if !strings.Contains(got.Out, part) {
			t.Errorf("%q lacks %q", got.Out, part)
		}
	}
	run(0, "0 created, 1 changed, 1 deleted, 1 unchanged\n", "apply", "-f", file, "--prune", "--yes")
	run(0, "other", "show", "sync", "other")
	run(cli.CodeNotFound, "SCHEDULE_NOT_FOUND", "show", "sync", "shop-8")

	none := clitest.WriteFile(t, "none.yaml", "{queue: none, schedules: []}")
	run(0, "nothing to do, 0 unchanged\n", "apply", "-f", none, "--prune", "--yes")

	bad := filepath.Join(filepath.Dir(file), "bad.yaml")
	text := strings.ReplaceAll(appliedSchedules, "Europe/Berlin", "Europe/Bern")
	if err := os.WriteFile(bad, []byte(strings.ReplaceAll(text, "15m", "1ms")), 0o600); err != nil {
		t.Fatal(err)
	}
	got = run(cli.CodeUsage, bad+":7: spec.timeZone: ", "apply", "-f", bad, "--yes")
	if !strings.Contains(got.Err, bad+":28: spec.every: ") {
		t.Errorf("the second mistake is not named: %s", got.Err)
	}
	if err := os.WriteFile(bad, []byte(strings.ReplaceAll(appliedSchedules, "ttr: 90s", "ttr: 90h")), 0o600); err != nil {
		t.Fatal(err)
	}
	run(cli.CodeUsage, bad+":18: job.ttr: 90h is out of range", "apply", "-f", bad, "--yes")
}
