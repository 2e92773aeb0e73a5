package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/node"
)

// writerFunc is a function as a writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(text []byte) (int, error) { return f(text) }

// TestStorageFailed: the process ends with its reason said, or without it where standard error
// hangs too.
func TestStorageFailed(t *testing.T) {
	const reason = `level=ERROR msg="storage failed, and this node stops rather than risk data" error="the disk hangs"` +
		"\n"
	release := make(chan struct{})
	for _, tc := range []struct {
		name string
		err  func(text *bytes.Buffer) io.Writer
		said string
		wait time.Duration
	}{
		{"somebody reads", func(text *bytes.Buffer) io.Writer { return text }, reason, 0},
		{"nobody reads", func(*bytes.Buffer) io.Writer {
			return writerFunc(func(text []byte) (int, error) {
				<-release
				return len(text), nil
			})
		}, "", lastWordsMax},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release = make(chan struct{})
				text, began, ended := &bytes.Buffer{}, time.Now(), -1
				a := verbs{&cli.App{System: &cli.System{Err: tc.err(text), Exit: func(code int) {
					if ended = code; time.Since(began) != tc.wait || !strings.HasSuffix(text.String(), tc.said) || tc.said == "" &&
						text.Len() > 0 {
						t.Errorf("ended after %v having said %q, want %v and %q", time.Since(began), text, tc.wait, tc.said)
					}
				}}}}
				a.storageLost(a.logger(logText, slog.LevelInfo), ".", errors.New("the disk hangs"))
				if ended != cli.CodeStorage {
					t.Errorf("exit code %d, want %d", ended, cli.CodeStorage)
				}
				close(release)
			})
		})
	}
}

// TestAStopIsNoError: a server that is told to stop before it serves ends as it was told, and logs
// no error.
func TestAStopIsNoError(t *testing.T) {
	said := &bytes.Buffer{}
	s := cli.NewSystem()
	s.Err, s.ErrTerminal = said, false
	ctx, stop := context.WithCancelCause(t.Context())
	stop(cli.Interruption{Signal: syscall.SIGTERM})
	waiting := errors.New("waiting for a cluster")
	if err := (verbs{&cli.App{System: s}}).lastWords(ctx, logAuto, waiting); !errors.Is(err, waiting) ||
		said.String() != "" {
		t.Errorf("it ended with %v, and said %q", err, said)
	}
}

// TestWelcome shows a new user three lines to copy.
func TestWelcome(t *testing.T) {
	var out bytes.Buffer
	renderWelcome(&out, "http://127.0.0.1:7400", "", node.Status{
		Name: "node", Shards: make([]node.GroupStatus, 6),
	}, "belfry-data")
	want := `
  Belfry is ready at http://127.0.0.1:7400  (node node, 6 shards, data in belfry-data)

  Put a job that is due in 5 seconds, wait for it, and say that it is done:

    curl 127.0.0.1:7400/v1/put -d '{"queue":"hello","text":"world","delay":"5s"}'
    curl 127.0.0.1:7400/v1/reserve -d '{"queues":["hello"],"wait":"20s"}'
    curl 127.0.0.1:7400/v1/ack -d '{"lease":"the lease of the job"}'

  Ctrl-C stops it; what was put stays in belfry-data.

`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("welcome (-want +got):\n%s", diff)
	}
}

func TestWithoutSecrets(t *testing.T) {
	for url, want := range map[string]string{
		"redis://h:6379/0":          "redis://h:6379/0",
		"redis://secret@h:6379":     "redis://***@h:6379",
		"redis://u:p/@#?ss@h:6379":  "redis://***@h:6379",
		"u:secret@h:6379":           "***@h:6379",
		"http://h:1/path?a=b&c=d":   "http://h:1/path?***",
		"http://h:1/path#fragment":  "http://h:1/path#***",
		"unix://u:p@/var/run/r.soc": "unix://***@/var/run/r.soc",
	} {
		if got := withoutSecrets(url); got != want {
			t.Errorf("%s is shown as %s, want %s", url, got, want)
		}
	}
}

func TestNameOfHost(t *testing.T) {
	for host, want := range map[string]string{
		"db-1": "db-1", "db_1.example.com": "db_1", "Büro PC": "B-ro-PC", "-x-": "x", "": "", ".": "", "localhost": "",
		"localhost.localdomain": "", "10.0.0.1": "10",
		strings.Repeat("n", 70): strings.Repeat("n", 64), "é": "",
	} {
		if got := nameOfHost(host); got != want {
			t.Errorf("nameOfHost(%q) = %q, want %q", host, got, want)
		}
	}
}
