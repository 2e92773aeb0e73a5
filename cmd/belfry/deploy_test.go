package main

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/server"
	"github.com/belfrydb/belfry/mirror/redisson"
)

// deployed returns a file of the repository that starts servers.
func deployed(t *testing.T, name ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, filepath.Join(name...)))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// parsed reads the words of a command line, without the name of the program, as the program does,
// and returns the flags of the command that they name.
func parsed(words []string) (command string, flags *pflag.FlagSet, err error) {
	found, rest, err := newRoot(cli.New(&cli.System{})).Find(words)
	if err != nil {
		return "", nil, fmt.Errorf("%q: %w", words, err)
	}
	if err := found.ParseFlags(rest); err != nil {
		return "", nil, fmt.Errorf("%q: %w", words, err)
	}
	if left := found.Flags().Args(); len(left) > 0 {
		return "", nil, fmt.Errorf("%q: what is %q?", words, left)
	}
	return found.Name(), found.Flags(), nil
}

// served is parsed for a command line that must start a server.
func served(t *testing.T, words []string) *pflag.FlagSet {
	t.Helper()
	command, flags, err := parsed(words)
	if err != nil {
		t.Fatal(err)
	}
	if command != "serve" {
		t.Fatalf("%q runs %s, not serve", words, command)
	}
	return flags
}

// value returns a flag as text.
func value(flags *pflag.FlagSet, name string) string { return flags.Lookup(name).Value.String() }

