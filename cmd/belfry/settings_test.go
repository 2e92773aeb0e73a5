package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestPrecedence takes one setting away after the other: the flag wins, then the environment, then
// the file.
func TestPrecedence(t *testing.T) {
	file := clitest.WriteFile(t, "belfry.conf", "# comment\n\n output = \"json\"\nlisten=127.0.0.1:1\n")
	const table, json = "acked\n", "{"
	for _, test := range []struct {
		name string
		env  map[string]string
		args []string
		want string
	}{
		{"the flag wins", map[string]string{"BELFRY_OUTPUT": "json", "BELFRY_CONFIG": file}, []string{"-o", "table"}, table},
		{"then the environment", map[string]string{"BELFRY_OUTPUT": "table", "BELFRY_CONFIG": file}, nil, table},
		{"then the file", map[string]string{"BELFRY_CONFIG": file}, nil, json},
		{"the file by flag", nil, []string{"--config", file}, json},
		{"an empty variable is none", map[string]string{"BELFRY_OUTPUT": "", "BELFRY_CONFIG": file}, nil, json},
		{"then the default", nil, nil, table},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t, clitest.Always(&belfryv1.AckResponse{}))
			for name, value := range test.env {
				h.Env[name] = value
			}
			if got := h.Run(append([]string{"ack", "lease"}, test.args...)...); got.Code != 0 ||
				!strings.HasPrefix(got.Out, test.want) {
				t.Errorf("got %+v, want %q", got, test.want)
			}
		})
	}
}

func TestBadSettings(t *testing.T) {
	for _, test := range []struct {
		name string
		text string
		says string
	}{
		{"unknown name", "server = http://x\noutptu = json\n",
			`belfry.conf:2: unknown setting "outptu"; did you mean "output"?`},
		{"a name of no setting", "yes = true\n", `belfry.conf:1: unknown setting "yes"`},
		{"no value", "output\n", `belfry.conf:1: want name = value, have "output"`},
		{"twice", "output = json\noutput = table\n", "belfry.conf:2: output is already set in line 1"},
		{"bad value", "\noutput = yaml\n", `belfry.conf:2: output: have "yaml", want one of table, json`},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t, clitest.Always(&belfryv1.AckResponse{}))
			got := h.Run("ack", "lease", "--config", clitest.WriteFile(t, "belfry.conf", test.text))
			if got.Code != cli.CodeUsage || !strings.Contains(got.Err, test.says) {
				t.Errorf("got %+v, want exit code 2 and %q", got, test.says)
			}
		})
	}
	for _, test := range []struct{ command, setting, value, says string }{
		{"ack lease", "timeout", "soon", `have "soon", want a duration such as`},
		{"serve", "shards", "six", `have "six", want a whole number` + "\n"},
		{"serve", "insecure", "maybe", `have "maybe", want true or false` + "\n"},
	} {
		t.Run("bad "+test.setting, func(t *testing.T) {
			h := newHarness(t, clitest.Always(&belfryv1.AckResponse{}))
			file := clitest.WriteFile(t, "belfry.conf", test.setting+" = "+test.value)
			if got := h.Run(append(strings.Fields(test.command), "--config", file)...); got.Code != cli.CodeUsage ||
				!strings.Contains(got.Err, "belfry.conf:1: "+test.setting+": "+test.says) {
				t.Errorf("from a file: got %+v, want exit code 2 and %q", got, test.says)
			}
			h.Env[cli.EnvName(test.setting)] = test.value
			if got := h.Run(strings.Fields(test.command)...); got.Code != cli.CodeUsage ||
				!strings.Contains(got.Err, cli.EnvName(test.setting)+": "+test.says) {
				t.Errorf("from the environment: got %+v, want exit code 2 and %q", got, test.says)
			}
		})
	}
	t.Run("no such file", func(t *testing.T) {
		h := newHarness(t, clitest.Always(&belfryv1.AckResponse{}))
		if got := h.Run("ack", "lease", "--config", "nowhere.conf"); got.Code != cli.CodeUsage ||
			!strings.Contains(got.Err, "nowhere.conf") {
			t.Errorf("got %+v, want exit code 2 and the file's name", got)
		}
	})
}

// TestMisspelledVariables: what is nearly a variable of ours gets a warning and no more; what an
// orchestrator sets for a service named belfry gets none.
func TestMisspelledVariables(t *testing.T) {
	for variable, meant := range map[string]string{
		"BELFRY_LISTN": "BELFRY_LISTEN", "BELFRY_NODEID": "BELFRY_NODE_ID", "BELFRY_SERVRE": "BELFRY_SERVER",
		"BELFRY_CONFG":    "BELFRY_CONFIG",
		"BELFRY_DATA_DIR": "", "BELFRY_OUTPUT": "", "BELFY_LISTEN": "", "LISTEN": "", "HOME": "",
		"BELFRY_SERVICE_HOST": "", "BELFRY_SERVICE_PORT": "", "BELFRY_SERVICE_PORT_HTTP": "", "BELFRY_PORT": "",
		"BELFRY_PORT_7400_TCP":       "",
		"BELFRY_PORT_7400_TCP_PROTO": "", "BELFRY_PORT_7400_TCP_PORT": "", "BELFRY_PORT_7400_TCP_ADDR": "",
	} {
		h := newHarness(t, clitest.Always(&belfryv1.AckResponse{}))
		h.Env[variable] = "json"
		got := h.Run("ack", "lease")
		want := ""
		if meant != "" {
			want = "belfry: warning: the environment has " + variable + ", which means nothing; did you mean " + meant + "?\n"
		}
		if got.Code != 0 || got.Err != want {
			t.Errorf("%s: got %+v, want success and %q", variable, got, want)
		}
	}
}

// TestConfigurableFlags lists what the environment can set, so that nothing gets in by accident.
func TestConfigurableFlags(t *testing.T) {
	want := []string{
		"accept-clock", "advertise", "beanstalkd-client-ca", "beanstalkd-listen", "beanstalkd-max-job-bytes",
		"beanstalkd-token-file", "bootstrap-expect", "data", "debug-addr", "gossip-keys", "gossip-listen", "grace-period",
		"insecure", "join", "listen", "lmstfy-listen", "log-format", "log-level", "memory", "metrics-max-queues",
		"mirror-queue", "mirror-redis", "mirror-replicas", "mirror-token-file", "node-id", "output", "peer-listen",
		"print-addresses", "redis-ca", "redis-cert", "redis-key", "redis-password-file", "redis-tls-name",
		"replication-factor", "root-tokens", "server", "shards", "timeout",
		"tls-ca", "tls-cert", "tls-client-cert", "tls-client-key", "tls-key", "token-file", "ui", "ui-prefix", "zone",
		"zoneinfo",
	}
	if diff := cmp.Diff(want, cli.KnownSettings(newRoot(cli.New(&cli.System{})))); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

// TestHelpNamesTheVariables walks all commands: the help of each flag names its variable.
func TestHelpNamesTheVariables(t *testing.T) {
	cli.EachCommand(newRoot(cli.New(&cli.System{})), func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if cli.IsConfigurable(f) && strings.Count(f.Usage, "["+cli.EnvName(f.Name)+"]") != 1 {
				t.Errorf("%s --%s: the help %q does not name %s once", c.CommandPath(), f.Name, f.Usage, cli.EnvName(f.Name))
			}
			if f.Usage == "" {
				t.Errorf("%s --%s has no help", c.CommandPath(), f.Name)
			}
		})
		if c.Short == "" {
			t.Errorf("%s has no help", c.CommandPath())
		}
	})
}
