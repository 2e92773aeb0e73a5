package main

import (
	"bytes"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func TestShort(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		0:                                 "0s",
		1500 * time.Nanosecond:            "2µs",
		2345 * time.Microsecond:           "2.3ms",
		1 * time.Second:                   "1s",
		2345 * time.Millisecond:           "2.3s",
		time.Minute:                       "1m",
		90 * time.Second:                  "1m30s",
		90*time.Second + time.Millisecond: "1m30s",
		time.Hour:                         "1h",
		time.Hour + 30*time.Minute:        "1h30m",
		time.Hour + time.Second:           "1h0m1s",
		26 * time.Hour:                    "1d2h",
		5*day - time.Millisecond:          "5d0h",
		day - time.Millisecond:            "1d0h",
		time.Minute - time.Millisecond:    "1m",
		100*day - time.Millisecond:        "100d",
		100 * day:                         "100d",
		36525 * day:                       "36525d",
	} {
		if got := short(d); got != want {
			t.Errorf("short(%d) = %q, want %q", d, got, want)
		}
	}
}

func TestPreview(t *testing.T) {
	for _, test := range []struct{ body, want string }{
		{"", ""},
		{"close order 42", "close order 42"},
		{"two\nlines\x1b[31m", "two·lines·[31m"},
		{"größer als sechzehn", "größer als sechz…"},
		{"\xff\xfe", "(2 bytes, not text)"},
	} {
		if got := preview([]byte(test.body), 16); got != test.want {
			t.Errorf("preview(%q) = %q, want %q", test.body, got, test.want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 bytes", 1: "1 byte", 1023: "1,023 bytes", 1 << 10: "1.0 KiB", 5 << 20: "5.0 MiB", 1 << 60: "1.0 EiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestGet(t *testing.T) {
	job := &belfryv1.Job{
		Queue: "orders", Id: "order-42", State: belfryv1.JobState_JOB_STATE_RESERVED, DueAt: at(-time.Minute), FirstDueAt: at(-time.Hour),
		LeaseUntil: at(30 * time.Second), Fence: 77, Attempt: 3, MaxAttempts: 16, RetryDelays: []*durationpb.Duration{in(0), in(2 * time.Minute)},
		Ttr: in(time.Minute), Priority: -5, ExpiresAt: at(24 * time.Hour), LastError: "smtp 421", CreatedAt: at(-2 * time.Hour),
		Headers: map[string]string{"kind": "close"}, BodyBytes: 5, Body: &belfryv1.Job_Data{Data: []byte("close")},
	}
	h := newHarness(t, always(&belfryv1.GetResponse{Job: job}))
	want := `job          order-42 of orders
state        reserved
due          2030-01-31 08:59:00.000 +00:00 (1m ago)
first due    2030-01-31 08:00:00.000 +00:00 (1h ago)
held until   2030-01-31 09:00:30.000 +00:00 (in 30s)
fence        77
attempts     3 of 16
retry after  0s, 2m
ttr          1m
priority     -5
expires      2030-02-01 09:00:00.000 +00:00 (in 1d0h)
last error   smtp 421
put          2030-01-31 07:00:00.000 +00:00 (2h ago)
headers      kind=close
size         5 bytes
body         close
`
	if got := h.run("get", "orders", "order-42"); got.code != 0 || got.out != want {
		t.Errorf("exit code %d, output (-want +got):\n%s", got.code, cmp.Diff(want, got.out))
	}
	if got := h.run("get", "orders", "order-42", "--body"); got.out != "close" {
		t.Errorf("only the body: %+v", got)
	}
	got := h.run("get", "orders", "order-42", "-o", "json")
	if !strings.Contains(got.out, `"state":"RESERVED"`) || !strings.Contains(got.out, `"retryDelays":["0s","120s"]`) || strings.Count(got.out, "\n") != 1 {
		t.Errorf("as JSON: %q, want what the server would write, on one line", got.out)
	}
}

func TestVersion(t *testing.T) {
	from := &debug.BuildInfo{
		Main: debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}, {Key: "other", Value: "x"},
		},
	}
	b := thisBuild(from, true)
	var out bytes.Buffer
	renderBuild(&out, b)
	if want := "belfry v1.2.3 (0123456789ab, modified), " + b.Go + ", " + b.Platform + "\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if got := thisBuild(nil, false); got.Version != "unknown" || got.Go == "" {
		t.Errorf("without build information: %+v", got)
	}
	h := newHarness(t, nil)
	if got := h.run("version", "-o", "json"); got.code != 0 || !strings.HasPrefix(got.out, `{"version":"`) {
		t.Errorf("as JSON: %+v", got)
	}
}

// TestWelcome shows a new user three lines to copy.
func TestWelcome(t *testing.T) {
	var out bytes.Buffer
	renderWelcome(&out, "http://127.0.0.1:7400", "", node.Status{Name: "node", Shards: make([]node.GroupStatus, 6)}, "belfry-data")
	want := `
  Belfry is ready at http://127.0.0.1:7400  (node node, 6 shards, data in belfry-data)

  Put a job that rings in 5 seconds, wait for it, and say that it is done:

    curl 127.0.0.1:7400/v1/put -d '{"queue":"hello","text":"world","delay":"5s"}'
    curl 127.0.0.1:7400/v1/reserve -d '{"queues":["hello"],"wait":"20s"}'
    curl 127.0.0.1:7400/v1/ack -d '{"lease":"the lease of the job"}'

  Ctrl-C stops it; what was put stays in belfry-data.

`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("welcome (-want +got):\n%s", diff)
	}
}

func TestHelpListsTheExitCodes(t *testing.T) {
	h := newHarness(t, nil)
	got := h.run("--help")
	for _, want := range []string{" 10  reserve: there was nothing to reserve", " 11  serve: storage failed", "Jobs:", "Queues:", "[BELFRY_CONFIG]"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("the help lacks %q:\n%s", want, got.out)
		}
	}
	if got := h.run("queue"); got.code != 0 || !strings.Contains(got.out, "purge") {
		t.Errorf("a group without a subcommand: %+v, want its help", got)
	}
}

// TestTablesKeepTheirColumns: what people wrote ends no line, opens no column and commands no terminal.
func TestTablesKeepTheirColumns(t *testing.T) {
	var got strings.Builder
	rows(&got, []string{"ID", "ABOUT", "END"}, [][]string{{"a", "one\ttwo\nthree\x1b[2J", "x"}, {"long-id", "né", "y"}})
	want := "ID       ABOUT              END\n" +
		"a        one·two·three·[2J  x\n" +
		"long-id  né                 y\n"
	if got.String() != want {
		t.Errorf("%s, want\n%s", got.String(), want)
	}
}