// port returns the port of an address.
func port(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestParsedRefusesWhatThereIsNot: the tests below are worth what parsed refuses.
func TestParsedRefusesWhatThereIsNot(t *testing.T) {
	for _, line := range []string{"serve --joins=a:1", "server --data=x", "serve --shards=many", "serve data",
		"health --timeout=soon"} {
		if command, _, err := parsed(strings.Fields(line)); err == nil {
			t.Errorf("%q is taken for %s", line, command)
		}
	}
}

// composeFile is what docker-compose.yml may hold; reading it refuses all else.
type composeFile struct {
	Node     composeService            `yaml:"x-node"`
	Services map[string]composeService `yaml:"services"`
	Volumes  map[string]any            `yaml:"volumes"`
}

type composeService struct {
	Image       string
	Build       struct{ Context, Dockerfile string }
	Hostname    string
	Command     []string
	Environment map[string]string
	Healthcheck struct {
		Test              []string
		Interval, Timeout time.Duration
		StartPeriod       time.Duration `yaml:"start_period"`
		Retries           int
	}
	Ports       []string
	Volumes     []string
	Restart     string
	Profiles    []string
	User        string
	Tmpfs       []string
	StopGrace   time.Duration `yaml:"stop_grace_period"`
	ReadOnly    bool          `yaml:"read_only"`
	CapDrop     []string      `yaml:"cap_drop"`
	SecurityOpt []string      `yaml:"security_opt"`
}

// compose returns docker-compose.yml as it is without a profile: three nodes.
func compose(t *testing.T) composeFile {
	t.Helper()
	file := composeAll(t)
	maps.DeleteFunc(file.Services, func(_ string, s composeService) bool { return len(s.Profiles) > 0 })
	if len(file.Services) != 3 {
		t.Fatalf("docker-compose.yml has %d services without a profile", len(file.Services))
	}
	return file
}

// composeAll returns docker-compose.yml with its variables at their defaults.
func composeAll(t *testing.T) composeFile {
	t.Helper()
	text := regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`).ReplaceAll(deployed(t, "docker-compose.yml"), []byte("$1"))
	var file composeFile
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestComposeMirror reads what the profile mirror adds: a Redis that cannot be reached from
// outside, and a mirror between it and a node.
func TestComposeMirror(t *testing.T) {
	file := composeAll(t)
	redis, mirror := file.Services["redis"], file.Services["mirror"]
	for name, service := range map[string]composeService{"redis": redis, "mirror": mirror} {
		if !slices.Equal(service.Profiles, []string{"mirror"}) || len(service.Ports) > 0 || len(service.Volumes) > 0 {
			t.Errorf("%s: profiles %q, ports %q, volumes %q", name, service.Profiles, service.Ports, service.Volumes)
		}
		if !service.ReadOnly || !slices.Equal(service.CapDrop, []string{"ALL"}) ||
			!slices.Equal(service.Tmpfs, []string{"/data"}) {
			t.Errorf("%s: read-only %v, without %q, in memory %q", name, service.ReadOnly, service.CapDrop, service.Tmpfs)
		}
	}
	if built := string(deployed(t, "deploy", "redis-image")); !strings.Contains(built, "--tag "+redis.Image+" ") ||
		!strings.Contains(built, "\nUSER "+redis.User+"\n") {
		t.Errorf("deploy/redis-image does not build %s for user %s", redis.Image, redis.User)
	}
	found, rest, err := newRoot(cli.New(&cli.System{})).Find(mirror.Command)
	if err != nil {
		t.Fatal(err)
	}
	if err := found.ParseFlags(rest); err != nil {
		t.Fatal(err)
	}
	if got := found.Flags().Args(); found.CommandPath() != "belfry mirror run" ||
		!slices.Equal(got, []string{"redis://redis:6379"}) {
		t.Errorf("the mirror is %q of %q", found.CommandPath(), got)
	}
	if _, err := redisson.ParseCodec(value(found.Flags(), "codec")); err != nil {
		t.Error(err)
	}
	checkHealthCommand(t, "mirror", mirror.Healthcheck.Test, mirror.Healthcheck.Timeout)
	n1 := served(t, file.Services["n1"].Command)
	if want := "http://n1:" + port(t, value(n1, "listen")); mirror.Environment["BELFRY_SERVER"] != want {
		t.Errorf("the mirror asks %s, want %s", mirror.Environment["BELFRY_SERVER"], want)
	}
}

func TestComposeStartsNodesThatFindEachOther(t *testing.T) {
	file := compose(t)
	zones, volumes := make(map[string]bool), make(map[string]any)
	for name, service := range file.Services {
		flags := served(t, service.Command)
		if got := []string{service.Hostname, value(flags, "node-id"), value(flags, "advertise")}; !slices.Equal(got,
			[]string{name, name, name}) {
			t.Errorf("%s: host, node and advertised name are %q", name, got)
		}
		if got := value(flags, "insecure"); got != "true" {
			t.Errorf("%s: --insecure is %s, and it listens on %s", name, got, value(flags, "listen"))
		}
		zones[value(flags, "zone")] = true
		if len(service.Volumes) != 1 || service.Volumes[0] != name+":/data" {
			t.Errorf("%s: volumes %q", name, service.Volumes)
		}
		volumes[name] = nil
		seeds, err := flags.GetStringSlice("join")
		if err != nil {
			t.Fatal(err)
		}
		for _, seed := range seeds {
			host, gossipPort, err := net.SplitHostPort(seed)
			if err != nil {
				t.Fatal(err)
			}
			joined, there := file.Services[host]
			if !there {
				t.Fatalf("%s joins %s, and there is no such service", name, seed)
			}
			if listens := port(t, value(served(t, joined.Command), "gossip-listen")); listens != gossipPort {
				t.Errorf("%s joins %s, which listens on port %s", name, seed, listens)
			}
		}
	}
	if len(zones) != len(file.Services) {
		t.Errorf("zones %v: a zone of its own for each node is what the placement needs to be seen", zones)
	}
	if diff := cmp.Diff(volumes, file.Volumes); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
}

func TestComposePublishesOnLoopbackOnly(t *testing.T) {
	for name, service := range compose(t).Services {
		listens := port(t, value(served(t, service.Command), "listen"))
		if want := "127.0.0.1:" + listens + ":" + listens; !slices.Equal(service.Ports, []string{want}) {
			t.Errorf("%s publishes %q, want %s alone", name, service.Ports, want)
		}
		if number, err := strconv.Atoi(listens); err != nil || number < 7400 || number > 7420 {
			t.Errorf("%s publishes port %s; 7400 to 7420 are ours", name, listens)
		}
		if want := "http://127.0.0.1:" + listens; service.Environment["BELFRY_SERVER"] != want {
			t.Errorf("%s: commands in the container ask %s, want %s", name, service.Environment["BELFRY_SERVER"], want)
		}
	}
}

func TestComposeChecksAndStopsNodes(t *testing.T) {
	for name, service := range compose(t).Services {
		checkHealthCommand(t, name, service.Healthcheck.Test, service.Healthcheck.Timeout)
		if service.StopGrace <= server.StopMax {
			t.Errorf("%s is killed %s after it was told to stop; it may take %s", name, service.StopGrace, server.StopMax)
		}
		if service.Restart != "unless-stopped" {
			t.Errorf("%s: restart %q; a node that ends by itself must be started again", name, service.Restart)
		}
	}
}

// checkHealthCommand checks a health check in exec form: the image has no shell. The command must
// give up before the program that runs it does, so that it can say why.
func checkHealthCommand(t *testing.T, name string, test []string, timeout time.Duration) {
	t.Helper()
	if len(test) < 2 || test[0] != "CMD" || test[1] != "/belfry" {
		t.Fatalf("%s: health check %q", name, test)
	}
	command, flags, err := parsed(test[2:])
	if err != nil || command != "health" {
		t.Fatalf("%s: health check %q is %s: %v", name, test, command, err)
	}
	own, err := flags.GetDuration("timeout")
	if err != nil || own >= timeout {
		t.Errorf("%s: the check takes up to %s and is given %s: %v", name, own, timeout, err)
	}
}

func TestDockerfile(t *testing.T) {
	text := string(deployed(t, "Dockerfile"))
	if from := regexp.MustCompile(`(?m)^FROM (.*)$`).FindAllStringSubmatch(text, -1); len(from) != 1 ||
		from[0][1] != "scratch" {
		t.Errorf("built from %q: anything but scratch would be pulled", from)
	}
	if strings.HasPrefix(text, "# syntax") {
		t.Error("a syntax line is pulled as well")
	}
	user := regexp.MustCompile(`(?m)^USER (\d+):(\d+)$`).FindStringSubmatch(text)
	if user == nil || user[1] == "0" || user[2] == "0" {
		t.Errorf("user %q; want numbers other than 0", user)
	} else if !strings.Contains(text, "COPY --chown="+user[1]+":"+user[2]+" volume/ /\n") {
		t.Error("the data directory does not belong to the user")
	}
	for _, variable := range regexp.MustCompile(`(?m)^ENV (BELFRY_\w+)=`).FindAllStringSubmatch(text, -1) {
		if !slices.ContainsFunc(cli.KnownSettings(newRoot(cli.New(&cli.System{}))), func(name string) bool {
			return cli.EnvName(name) == variable[1]
		}) {
			t.Errorf("%s means nothing", variable[1])
		}
	}
	health := regexp.MustCompile(`(?m)^HEALTHCHECK .*--timeout=(\S+) .*CMD \[(.*)\]$`).FindStringSubmatch(text)
	if health == nil {
		t.Fatal("no health check in exec form")
	}
	timeout, err := time.ParseDuration(health[1])
	if err != nil {
		t.Fatal(err)
	}
	checkHealthCommand(t, "Dockerfile",
		append([]string{"CMD"}, strings.Split(strings.ReplaceAll(health[2], `"`, ""), ", ")...), timeout)
}

func TestSystemdUnit(t *testing.T) {
	settings := make(map[string]string)
	for _, line := range regexp.MustCompile(`(?m)^([A-Za-z]+)=(.*)$`).FindAllStringSubmatch(
		string(deployed(t, "deploy", "systemd", "belfry.service")), -1) {
		settings[line[1]] = line[2]
	}
	words := strings.Fields(settings["ExecStart"])
	if len(words) < 2 {
		t.Fatalf("ExecStart %q", settings["ExecStart"])
	}
	flags := served(t, words[1:])
	if want := "/var/lib/" + settings["StateDirectory"]; value(flags, "data") != want {
		t.Errorf("data in %s, and the unit may write to %s", value(flags, "data"), want)
	}
	seconds, err := strconv.Atoi(settings["TimeoutStopSec"])
	if stop := time.Duration(seconds) * time.Second; err != nil || stop <= server.StopMax {
		t.Errorf("killed %s after it was told to stop; it may take %s: %v", stop, server.StopMax, err)
	}
	if want := strconv.Itoa(cli.CodeUsage); settings["RestartPreventExitStatus"] != want {
		t.Errorf("not started again after %s; usage is %s", settings["RestartPreventExitStatus"], want)
	}
	for name, want := range map[string]string{
		"Restart": "on-failure", "DynamicUser": "yes", "ProtectSystem": "strict", "NoNewPrivileges": "yes",
		"CapabilityBoundingSet": "", "StartLimitIntervalSec": "0",
	} {
		if got, there := settings[name]; !there || got != want {
			t.Errorf("%s=%s, want %s", name, got, want)
		}
	}
}

// TestSystemdSecured: the settings as they stand are all that a node on a network needs, and what
// it reads the unit hands over.
func TestSystemdSecured(t *testing.T) {
	text := string(deployed(t, "deploy", "systemd", "belfry.conf"))
	file, err := cli.ParseSettings("belfry.conf", []byte(text), cli.KnownSettings(newRoot(cli.New(&cli.System{}))))
	if err != nil {
		t.Fatal(err)
	}
	unit := string(deployed(t, "deploy", "systemd", "belfry.service"))
	for _, name := range []string{"tls-cert", "tls-key", "tls-ca", "gossip-keys", "root-tokens"} {
		handed, found := strings.CutPrefix(file.Settings[name].Value, "/run/credentials/belfry.service/")
		if !found || !strings.Contains(unit, "\nLoadCredential="+handed+":/etc/belfry/") {
			t.Errorf("%s is %q, which the unit does not hand over", name, file.Settings[name].Value)
		}
	}
	if _, live := file.Settings["insecure"]; live || !strings.Contains(text, "\n# insecure = true\n") {
		t.Error("insecure belongs into a comment, beside what stands in its place")
	}
	if !strings.Contains(unit, "\n# ExecReload=/bin/kill -HUP $MAINPID\n") || strings.Contains(unit, "\nExecReload") {
		t.Error("a reload must be for those with files to reload only: it ends all others")
	}
}

// TestSettingsExample reads the example as `serve --config` does, and each value as its flag does.
func TestSettingsExample(t *testing.T) {
	root := newRoot(cli.New(&cli.System{}))
	file, err := cli.ParseSettings("belfry.conf", deployed(t, "deploy", "systemd", "belfry.conf"), cli.KnownSettings(root))
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Settings) < 4 {
		t.Errorf("%d settings", len(file.Settings))
	}
	serve, _, err := root.Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	for name := range file.Settings {
		if serve.Flags().Lookup(name) == nil {
			t.Errorf("%s is no setting of serve", name)
		} else if err := file.Apply(serve.Flags(), name); err != nil {
			t.Error(err)
		}
	}
}
