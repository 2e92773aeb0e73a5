package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/backup"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestBackupOfThreeNodes backs a cluster up through each of its nodes, whichever leads what, and
// restores it into one of another size.
func TestBackupOfThreeNodes(t *testing.T) {
	t.Parallel()
	program, dir := launcher, t.TempDir()
	n1 := serve(t, program, t.TempDir(), "--node-id", "n1", "--shards", "3")
	n2 := serve(t, program, t.TempDir(), "--node-id", "n2", "--join", n1.gossip)
	n3 := serve(t, program, t.TempDir(), "--node-id", "n3", "--join", n1.gossip)
	awaitCluster(t, n2, "a leader on each node", func(code int, c *belfryv1.GetClusterResponse) bool {
		return code == 0 && len(c.Nodes) == 3 && c.Nodes[0].Leads == 1 && c.Nodes[1].Leads == 1 && c.Nodes[2].Leads == 1
	})
	var file strings.Builder
	for i := range 300 {
		fmt.Fprintf(&file, `{"queue":"q%d","id":"job-%d","text":"%s","delay":"1h"}`+"\n", i%7, i, strings.Repeat("x", 50*i))
	}
	jobs := filepath.Join(dir, "jobs")
	if err := os.WriteFile(jobs, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := n2.run(program, "put", "--file", jobs); got.Code != 0 {
		t.Fatalf("put: %+v", got)
	}
	if got := n2.run(program, "put", "held", "held", "--ttr", "1h"); got.Code != 0 {
		t.Fatalf("put: %+v", got)
	}
	held := reserveOne(t, n2, program, "held")

	for i, p := range []*process{n1, n2, n3} {
		path := filepath.Join(dir, fmt.Sprintf("%d.backup", i))
		got := p.run(program, "backup", path, "-o", "json")
		var said backup.Summary
		if err := json.Unmarshal([]byte(got.Out), &said); err != nil || got.Code != 0 || said.Jobs != 301 ||
			said.Shards != 3 || said.Queues != 8 {
			t.Fatalf("through node %d: %+v, %v", i+1, got, err)
		}
		p.refuses(cli.CodeConflict, "overwrites nothing", "backup", path)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	path := filepath.Join(dir, "0.backup")
	refuseDamaged(t, n1, program, path)

	next := interruptRestore(t, program, path)
	if got := next.run(program, "restore", path, "--overdue", "spread=10m"); got.Code != 0 ||
		!strings.HasPrefix(got.Out, "restored 301 jobs in 8 partitions") {
		t.Fatalf("restoring: %+v", got)
	}
	if got := next.run(program, "get", "q3", "job-3", "--body"); got.Out != strings.Repeat("x", 150) {
		t.Errorf("a body after the restore: %+v", got)
	}
	if got := next.run(program, "ack", held.Lease); got.Code != 0 {
		t.Errorf("acking with a lease from the other cluster: %+v", got)
	}
	if got := next.run(program, "restore", path); got.Code != cli.CodeConflict {
		t.Errorf("restoring twice: %+v", got)
	}
	n1.refuses(cli.CodeConflict, "without queues", "restore", path)
}

// interruptRestore sends half of a backup to a new server of 6 shards, kills the server, and
// returns it started again: it says what is wrong, and does nothing.
func interruptRestore(t *testing.T, program, path string) *process {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	first := serve(t, program, dir, "--shards", "6")
	command := exec.CommandContext(t.Context(), program, "restore", "-", "--overdue", "spread=10m")
	command.Env, command.Stdin = environment("BELFRY_SERVER="+first.address), bytes.NewReader(raw[:len(raw)/2])
	if out, err := command.CombinedOutput(); err == nil || !strings.Contains(string(out), "incomplete") ||
		!strings.Contains(string(out), "has begun and not ended") {
		t.Errorf("restoring half a backup: %v, %s", err, out)
	}
	first.signal(syscall.SIGKILL)
	first.end()
	next := serve(t, program, dir)
	if got := next.run(program, "cluster", "status"); got.Code != cli.CodeUnhealthy ||
		!strings.Contains(got.Out, "a restore has begun and not ended") {
		t.Errorf("the status: %+v", got)
	}
	next.refuses(cli.CodeExhausted, "restore", "put", "q", "x")
	if got := next.run(program, "backup", filepath.Join(t.TempDir(), "b")); got.Code != cli.CodeExhausted {
		t.Errorf("a backup of half a restore: %+v", got)
	}
	next.refuses(cli.CodeConflict, "other options", "restore", path)
	return next
}

// refuseDamaged has damaged files refused before anything is done.
func refuseDamaged(t *testing.T, p *process, program, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(raw)
	flipped[len(raw)/2] ^= 4
	for name, content := range map[string][]byte{
		"flipped": flipped, "cut": raw[:len(raw)-10], "empty": nil, "longer": append(bytes.Clone(raw), 0),
	} {
		bad := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(bad, content, 0o600); err != nil {
			t.Fatal(err)
		}
		got := p.run(program, "restore", bad)
		if got.Code != cli.CodeError || !strings.Contains(got.Err, "at byte ") ||
			!strings.Contains(got.Err, "nothing was restored") {
			t.Errorf("%s: %+v", name, got)
		}
		command := exec.CommandContext(t.Context(), program, "restore", "-")
		command.Env = environment("BELFRY_SERVER=" + p.address)
		command.Stdin, _ = os.Open(bad)
		if out, err := command.CombinedOutput(); command.ProcessState.ExitCode() != cli.CodeError ||
			!strings.Contains(string(out), "nothing was restored") {
			t.Errorf("%s as standard input: %v, %s", name, err, out)
		}
	}
	cut := exec.CommandContext(t.Context(), program, "restore", "-")
	cut.Env, cut.Stdin = environment("BELFRY_SERVER="+p.address), bytes.NewReader(raw[:300]) // a pipe
	if out, err := cut.CombinedOutput(); cut.ProcessState.ExitCode() != cli.CodeError ||
		!strings.Contains(string(out), "nothing was restored") {
		t.Errorf("cut, in a pipe: %v, %s", err, out)
	}
}

// TestBackupOfASecuredCluster: a cluster with TLS and tokens is restored into another one with an
// authority and a root token of its own. Queues, their limits and the quotas of namespaces are
// there at once. Tokens are not, so each client needs a new one.
func TestBackupOfASecuredCluster(t *testing.T) {
	t.Parallel()
	secured := func() (*process, string) {
		dir := t.TempDir()
		made, root := makeCerts(t, dir, "--node", "n1"), makeRoot(t, dir, "root")
		p := serve(t, launcher, t.TempDir(),
			append(secureFlags(dir, "n1"), "--node-id", "n1", "--shards", "3", "--root-tokens", root.RootTokens)...)
		p.ca, p.token = made.CA, root.Token
		return p, dir
	}
	old, dir := secured()
	shop := filepath.Join(dir, "shop.token")
	for _, args := range [][]string{
		{"token", "create", "--scope", "put,consume:shop/*", "--about", "the shop", "--out", shop},
		{"namespace", "set", "shop", "--max-jobs", "2", "--max-bytes", "1000", "--max-in-flight", "7", "--puts-per-second",
			"500"},
		{"namespace", "set", "empty", "--max-jobs", "5"},
		{"queue", "create", "shop/orders", "--partitions", "3", "--max-jobs", "30"},
		{"put", "shop/orders", "first", "--id", "a"}, {"put", "shop/orders", "second", "--id", "b"},
	} {
		if got := old.run(launcher, args...); got.Code != 0 {
			t.Fatalf("%v: %+v", args, got)
		}
	}
	had := map[string]any{}
	for _, args := range []string{"namespace show shop", "namespace show empty", "namespace list",
		"queue show shop/orders"} {
		had[args] = lasting(t, old, args)
	}
	path := filepath.Join(dir, "secured.backup")
	if got := old.with(shop).run(launcher, "backup", path); got.Code == 0 || !strings.Contains(got.Err, "admin:*") {
		t.Errorf("a backup with the token of a tenant: %+v", got)
	}
	if got := old.run(launcher, "backup", path); got.Code != 0 {
		t.Fatalf("the backup: %+v", got)
	}

	next, _ := secured()
	foreign := next.with(old.token)
	if got := foreign.run(launcher, "restore", path); got.Code != cli.CodeForbidden {
		t.Errorf("a restore with the root token of the other cluster: %+v", got)
	}
	if got := next.run(launcher, "restore", path); got.Code != 0 ||
		!strings.HasPrefix(got.Out, "restored 2 jobs in 3 partitions") {
		t.Fatalf("the restore: %+v", got)
	}
	for args, want := range had {
		if diff := cmp.Diff(want, lasting(t, next, args)); diff != "" {
			t.Errorf("%s (-before +after the restore):\n%s", args, diff)
		}
	}
	// a quota lets some in where much is there already, until shards have their shares of it
	await(t, "a put to be over the quota", func() bool {
		got := next.run(launcher, "put", "shop/orders", "more")
		return got.Code == cli.CodeExhausted && strings.Contains(got.Err, "namespace")
	})
	if got := next.run(launcher, "token", "list", "-o", "json"); got.Code != 0 || strings.Contains(got.Out, "the shop") {
		t.Errorf("the tokens after the restore: %+v", got)
	}
	if got := next.with(shop).run(launcher, "reserve", "shop/orders"); got.Code != cli.CodeForbidden {
		t.Errorf("the token of the shop after the restore: %+v", got)
	}
}

// lasting returns what a command shows, of a queue without what is of the moment.
func lasting(t *testing.T, p *process, args string) map[string]any {
	t.Helper()
	got := p.run(launcher, append(strings.Fields(args), "-o", "json")...)
	var shown map[string]any
	if err := json.Unmarshal([]byte(got.Out), &shown); err != nil || got.Code != 0 {
		t.Fatalf("%s: %+v, %v", args, got, err)
	}
	if queue, ok := shown["queue"].(map[string]any); ok {
		shown = map[string]any{"partitions": queue["partitions"], "settings": queue["settings"], "counts": queue["counts"]}
	}
	delete(shown, "asOf")
	return shown
}

func TestBackupFlags(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "fire": "mode:OVERDUE_MODE_FIRE", "drop": "mode:OVERDUE_MODE_DROP",
		"spread=90s": "mode:OVERDUE_MODE_SPREAD period:{seconds:90}",
	} {
		p, err := backup.ParseOverdue(text)
		if got := strings.ReplaceAll(p.String(), "  ", " "); err != nil || p != nil && got != want || p == nil && want != "" {
			t.Errorf("%q: %v, %v, want %s", text, p, err, want)
		}
	}
	for _, text := range []string{"spread", "spread=", "spread=0s", "spread=-1s", "fire=1s", "later", "Drop"} {
		if p, err := backup.ParseOverdue(text); err == nil {
			t.Errorf("%q is taken as %v", text, p)
		}
	}
}
