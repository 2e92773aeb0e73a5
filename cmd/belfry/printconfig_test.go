package main

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	"github.com/belfrydb/belfry/cmd/belfry/cli/daemon"
)

// settingsShown runs serve --print-config and returns what it shows as name, value and origin with
// single spaces.
func settingsShown(t *testing.T, h *clitest.Harness, args ...string) (lines []string, code int, said string) {
	t.Helper()
	got := h.Run(append([]string{"serve"}, args...)...)
	for line := range strings.Lines(got.Out) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines, got.Code, got.Err
}

func TestPrintConfigShowsOrigins(t *testing.T) {
	h := newHarness(t, nil)
	file := clitest.WriteFile(t, "belfry.conf", "zone = rack-7\nlisten = 127.0.0.1:1\n\njoin = n1:7402,n2:7402\n")
	h.Env["BELFRY_CONFIG"], h.Env["BELFRY_LISTEN"], h.Env["BELFRY_DATA"] = file, "127.0.0.1:2", "/var/lib/belfry"
	lines, code, said := settingsShown(t, h, "--print-config", "--data", "there", "--shards", "2")
	if code != 0 || said != "" {
		t.Errorf("exit code %d, %s", code, said)
	}
	for _, want := range []string{
		"SETTING VALUE ORIGIN", "data there flag", "listen 127.0.0.1:2 BELFRY_LISTEN", "zone rack-7 " + file + ":1",
		"join n1:7402,n2:7402 " + file + ":4",
		"shards 2 flag", "peer-listen 127.0.0.1:3 default", "gossip-listen 127.0.0.1:4 default",
		"replication-factor 3 default", "grace-period 10m default", "log-format auto default", "node-id - default",
		"config " + file + " BELFRY_CONFIG",
	} {
		if !strings.Contains("\n"+strings.Join(lines, "\n")+"\n", "\n"+want+"\n") {
			t.Errorf("%q is not in\n%s", want, strings.Join(lines, "\n"))
		}
	}
	serve, _, err := newRoot(cli.New(&cli.System{})).Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	if want := 1 + len(daemon.EffectiveConfig(serve)); len(lines) != want {
		t.Errorf("%d lines, want %d", len(lines), want)
	}
}

// A mistake in the settings does not hide the others: they are shown, and the exit code is that of
// the mistake.
func TestPrintConfigWithMistakes(t *testing.T) {
	for name, test := range map[string]struct {
		text, says string
		env        map[string]string
		args, want []string
	}{
		"in the environment": {"zone = rack-7\n", "BELFRY_SHARDS: have", map[string]string{
			"BELFRY_SHARDS": "six", "BELFRY_LISTEN": "127.0.0.1:2",
		}, nil, []string{"shards 0 BELFRY_SHARDS (invalid)", "zone rack-7 belfry.conf:1",
			"listen 127.0.0.1:2 BELFRY_LISTEN"}},
		"in the file": {"zone = rack-7\nlisen = x\nnode-id = n1\n", `unknown setting "lisen"`,
			map[string]string{"BELFRY_LISTEN": "127.0.0.1:2"}, nil,
			[]string{"zone rack-7 belfry.conf:1", "node-id n1 belfry.conf:3", "listen 127.0.0.1:2 BELFRY_LISTEN"}},
		"a value there": {"shards = six\nzone = rack-7\n", "belfry.conf:1: shards: have", nil, nil,
			[]string{"shards 0 belfry.conf:1 (invalid)", "zone rack-7 belfry.conf:2"}},
		"a flag": {"zone = rack-7\n", "unknown flag --lisen", nil, []string{"--node-id", "n1", "--lisen", "x"},
			[]string{"zone rack-7 belfry.conf:1", "node-id n1 flag"}},
		"no server": {"zone = rack-7\n", "--listen: 0.0.0.0:7400 is reachable beyond", nil,
			[]string{"--listen", "0.0.0.0:7400"}, []string{"listen 0.0.0.0:7400 flag", "peer-listen 0.0.0.0:7401 default"}},
		"a part of TLS": {"zone = rack-7\ntls-key = k\n",
			"only a part is set: --tls-key by belfry.conf:2, --tls-ca by BELFRY_TLS_CA of the environment; missing: --tls-cert.",
			map[string]string{"BELFRY_TLS_CA": "ca.pem"}, nil, []string{"tls-ca ca.pem BELFRY_TLS_CA"}},
		"a part for clients": {"zone = rack-7\n", "--tls-client-cert by the command line; missing: --tls-client-key.", nil,
			[]string{"--tls-client-cert", "c"}, []string{"tls-client-cert c flag"}},
		"no shards": {"zone = rack-7\n", "--shards must be 1 to 1024, is 0", nil, []string{"--shards", "0"},
			[]string{"shards 0 flag"}},
		"many shards": {"zone = rack-7\n", "--shards must be 1 to 1024, is 1025", nil, []string{"--shards", "1025"},
			[]string{"shards 1025 flag"}},
		"a port of a host": {"zone = rack-7\n", `--advertise: have "n1:7400", want a host`, nil,
			[]string{"--advertise", "n1:7400"}, []string{"advertise n1:7400 flag"}},
		"an argument": {"zone = rack-7\n", "one argument too many", nil, []string{"n1"},
			[]string{"zone rack-7 belfry.conf:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, nil)
			file := clitest.WriteFile(t, "belfry.conf", test.text)
			h.Env["BELFRY_CONFIG"] = file
			for variable, value := range test.env {
				h.Env[variable] = value
			}
			lines, code, said := settingsShown(t, h, append(test.args, "--print-config")...)
			shown, said := strings.ReplaceAll(strings.Join(lines, "\n"), filepath.Dir(file)+"/", ""),
				strings.ReplaceAll(said, filepath.Dir(file)+"/", "")
			if code != cli.CodeUsage || !strings.Contains(said, test.says) {
				t.Errorf("exit code %d, %s", code, said)
			}
			for _, want := range test.want {
				if !strings.Contains(shown+"\n", "\n"+want+"\n") {
					t.Errorf("%q is not in\n%s", want, shown)
				}
			}
		})
	}
	h := newHarness(t, nil)
	h.Env["BELFRY_CONFIG"] = filepath.Join(t.TempDir(), "nowhere.conf")
	if lines, code, said := settingsShown(t, h, "--print-config"); code != cli.CodeUsage || len(lines) < 10 ||
		!strings.Contains(said, "nowhere.conf") {
		t.Errorf("without the file: exit code %d, %s, %q", code, said, lines)
	}
}

func TestPrintConfigHidesSecrets(t *testing.T) {
	h := newHarness(t, nil)
	h.Env["BELFRY_MIRROR_REDIS"] = "rediss://app:hunter2@r1:6379,app:hunter3@r2:6379/0?password=hunter4"
	h.Env["BELFRY_GOSSIP_KEYS"] = clitest.WriteFile(t, "gossip.keys",
		base64.StdEncoding.EncodeToString([]byte("hunter5hunter5hu"))+"\n")
	lines, code, said := settingsShown(t, h, "--print-config", "--redis-password-file",
		clitest.WriteFile(t, "redis.password", "hunter6\n"))
	text := fmt.Sprint(lines, said)
	if code != cli.CodeUsage || !strings.Contains(said, "--mirror-queue") || strings.Contains(text, "hunter") ||
		!strings.Contains(text, "gossip.keys BELFRY_GOSSIP_KEYS") ||
		!strings.Contains(text, "mirror-redis rediss://***@r2:6379/0?*** BELFRY_MIRROR_REDIS") {
		t.Errorf("exit code %d, %s", code, text)
	}
}
