package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli/access"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// securedFile is what docker-compose.secured.yml may hold; reading it refuses all else.
type securedFile struct {
	Secret   securedService            `yaml:"x-secret"`
	Services map[string]securedService `yaml:"services"`
	Volumes  map[string]any            `yaml:"volumes"`
}

type securedService struct {
	Image       string
	Command     []string
	Environment map[string]string
	Volumes     []string
	NetworkMode string `yaml:"network_mode"`
	Healthcheck struct{ Disable bool }
	ReadOnly    bool                                  `yaml:"read_only"`
	CapDrop     []string                              `yaml:"cap_drop"`
	SecurityOpt []string                              `yaml:"security_opt"`
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
}

// TestComposeSecured: the nodes are those of docker-compose.yml but for what protects them, nothing
// says --insecure, and what they read is what is made before they start.
func TestComposeSecured(t *testing.T) {
	var file securedFile
	decoder := yaml.NewDecoder(bytes.NewReader(deployed(t, "docker-compose.secured.yml")))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	nodes := compose(t).Services
	if len(file.Services) != len(nodes)+2 {
		t.Errorf("%d services, of which %d are nodes", len(file.Services), len(nodes))
	}
	made := madeBy(t, file)
	for name, plain := range nodes {
		secured := file.Services[name]
		flags, before := served(t, secured.Command), served(t, plain.Command)
		protects := map[string]string{
			"tls-cert": name + ".pem", "tls-key": name + "-key.pem", "tls-ca": access.AuthorityCert,
			"gossip-keys": access.GossipKeyFile, "root-tokens": access.RootTokensFile,
		}
		flags.VisitAll(func(f *pflag.Flag) {
			want := value(before, f.Name)
			if file, ok := protects[f.Name]; ok {
				want = "/secrets/" + file
				if !made[file] {
					t.Errorf("%s reads %s, which nothing makes", name, file)
				}
			}
			if f.Name == "insecure" {
				want = "false"
			}
			if f.Value.String() != want {
				t.Errorf("%s: --%s is %s, want %s", name, f.Name, f.Value, want)
			}
		})
		for variable, want := range map[string]string{
			"BELFRY_SERVER": strings.Replace(plain.Environment["BELFRY_SERVER"], "http:", "https:", 1),
			"BELFRY_TLS_CA": "/secrets/ca.pem", "BELFRY_TOKEN_FILE": "/secrets/root.token",
		} {
			if got := secured.Environment[variable]; got != want {
				t.Errorf("%s: %s is %s, want %s", name, variable, got, want)
			}
		}
		if !slices.Equal(secured.Volumes, []string{"secrets:/secrets:ro"}) {
			t.Errorf("%s: volumes %q", name, secured.Volumes)
		}
		for _, first := range []string{"certs", "tokens"} {
			if got := secured.DependsOn[first].Condition; got != "service_completed_successfully" {
				t.Errorf("%s starts when %s is %q", name, first, got)
			}
		}
	}
}

// madeBy runs the commands that make secrets, twice as two starts do, and returns the files that
// there are then. The second start changes no token and no key of gossip.
func madeBy(t *testing.T, file securedFile) map[string]bool {
	t.Helper()
	dir, made, first := t.TempDir(), map[string]bool{}, map[string]string{}
	for range 2 {
		for _, name := range []string{"certs", "tokens"} {
			service := file.Services[name]
			if service.NetworkMode != "none" || !service.ReadOnly || !service.Healthcheck.Disable ||
				!slices.Equal(service.Volumes, []string{"secrets:/data"}) || service.Image != "belfry" {
				t.Errorf("%s: %+v", name, service)
			}
			args := slices.Clone(service.Command)
			for i := range args {
				args[i] = strings.Replace(args[i], "--dir=/data", "--dir="+dir, 1)
			}
			if got := runProgram(t, launcher, nil, args...); got.Code != 0 {
				t.Fatalf("%s: %+v", name, got)
			}
		}
		for _, name := range []string{"n1.pem", "n2.pem", "n3.pem", "n1-key.pem", "n2-key.pem", "n3-key.pem",
			access.AuthorityCert, access.GossipKeyFile, access.RootTokensFile, "root" + access.TokenSuffix} {
			made[name] = exists(dir, name)
		}
		for _, name := range []string{access.AuthorityCert, access.GossipKeyFile, access.RootTokensFile,
			"root" + access.TokenSuffix} {
			text := string(secretIn(t, dir, name))
			if first[name] == "" {
				first[name] = text
			} else if first[name] != text {
				t.Errorf("a second start changes %s", name)
			}
		}
	}
	return made
}

// secretIn returns a file of a directory.
func secretIn(t *testing.T, dir, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
