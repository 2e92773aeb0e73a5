package main

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/belfrydb/belfry/cmd/belfry/cli/access"
	"github.com/belfrydb/belfry/cmd/belfry/server"
)

// kubernetesFields are the fields that the manifest uses, checked against the reference of the API.
// Kubernetes passes over a misspelt field with a warning at most, so one that is not here is an
// error.
var kubernetesFields = strings.Fields(`
	apiVersion kind metadata spec name labels annotations template
	ports port targetPort containerPort protocol clusterIP publishNotReadyAddresses selector matchLabels
	maxUnavailable serviceName replicas podManagementPolicy updateStrategy type minReadySeconds
	terminationGracePeriodSeconds automountServiceAccountToken enableServiceLinks
	securityContext runAsNonRoot runAsUser runAsGroup fsGroup fsGroupChangePolicy seccompProfile
	allowPrivilegeEscalation readOnlyRootFilesystem capabilities drop
	affinity podAntiAffinity requiredDuringSchedulingIgnoredDuringExecution topologyKey labelSelector
	topologySpreadConstraints maxSkew whenUnsatisfiable
	containers image args env value valueFrom fieldRef fieldPath
	startupProbe livenessProbe readinessProbe httpGet path scheme periodSeconds timeoutSeconds failureThreshold
	resources requests limits volumeMounts mountPath readOnly
	volumes secret secretName defaultMode
	persistentVolumeClaimRetentionPolicy whenDeleted whenScaled volumeClaimTemplates accessModes
	podSelector namespaceSelector policyTypes ingress from`)

// freeForm are the fields below which the names are the user's.
var freeForm = []string{"labels", "annotations", "matchLabels", "requests", "limits"}

// manifest is one object of the manifest, as far as the tests read it.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		// Selector is a map of labels in a Service, and has them in matchLabels elsewhere.
		Selector                 map[string]any
		ClusterIP                string `yaml:"clusterIP"`
		PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
		MaxUnavailable           int    `yaml:"maxUnavailable"`
		ServiceName              string `yaml:"serviceName"`
		Replicas                 int
		PodManagementPolicy      string `yaml:"podManagementPolicy"`
		Template                 struct {
			Metadata struct{ Labels map[string]string }
			Spec     podSpec
		}
		VolumeClaimTemplates []struct {
			Metadata struct{ Name string }
		} `yaml:"volumeClaimTemplates"`
	}
}

type podSpec struct {
	GraceSeconds int `yaml:"terminationGracePeriodSeconds"`
	Affinity     struct {
		Anti struct {
			Required []struct {
				TopologyKey string `yaml:"topologyKey"`
			} `yaml:"requiredDuringSchedulingIgnoredDuringExecution"`
		} `yaml:"podAntiAffinity"`
	}
	Volumes []struct {
		Name   string
		Secret struct {
			SecretName  string `yaml:"secretName"`
			DefaultMode int    `yaml:"defaultMode"`
		}
	}
	Containers []struct {
		Args    []string
		Ports   []containerPort
		Mounts  []volumeMount `yaml:"volumeMounts"`
		Startup probe         `yaml:"startupProbe"`
		Live    probe         `yaml:"livenessProbe"`
		Ready   probe         `yaml:"readinessProbe"`
	}
}

type containerPort struct {
	Name          string
	ContainerPort string `yaml:"containerPort"`
}

type volumeMount struct {
	Name      string
	MountPath string `yaml:"mountPath"`
}

type probe struct {
	HTTPGet struct{ Path, Port, Scheme string } `yaml:"httpGet"`
}

// kubernetes returns the objects of the manifest by kind and name, after it has looked at the name
// of every field.
func kubernetes(t *testing.T) map[string]manifest {
	t.Helper()
	return kubernetesObjects(t, deployed(t, "deploy", "kubernetes", "belfry.yaml"))
}

// kubernetesObjects is kubernetes for a text.
func kubernetesObjects(t *testing.T, text []byte) map[string]manifest {
	t.Helper()
	objects := make(map[string]manifest)
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		checkFields(t, document.Content[0])
		var object manifest
		if err := document.Decode(&object); err != nil {
			t.Fatal(err)
		}
		objects[object.Kind+" "+object.Metadata.Name] = object
	}
}

// checkFields reports fields that Kubernetes does not have.
func checkFields(t *testing.T, node *yaml.Node) {
	t.Helper()
	if node.Kind != yaml.MappingNode {
		for _, part := range node.Content {
			checkFields(t, part)
		}
		return
	}
	for i := 0; i < len(node.Content); i += 2 {
		field, value := node.Content[i], node.Content[i+1]
		userNamed := slices.Contains(freeForm, field.Value) || field.Value == "selector" && len(value.Content) > 0 &&
			value.Content[0].Value != "matchLabels"
		if !slices.Contains(kubernetesFields, field.Value) {
			t.Errorf("belfry.yaml:%d: there is no field %s", field.Line, field.Value)
		} else if !userNamed {
			checkFields(t, value)
		}
	}
}

