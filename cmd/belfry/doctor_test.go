package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
)

// unpack reads a bundle.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	packed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for in := tar.NewReader(packed); ; {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(head.Name, "belfry-doctor/")
		if !ok {
			t.Errorf("%s would be unpacked beside the others", head.Name)
		}
		files[name] = string(text)
	}
}

// plant gives a server and its settings what must not be in a bundle, all of which has the word
// "planted" in it but for the key.
func plant(t *testing.T, h *clitest.Harness, c *client.Client) (key string) {
	t.Helper()
	for _, opts := range [][]client.PutOption{
		{client.Header("planted-header", "planted-value")},
		{client.ID("planted-id"), client.MaxAttempts(1)},
	} {
		if _, err := c.Put(t.Context(), "planted-space/planted-queue", []byte("planted-body"), opts...); err != nil {
			t.Fatal(err)
		}
	}
	jobs, err := c.Reserve(t.Context(), client.ReserveOptions{Queues: []string{"planted-space/planted-queue"}, Max: 2})
	if err != nil || len(jobs) != 2 {
		t.Fatalf("reserved %d jobs, %v", len(jobs), err)
	}
	if err := jobs[1].Nack(t.Context(), errors.New("planted-error")); err != nil {
		t.Fatal(err)
	}
	key = base64.StdEncoding.EncodeToString([]byte("planted: thirty-two bytes of key"))
	h.Env["BELFRY_GOSSIP_KEYS"] = clitest.WriteFile(t, "gossip.keys", key+"\n")
	h.Env["BELFRY_REDIS_PASSWORD_FILE"] = clitest.WriteFile(t, "redis.password", "planted-password\n")
	h.Env["BELFRY_TOKEN"] = "belfry_planted_yyy"
	h.Env["BELFRY_ZONE"] = "belfry_planted_yyy"
	h.Env["BELFRY_MIRROR_REDIS"] = "redis://planted-user:planted-password@r1:6379/0"
	h.Env["BELFRY_MIRROR_QUEUE"] = "planted-queue"
	h.Env["GODEBUG"] = "http://planted:planted@h"
	h.Env["BELFRY_CONFIG"] = clitest.WriteFile(t, "belfry.conf", "log-level = warn\npassword planted-in-file\n")
	return key
}

func TestDoctorTellsNoSecrets(t *testing.T) {
	server := belfrytest.Start(t)
	h := newHarness(t, nil)
	key := plant(t, h, server.Client(t))
	h.Env["BELFRY_SERVER"] = strings.Replace(server.URL, "://", "://planted-user:planted-password@", 1)
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	got := h.Run("doctor", "--out", path, "--data", t.TempDir())
	if got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	files := unpack(t, path)
	files["what it prints"] = got.Out + got.Err
	for name, text := range files {
		for _, secret := range []string{"planted", key} {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s has %q", name, text[max(0, at-60):min(len(text), at+60)])
			}
		}
	}
	want := []string{"cluster.json", "config.txt", "data.txt", "limits.json", "machine.txt", "metrics.txt", "queues.json",
		"ready.txt", "summary.txt", "version.txt"}
	for _, name := range want {
		if len(files[name]) == 0 && name != "data.txt" {
			t.Errorf("%s is empty or not there", name)
		}
		if !strings.Contains(got.Out, "\n  "+name+" ") {
			t.Errorf("what it prints does not name %s", name)
		}
	}
	if !strings.Contains(files["config.txt"], "warn ") ||
		!strings.Contains(files["summary.txt"], "belfry.conf:2: want name = value") {
		t.Errorf("the settings are\n%s\nand the summary is\n%s", files["config.txt"], files["summary.txt"])
	}
	if queue := queueNamed(t, files); !strings.Contains(files["metrics.txt"], `{queue="`+queue+`",`) {
		t.Errorf("%s of queues.json is not in the metrics", queue)
	}
}

// queueNamed returns what a bundle calls its one queue.
func queueNamed(t *testing.T, files map[string]string) string {
	t.Helper()
	var list struct{ Queues []struct{ Name string } }
	if err := json.Unmarshal([]byte(files["queues.json"]), &list); err != nil || len(list.Queues) != 1 {
		t.Fatalf("%v: %s", err, files["queues.json"])
	}
	return list.Queues[0].Name
}

// With names there are those of queues, and nothing else of what was planted.
func TestDoctorWithNames(t *testing.T) {
	server := belfrytest.Start(t)
	h := newHarness(t, nil)
	plant(t, h, server.Client(t))
	h.Env["BELFRY_SERVER"] = server.URL
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	if got := h.Run("doctor", "--out", path, "--with-names", "-o", "json"); got.Code != 0 || !json.Valid([]byte(got.Out)) {
		t.Fatalf("%+v", got)
	}
	files := unpack(t, path)
	if queue := queueNamed(t, files); queue != "planted-space/planted-queue" {
		t.Errorf("the queue is %s", queue)
	}
	for name, text := range files {
		text = strings.NewReplacer("planted-space/planted-queue", "", "planted-queue", "").Replace(text)
		if strings.Contains(text, "planted") {
			t.Errorf("%s has more than the queue's name", name)
		}
	}
}

// A server that is not there is said to be, and the rest is there all the same.
func TestDoctorWithoutAServer(t *testing.T) {
	h := newHarness(t, nil)
	server, err := belfrytest.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	args := []string{"doctor", "--out", path, "--server", server.URL, "--data", filepath.Join(t.TempDir(), "nowhere")}
	got := h.Run(args...)
	summary := unpack(t, path)["summary.txt"]
	for _, want := range []string{"the server at " + server.URL + " does not answer: no server answers at " + server.URL,
		"\n    → see that it runs", "not reached:\n", "nowhere", "no --debug-addr", "log lines: the server keeps none"} {
		if !strings.Contains(summary, want) || !strings.Contains(got.Out, want) {
			t.Errorf("%q is not in\n%s", want, got.Out)
		}
	}
	if got.Code != 0 || !slices.Contains(strings.Split(got.Out, "\n"), "wrote "+path) {
		t.Errorf("%+v", got)
	}
	if again := h.Run(args...); again.Code != cli.CodeConflict {
		t.Errorf("over a file that exists: %+v", again)
	}
	if got := h.Run("doctor", "--server", server.URL, "--out", filepath.Join(path, "x")); got.Code != cli.CodeError {
		t.Errorf("below a file: %+v", got)
	}
}
