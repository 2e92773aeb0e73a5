package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/jepsen/lab"
	"github.com/belfrydb/belfry/jepsen/nemesis"
)

func testCompose(dir string) *compose {
	return &compose{root: "..", dir: dir, project: "belfry-jepsen-7", address: "127.9.8.1", ports: map[string]string{},
		shards: 5, snapshot: 4096, env: []string{"MORE=a=$b"}}
}

// TestComposePublish moves the ports of the repository's docker-compose.yml, and nothing else.
func TestComposePublish(t *testing.T) {
	before, err := os.ReadFile("../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	c := testCompose(t.TempDir())
	after, err := c.publish(string(before))
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	was := strings.Split(string(before), "\n")
	for i, line := range strings.Split(after, "\n") {
		if line == was[i] {
			continue
		}
		changed++
		if want := strings.Replace(was[i], "127.0.0.1", "127.9.8.1", 1); line != want || !strings.Contains(line, "ports:") {
			t.Errorf("line %d: have %q, want %q", i+1, line, want)
		}
	}
	if changed != composeNodes {
		t.Errorf("%d lines changed, want %d", changed, composeNodes)
	}
	// A client reaches a node at the port at which that node listens.
	for _, f := range regexp.MustCompile(`--node-id=(\w+),.* --listen=0\.0\.0\.0:(\d+)`).FindAllStringSubmatch(after, -1) {
		url, err := c.ClientURL("c1", f[1])
		if want := "http://127.9.8.1:" + f[2]; url != want || err != nil {
			t.Errorf("clients reach %s at %q (%v), want %q", f[1], url, err, want)
		}
	}
	if len(c.ports) != composeNodes {
		t.Errorf("the ports are %v", c.ports)
	}
	if _, err := c.ClientURL("c1", "n4"); err == nil {
		t.Error("clients reach a node that is not there")
	}
}

// TestComposePublishRefuses has a docker-compose.yml of another form: a run must not come up at the
// ports of `make up`.
func TestComposePublishRefuses(t *testing.T) {
	b, err := os.ReadFile("../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"one node less":     strings.Replace(string(b), `ports: ["127.0.0.1:7420:7420"]`, "", 1),
		"another form":      strings.Replace(string(b), `ports: ["127.0.0.1:7420:7420"]`, `ports: ["7420:7420"]`, 1),
		"one port more":     string(b) + "\n    ports: [\"127.0.0.1:7430:7430\"]\n",
		"nothing published": "services: {}\n",
	} {
		if _, err := testCompose(t.TempDir()).publish(text); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestComposeFiles writes what compose reads, in a directory whose name compose would take for
// something else.
func TestComposeFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a:b $HOME")
	c := testCompose(dir)
	if err := os.MkdirAll(c.file(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := c.writeFiles([]*lab.Node{{Name: "n1"}, {Name: "n2"}}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(c.file("jepsen.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Services map[string]composeService }
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	escaped := strings.Replace(dir, "$HOME", "$$HOME", 1)
	want := composeService{
		Image: "belfry-jepsen:7", ContainerName: "belfry-jepsen-7-n2", Restart: "no",
		Environment: map[string]string{
			"BELFRY_SHARDS": "5", "BELFRY_PRINT_ADDRESSES": "true", "BELFRY_LOG_FORMAT": "json", "BELFRY_LOG_LEVEL": "debug",
			"BELFRY_JEPSEN_JOURNAL": "/jepsen/journals",
			"BELFRY_JEPSEN_CLOCK":   "/jepsen/clocks/n2", "BELFRY_JEPSEN_SNAPSHOT_BYTES": "4096", "MORE": "a=$$b",
		},
		Volumes: []composeMount{
			{Type: "bind", Source: escaped + "/compose/journals/n2", Target: "/jepsen/journals"},
			{Type: "bind", Source: escaped + "/clocks", Target: "/jepsen/clocks", ReadOnly: true},
		},
	}
	if diff := cmp.Diff(want, got.Services["n2"]); diff != "" || len(got.Services) != 2 {
		t.Errorf("the file for compose (-want +got):\n%s", diff)
	}
}

// TestComposable asks for runs that cannot be made with --compose, or only with it. The error says
// why for each fault.
func TestComposable(t *testing.T) {
	for _, c := range []struct {
		compose bool
		nodes   int
		faults  string
		want    []string
	}{
		{true, 3, "kill-leader,kill-all+clock-back,lag-install,starve,compose-disconnect", nil},
		{false, 5, "kill-leader,replace-node,shard-move", nil},
		{true, 3, "replace-node,kill-all+shard-move", []string{"replace-node", "shard-move", "adds a node"}},
		{true, 5, "none", []string{"--nodes: have 5"}},
		{false, 3, "kill-one+compose-disconnect", []string{"compose-disconnect needs --compose"}},
	} {
		faults, err := nemesis.Pick(c.faults)
		if err != nil {
			t.Fatal(err)
		}
		err = (&settings{compose: c.compose, nodes: c.nodes}).composable(t.Context(), faults)
		if (err == nil) != (c.want == nil) {
			t.Errorf("%+v: %v", c, err)
		}
		for _, part := range c.want {
			if !strings.Contains(fmt.Sprint(err), part) {
				t.Errorf("%+v: the error does not say %q: %v", c, part, err)
			}
		}
	}
}

// TestComposableNames has a verdict on every fault: one that is new and not named is refused, with
// a reason.
func TestComposableNames(t *testing.T) {
	if why := unfitForContainers(t.Context(), "earthquake"); why == "" {
		t.Error("a fault that nobody knows can be injected into containers")
	}
	for _, f := range nemesis.All() {
		if f.Number == 17 || f.Number == 18 || f.Number == 19 || f.Number == 41 {
			if why := unfitForContainers(t.Context(), f.Name); why != "" {
				t.Errorf("%s cannot be injected into containers: %s", f.Name, why)
			}
		}
	}
}

// TestStatic looks at programs: one with a loader would start in no image.
func TestStatic(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		kind elf.ProgType
		ok   bool
	}{"static": {elf.PT_LOAD, true}, "dynamic": {elf.PT_INTERP, false}} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, program(c.kind), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := static(path); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := static("compose_test.go"); err == nil {
		t.Error("a text is a program")
	}
	if err := static(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing program: %v", err)
	}
}

// program returns the head of a program with one segment of a kind.
func program(kind elf.ProgType) []byte {
	var b bytes.Buffer
	head := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: uint64(binary.Size(elf.Header64{})), Ehsize: uint16(binary.Size(elf.Header64{})),
		Phentsize: uint16(binary.Size(elf.Prog64{})), Phnum: 1,
	}
	copy(head.Ident[:], elf.ELFMAG)
	head.Ident[elf.EI_CLASS], head.Ident[elf.EI_DATA], head.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64),
		byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	for _, part := range []any{head, elf.Prog64{Type: uint32(kind)}} {
		_ = binary.Write(&b, binary.LittleEndian, part) // a buffer takes all
	}
	return b.Bytes()
}