func TestKubernetesObjectsFitTogether(t *testing.T) {
	objects := kubernetes(t)
	want := []string{"NetworkPolicy belfry", "PodDisruptionBudget belfry", "Service belfry", "Service belfry-nodes",
		"StatefulSet belfry"}
	if got := slices.Sorted(maps.Keys(objects)); !slices.Equal(got, want) {
		t.Fatalf("objects %q, want %q", got, want)
	}
	set := objects["StatefulSet belfry"]
	labels := set.Spec.Template.Metadata.Labels
	for name, object := range objects {
		selector := object.Spec.Selector
		if inner, ok := selector["matchLabels"].(map[string]any); ok {
			selector = inner
		}
		for label, value := range selector {
			if labels[label] != value {
				t.Errorf("%s selects %s=%v, and the pods have %q", name, label, value, labels[label])
			}
		}
	}
	nodes := objects["Service "+set.Spec.ServiceName]
	if nodes.Spec.ClusterIP != "None" || !nodes.Spec.PublishNotReadyAddresses {
		t.Errorf("the service of the StatefulSet: %+v; pods need names of their own before they are ready", nodes.Spec)
	}
	if set.Spec.PodManagementPolicy != "Parallel" {
		t.Error("after a stop of all pods the first would wait for a majority that is not started before it is ready")
	}
	budget := objects["PodDisruptionBudget belfry"].Spec.MaxUnavailable
	if majority := set.Spec.Replicas/2 + 1; set.Spec.Replicas-budget < majority {
		t.Error("an eviction may take the majority")
	}
	if anti := set.Spec.Template.Spec.Affinity.Anti.Required; len(anti) != 1 ||
		anti[0].TopologyKey != "kubernetes.io/hostname" {
		t.Errorf("anti-affinity %+v: two pods may share a machine", anti)
	}
}

// TestKubernetesSecured: as it stands, a pod has all that a node on a network needs; --insecure is
// there as a comment.
func TestKubernetesSecured(t *testing.T) {
	text := string(deployed(t, "deploy", "kubernetes", "belfry.yaml"))
	pod := kubernetes(t)["StatefulSet belfry"].Spec.Template.Spec
	c := pod.Containers[0]
	words := make([]string, len(c.Args))
	for i, arg := range c.Args {
		words[i] = strings.ReplaceAll(arg, "$(POD_NAME)", "belfry-0")
	}
	flags := served(t, words)
	for name, file := range map[string]string{
		"tls-cert": "belfry-0.pem", "tls-key": "belfry-0-key.pem", "tls-ca": access.AuthorityCert,
		"gossip-keys": access.GossipKeyFile, "root-tokens": access.RootTokensFile,
	} {
		if value(flags, name) != "/secrets/"+file ||
			!strings.Contains(text, "--from-file=secrets/"+strings.ReplaceAll(file, "belfry-0", "belfry-$n")) {
			t.Errorf("%s is %q, want %s, of the secret", name, value(flags, name), file)
		}
	}
	if value(flags, "insecure") != "false" || !strings.Contains(text, "\n            # - --insecure\n") {
		t.Error("--insecure belongs into a comment, beside what stands in its place")
	}
	if len(pod.Volumes) != 1 || pod.Volumes[0].Name != "secrets" || pod.Volumes[0].Secret.SecretName != "belfry" ||
		pod.Volumes[0].Secret.DefaultMode&0o007 != 0 {
		t.Errorf("volumes %+v; want the secret, for nobody but the pod's user and group", pod.Volumes)
	}
	if !slices.Contains(c.Mounts, volumeMount{"secrets", "/secrets"}) {
		t.Errorf("the secret is mounted nowhere: %+v", c.Mounts)
	}
}

