package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// writeKeys writes a file of gossip keys, each made of one byte.
func writeKeys(t *testing.T, path string, keys ...byte) {
	t.Helper()
	var text strings.Builder
	for _, key := range keys {
		fmt.Fprintln(&text, base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(key), 32))))
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestGossipKeys: nodes with one key find each other, one with another key does not and both sides
// say why, until the keys are rotated without a stop.
func TestGossipKeys(t *testing.T) {
	t.Parallel()
	file, other := filepath.Join(t.TempDir(), "keys"), filepath.Join(t.TempDir(), "keys")
	writeKeys(t, file, 'a')
	writeKeys(t, other, 'b')
	n1 := serve(t, launcher, t.TempDir(), "--node-id", "n1", "--shards", "2", "--gossip-keys", file)
	n2 := serve(t, launcher, t.TempDir(), "--node-id", "n2", "--shards", "2", "--gossip-keys", file, "--join", n1.gossip)
	awaitCluster(t, n2, "two nodes", func(_ int, c *belfryv1.GetClusterResponse) bool { return len(c.Nodes) == 2 })

	stranger := newCrew(t, 1)
	stranger.gossip = []string{n1.gossip}
	p := stranger.launchAt(0, addresses.Free(t), "--node-id", "n3", "--gossip-keys", other)
	awaitText(t, n1, "problem=wrong_key")
	awaitText(t, p, "problem=wrong_key")
	for _, s := range []*process{n1, p} {
		if !strings.Contains(s.stderr.String(), "gossip key") {
			t.Errorf("the log does not say what is wrong:\n%s", s.stderr)
		}
	}
	if exists(stranger.dirs[0], "node.json") {
		t.Error("a node with another key joined")
	}

	writeKeys(t, file, 'a', 'b') // what n3 seals can be opened now
	for _, s := range []*process{n1, n2} {
		s.signal(syscall.SIGHUP)
		awaitText(t, s, "gossip keys reloaded")
	}
	writeKeys(t, file, 'b', 'a') // and n3 can open what they seal
	for _, s := range []*process{n1, n2} {
		s.signal(syscall.SIGHUP)
		await(t, "the second reload", func() bool { return strings.Count(s.stderr.String(), "gossip keys reloaded") == 2 })
	}
	<-p.printed
	awaitCluster(t, n1, "three nodes", func(_ int, c *belfryv1.GetClusterResponse) bool { return len(c.Nodes) == 3 })

	if err := os.WriteFile(file, []byte("no key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n1.signal(syscall.SIGHUP)
	awaitText(t, n1, "reloading failed: of what the error names nothing was changed")
	if got := n1.run(launcher, "health"); got.Code != 0 {
		t.Errorf("after a reload that failed: %+v", got)
	}
}

// TestGossipWithoutKeys says so once, and not as a warning: an operator chose loopback, or
// insecure.
func TestGossipWithoutKeys(t *testing.T) {
	t.Parallel()
	p := serve(t, launcher, t.TempDir())
	awaitText(t, p, "msg=ready") // the log comes another way than the addresses
	log := p.stderr.String()
	if strings.Count(log, "without a key") != 1 || strings.Contains(log, "level=WARN") {
		t.Errorf("the log of a node alone:\n%s", log)
	}
	bad := runProgram(t, launcher, nil, "serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--gossip-keys",
		filepath.Join(t.TempDir(), "missing"))
	if bad.Code != cli.CodeUsage || !strings.Contains(bad.Err, "--gossip-keys: reading the gossip keys") {
		t.Errorf("with a file that is not there: %+v", bad)
	}
}

// TestNodesFindEachOtherAfterASplit stops one of two nodes for longer than gossip remembers silent
// nodes. Meanwhile the other one is started anew without a join address. They find each other by
// what they have kept.
func TestNodesFindEachOtherAfterASplit(t *testing.T) {
	t.Parallel()
	dirs := []string{t.TempDir(), t.TempDir()}
	gossip := []string{addresses.Free(t), addresses.Free(t)}
	start := func(i int, more ...string) *process {
		return serve(t, launcher, dirs[i],
			append([]string{"--shards", "1", "--node-id", fmt.Sprintf("n%d", i+1), "--gossip-listen", gossip[i]}, more...)...)
	}
	n1 := start(0)
	n2 := start(1, "--join", gossip[0])
	whole := func(_ int, c *belfryv1.GetClusterResponse) bool {
		return len(c.Problems) == 1 && strings.HasPrefix(c.Problems[0], "under-replicated (wanted 3 voters, has 2)") &&
			len(c.Nodes) == 2 && votersOfAll(c, 2)
	}
	awaitCluster(t, n2, "a cluster of two", whole)
	await(t, "the address of n2 to be kept", func() bool {
		kept, err := os.ReadFile(filepath.Join(dirs[0], "gossip-addresses.json"))
		return err == nil && strings.Contains(string(kept), gossip[1])
	})
	for _, p := range []*process{n1, n2} {
		p.signal(syscall.SIGKILL)
		p.end()
	}
	n1 = start(0) // at other addresses but that of gossip, and without a join address
	n2 = start(1)
	awaitCluster(t, n1, "the cluster again", whole)
	awaitCluster(t, n2, "the cluster again", whole)
}
