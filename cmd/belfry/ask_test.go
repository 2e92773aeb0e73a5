package main

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	"github.com/belfrydb/belfry/cmd/belfry/local"
	"google.golang.org/protobuf/proto"
)

// await repeats a question that costs next to nothing until the answer is yes.
func await(t *testing.T, what string, yes func() bool) {
	t.Helper()
	awaitEvery(t, 5*time.Millisecond, what, yes)
}

// awaitEvery is await with the time between two questions.
func awaitEvery(t *testing.T, pause time.Duration, what string, yes func() bool) {
	t.Helper()
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	deadline := time.After(4 * time.Minute) // only what hangs takes that long, however busy the machine is
	for !yes() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		case <-ticker.C:
		}
	}
}

// awaitText returns when the server has written a text to its log.
func awaitText(t *testing.T, p *process, text string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("it said:\n%s", p.stderr)
		}
	}()
	await(t, text, func() bool { return strings.Contains(p.stderr.String(), text) })
}

// awaitMetric returns when the values of a metric add up to at least want.
func awaitMetric(t *testing.T, address, name string, want float64) {
	t.Helper()
	await(t, name, func() bool { return metric(t, address, name) >= want })
}

// metric adds up the values of a metric.
func metric(t *testing.T, address, name string) float64 {
	t.Helper()
	response, err := http.Get("http://" + address + "/metrics") //nolint:noctx // the test has a time limit of its own
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	sum := 0.0
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		sum += number
	}
	return sum
}

// header returns a header of the server's answers.
func header(t *testing.T, address, name string) string {
	t.Helper()
	response, err := http.Get("http://" + address + "/livez") //nolint:noctx // the test has a time limit of its own
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.Header.Get(name)
}

// testHost is for servers in the process of a test, which none may lose its storage.
func testHost() local.Host {
	return local.Host{Version: cli.ThisBuild().Version, Fatal: func(err error) { panic(err) }}
}

// newHarness returns a harness for the whole tree of commands.
func newHarness(t *testing.T, answer func(proto.Message) (proto.Message, error)) *clitest.Harness {
	t.Helper()
	return clitest.New(t, run, answer)
}