// TestKubernetesMetrics reads what is commented out for a Prometheus as if it were not: the scrape
// has TLS and a token, its job is named as the alerts want it, and the policy lets it in.
func TestKubernetesMetrics(t *testing.T) {
	text := string(deployed(t, "deploy", "kubernetes", "belfry.yaml"))
	if strings.Contains(text, "prometheus.io/scrape") {
		t.Error("annotations give a scraper no token")
	}
	policy := regexp.MustCompile(`(?m)^    # ((?:- from:|  ).*)$`)
	if rules := policy.FindAllString(text, -1); len(rules) != 7 {
		t.Errorf("the rule for another namespace has lines %q", rules)
	}
	kubernetesObjects(t, []byte(policy.ReplaceAllString(text, "    $1"))) // each field is looked at
	_, commented, found := strings.Cut(text, "\n# ---\n")
	if !found {
		t.Fatal("no PodMonitor")
	}
	type key struct{ Name, Key string }
	var monitor struct {
		Kind string
		Spec struct {
			JobLabel string `yaml:"jobLabel"`
			Selector struct {
				MatchLabels map[string]string `yaml:"matchLabels"`
			}
			Endpoints []struct {
				Port, Path, Scheme string
				TLSConfig          struct {
					CA         struct{ Secret key }
					ServerName string `yaml:"serverName"`
				} `yaml:"tlsConfig"`
				Authorization struct{ Credentials key }
			} `yaml:"podMetricsEndpoints"`
		}
	}
	if err := yaml.Unmarshal([]byte(regexp.MustCompile(`(?m)^# `).ReplaceAllString(commented, "")), &monitor); err != nil {
		t.Fatal(err)
	}
	labels := kubernetes(t)["StatefulSet belfry"].Spec.Template.Metadata.Labels
	if job := labels[monitor.Spec.JobLabel]; monitor.Kind != "PodMonitor" || !strings.HasPrefix(job, "belfry") {
		t.Errorf("a %s whose job is %q; alerts want one that begins with belfry", monitor.Kind, job)
	}
	for label, want := range monitor.Spec.Selector.MatchLabels {
		if labels[label] != want {
			t.Errorf("it scrapes pods with %s=%s, and ours have %q", label, want, labels)
		}
	}
	if len(monitor.Spec.Endpoints) != 1 {
		t.Fatalf("it scrapes %+v", monitor.Spec.Endpoints)
	}
	e := monitor.Spec.Endpoints[0]
	if e.Port != "http" || e.Path != "/metrics" || e.Scheme != "https" ||
		!strings.Contains(text, ","+e.TLSConfig.ServerName+" ") {
		t.Errorf("it asks %+v, under a name that no certificate has", e)
	}
	for _, secret := range []key{e.TLSConfig.CA.Secret, e.Authorization.Credentials} {
		if made := regexp.MustCompile(`create secret generic ` + secret.Name + ` .*--from-file=\S*\b` +
			regexp.QuoteMeta(secret.Key) + `\b`); secret.Key == "" || !made.MatchString(text) {
			t.Errorf("nothing makes %+v", secret)
		}
	}
}

func TestKubernetesPod(t *testing.T) {
	set := kubernetes(t)["StatefulSet belfry"]
	pod := set.Spec.Template.Spec
	if stop := time.Duration(pod.GraceSeconds) * time.Second; stop <= server.StopMax {
		t.Errorf("killed %s after it was told to stop; it may take %s", stop, server.StopMax)
	}
	if len(pod.Containers) != 1 {
		t.Fatalf("%d containers", len(pod.Containers))
	}
	c := pod.Containers[0]
	inPod := strings.NewReplacer("$(POD_NAME)", "belfry-0", "$(POD_NAMESPACE)", "jobs")
	words := make([]string, len(c.Args))
	for i, arg := range c.Args {
		words[i] = inPod.Replace(arg)
	}
	flags := served(t, words)
	// Every pod names all of them, itself included, and as many as there are found the cluster.
	seeds, err := flags.GetStringSlice("join")
	if err != nil {
		t.Fatal(err)
	}
	if own := net.JoinHostPort(value(flags, "advertise"), port(t, value(flags, "gossip-listen"))); len(seeds) == 0 ||
		seeds[0] != own {
		t.Errorf("the first pod is %s, and those to join are %s", own, seeds)
	}
	if got := value(flags, "bootstrap-expect"); got != strconv.Itoa(len(seeds)) || len(seeds) != set.Spec.Replicas {
		t.Errorf("%d replicas, %d addresses to join, %s nodes expected", set.Spec.Replicas, len(seeds), got)
	}
	if want := "belfry-0." + set.Spec.ServiceName + ".jobs.svc"; value(flags, "advertise") != want {
		t.Errorf("a pod says that it is %s; its name is %s", value(flags, "advertise"), want)
	}
	ports := make(map[string]string)
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	if listen, peer := port(t, value(flags, "listen")), port(t, value(flags, "peer-listen")); ports["http"] != listen ||
		ports["peer"] != peer || ports["gossip"] != port(t, value(flags, "gossip-listen")) ||
		ports["gossip-udp"] != ports["gossip"] {
		t.Errorf("ports %v; it listens on %s and %s", ports, listen, peer)
	}
	for path, p := range map[string]probe{"/livez": c.Live, "/readyz": c.Ready} {
		if p.HTTPGet.Path != path || p.HTTPGet.Port != "http" || p.HTTPGet.Scheme != "HTTPS" {
			t.Errorf("probe %+v, want %s", p, path)
		}
	}
	if c.Startup.HTTPGet != c.Live.HTTPGet {
		t.Errorf("the start is probed with %+v", c.Startup)
	}
	claims := set.Spec.VolumeClaimTemplates
	if len(claims) != 1 || len(c.Mounts) != 2 || c.Mounts[0].Name != claims[0].Metadata.Name ||
		c.Mounts[0].MountPath != value(flags, "data") {
		t.Errorf("claims %+v, mounted %+v, data in %s", claims, c.Mounts, value(flags, "data"))
	}
}
