package main

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parsed reads settings and keeps quiet about what is wrong.
func parsed(args ...string) (*settings, error) {
	s := &settings{}
	flags := s.flags("run")
	flags.SetOutput(io.Discard)
	return s, s.parse(flags, args)
}

// TestBadSettings gives each setting a value that it must not have: the error names it.
func TestBadSettings(t *testing.T) {
	for flag, value := range map[string]string{
		"--nodes": "0", "--shards": "65", "--time": "0s", "--pace": "-1ms", "--calm": "0s", "--hold": "-5s", "--snapshot-bytes": "0",
		"--workload": "puts,nonsense", "--nemesis": "kill-leader+nonsense",
	} {
		_, err := parsed(flag, value)
		if err == nil || !strings.Contains(err.Error(), flag+":") || strings.Count(err.Error(), "--") != 1 {
			t.Errorf("%s %s: %v", flag, value, err)
		}
	}
	for _, args := range [][]string{{"--network", "token-ring"}, {"--nodes", "many"}, {"--no-such-setting"}, {"argument"}} {
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
			"--nodes", "5", "--shards", "7", "--time", "90s", "--workload", "puts,herd", "--nemesis", "pause-one+kill-all,transfer", "--seed", "18446744073709551615",
			"--pace", "7ms", "--calm", "1s", "--hold", "1ms", "--snapshot-bytes", "4096", "--network", "loopback", "--once", "--program", "it's a $PATH",
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

// TestDecided gives a suite and a proof settings that they decide by themselves.
func TestDecided(t *testing.T) {
	for name, args := range map[string][]string{
		"--nemesis": {"suite", "--nemesis", "transfer"}, "--time": {"suite", "--full", "--time", "3s"}, "--budget": {"suite", "--full", "--budget", "1s"},
		"--workload": {"prove", "--workload", "puts"}, "--bug": {"prove", "--bug", "no-such-bug"},
	} {
		if err := command(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), name+":") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
