package main

import (
	"context"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parsed reads the settings of a run.
func parsed(args ...string) (*settings, error) {
	s := &settings{}
	return s, s.parse(s.flags("run"), args)
}

// TestBadSettings gives each setting a value that it must not have: the error names it.
func TestBadSettings(t *testing.T) {
	for flag, value := range map[string]string{
		"--nodes": "0", "--shards": "65", "--time": "0s", "--pace": "-1ms", "--calm": "0s", "--hold": "-5s",
		"--snapshot-bytes": "0",
		"--workload":       "puts,nonsense", "--nemesis": "kill-leader+nonsense",
	} {
		_, err := parsed(flag, value)
		if err == nil || !strings.Contains(err.Error(), flag+":") || strings.Count(err.Error(), "--") != 1 {
			t.Errorf("%s %s: %v", flag, value, err)
		}
	}
	for _, args := range [][]string{{"--network", "token-ring"}, {"--nodes", "many"}, {"--no-such-setting"},
		{"argument"}} {
		if _, err := parsed(args...); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	_, err := parsed("--nodes", "10", "--shards", "0", "--time", "0s")
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("of three problems it says: %v", err)
	}
}

// TestCommandRepeats has a shell read the command of settings: it gives the same settings.
func TestCommandRepeats(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"--nemesis", ""},
		{
			"--nodes", "5", "--shards", "7", "--time", "90s", "--workload", "puts,herd", "--nemesis",
			"pause-one+kill-all,transfer", "--seed", "18446744073709551615",
			"--pace", "7ms", "--calm", "1s", "--hold", "1ms", "--snapshot-bytes", "4096", "--network", "loopback", "--once",
			"--program", "it's a $PATH",
		},
	} {
		s, err := parsed(args...)
		if err != nil {
			t.Fatal(err)
		}
		words := shellWords(t, s.command())
		if got := strings.Join(words[:4], " "); got != "go run ./jepsen run" {
			t.Errorf("it begins with %s", got)
		}
		again, err := parsed(words[4:]...)
		if err != nil {
			t.Fatalf("%s: %v", s.command(), err)
		}
		if diff := cmp.Diff(s, again, cmp.AllowUnexported(settings{})); diff != "" {
			t.Errorf("%s gives (-want +got):\n%s", s.command(), diff)
		}
	}
	s := settings{env: []string{"A=b c"}}
	if words := shellWords(t, s.command()); words[0] != "env" || words[1] != "A=b c" || words[2] != "go" {
		t.Errorf("the environment is lost: %q", words)
	}
}

// shellWords returns what a shell makes of a command.
func shellWords(t *testing.T, command string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\n' `+command).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// TestDecided gives a suite and a proof settings that they decide by themselves, or cannot have.
func TestDecided(t *testing.T) {
	for _, args := range [][]string{
		{"suite", "--nemesis", "transfer"}, {"suite", "--full", "--time", "3s"}, {"suite", "--full", "--budget", "1s"},
		{"suite", "--budget", "0s"},
		{"suite", "--compose"}, {"prove", "--workload", "puts"}, {"prove", "--bug", "no-such-bug"},
		{"prove", "--beside", "0"},
	} {
		ended, end := context.WithCancel(t.Context()) // whatever is taken does not begin
		end()
		name := args[slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "--") && a != "--full" })]
		if err := command(ended, args, io.Discard); err == nil || !strings.Contains(err.Error(), name+":") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestAgain has a shell read what repeats a suite: it gives the same settings, and the seed that
// was taken from the clock.
func TestAgain(t *testing.T) {
	read := func(args []string) (*settings, string) {
		s := &settings{}
		flags := s.flags("suite")
		full := flags.Bool("full", false, "")
		if err := s.parse(flags, args); err != nil || !*full {
			t.Fatalf("%q: full %v, %v", args, *full, err)
		}
		return s, s.again(flags)
	}
	s, again := read([]string{"--full", "--pace", "7ms", "--network", "loopback", "--workload", "puts,herd", "--program",
		"it's a $PATH", "--dir", "once"})
	words := shellWords(t, again)
	if got := strings.Join(words[:4], " "); got != "go run ./jepsen suite" {
		t.Errorf("it begins with %s", got)
	}
	repeated, _ := read(words[4:])
	s.dir = "" // another one
	if diff := cmp.Diff(s, repeated, cmp.AllowUnexported(settings{})); diff != "" {
		t.Errorf("%s gives (-want +got):\n%s", again, diff)
	}
}

// TestNoMirrorInContainers: containers reach no Redis, so that all workloads are all others there,
// and a run that asks for the mirror is told so.
func TestNoMirrorInContainers(t *testing.T) {
	s, err := parsed("--compose")
	if err != nil || strings.Contains(s.workloads, "mirror") || !strings.Contains(s.workloads, "puts,") {
		t.Errorf("all are %s, %v", s.workloads, err)
	}
	if _, err := parsed("--compose", "--workload", "puts,mirror"); err == nil ||
		!strings.Contains(err.Error(), "--workload: mirror") {
		t.Errorf("the mirror in containers: %v", err)
	}
	if s, err := parsed(); err != nil || s.workloads != "all" {
		t.Errorf("all are %s, %v", s.workloads, err)
	}
}
