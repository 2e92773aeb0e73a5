package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
)

// terminal is a real terminal of a given size, in tmux, in which a command runs.
type terminal struct {
	t      *testing.T
	socket string
}

// openTerminal runs a shell command in a terminal. The terminal stays when the command has ended,
// also by Ctrl-C, which the shell gets as well.
func openTerminal(t *testing.T, columns, rows int, command string) *terminal {
	t.Helper()
	term := &terminal{t: t, socket: filepath.Join(t.TempDir(), "tmux")}
	term.tmux("-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows),
		"trap : INT; "+command+"; echo ended with $?; exec cat")
	t.Cleanup(func() { term.tmux("kill-server") })
	return term
}

// tmux runs a command of tmux and returns what it prints.
func (term *terminal) tmux(args ...string) string {
	term.t.Helper()
	command := exec.Command("tmux", //nolint:noctx // it returns at once
		append([]string{"-u", "-S", term.socket}, args...)...)
	command.Env = environment("TERM=xterm-256color", "LC_ALL=C.UTF-8")
	out, err := command.CombinedOutput()
	if err != nil {
		term.t.Fatalf("tmux %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// screen returns what the terminal shows, and with attributes if wanted.
func (term *terminal) screen(more ...string) string {
	term.t.Helper()
	return term.tmux(append([]string{"capture-pane", "-p"}, more...)...)
}

// await returns what the terminal shows once that has a text.
func (term *terminal) await(text string) (screen string) {
	term.t.Helper()
	return term.awaitMatch(regexp.QuoteMeta(text))
}

// awaitMatch is await for a regular expression.
func (term *terminal) awaitMatch(pattern string) (screen string) {
	term.t.Helper()
	defer func() {
		if term.t.Failed() {
			term.t.Logf("the terminal shows:\n%s", term.screen())
		}
	}()
	match := regexp.MustCompile(pattern)
	awaitEvery(term.t, 20*time.Millisecond, fmt.Sprintf("%q on the terminal", pattern), func() bool {
		screen = term.screen()
		return match.MatchString(screen)
	})
	return screen
}

// TestServeWelcomesAPerson starts the server in a terminal, copies the lines it shows, and stops it
// with Ctrl-C.
func TestServeWelcomesAPerson(t *testing.T) {
	t.Parallel()
	program := launcher
	term := openTerminal(t, 120, 40,
		fmt.Sprintf("%s serve --listen 127.0.0.1:0 --peer-listen 127.0.0.1:0 --data %s --log-level warn", program,
			t.TempDir()))
	term.await("Belfry is ready at http://127.0.0.1:")
	var lines []string
	for line := range strings.Lines(term.screen()) {
		if strings.HasPrefix(strings.TrimSpace(line), "curl ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) != 3 {
		t.Fatalf("the welcome has %d lines to copy:\n%s", len(lines), term.screen())
	}
	put := strings.Replace(lines[0], `"5s"`, `"100ms"`, 1)
	script := fmt.Sprintf("%s && lease=$(%s | jq -r '.jobs[0].lease') && %s", put, lines[1],
		strings.Replace(lines[2], `'{"lease":"the lease of the job"}'`, `"{\"lease\":\"$lease\"}"`, 1))
	out, err := exec.CommandContext(t.Context(), "bash", "-c", script).CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"created":true`) || strings.Contains(string(out), `"code"`) {
		t.Errorf("the copied lines: %v\n%s", err, out)
	}
	term.tmux("send-keys", "C-c")
	term.await("ended with 0")
}

// TestDemoOnATerminal looks at the picture once jobs ring, in colours and without. It waits for
// none in particular: on a busy machine a node may lose its lead, and the answer that hands a job
// out be lost with it.
func TestDemoOnATerminal(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		columns, rows int
		env           string
		colors        bool
	}{
		{"small", 80, 24, "", true},
		{"large without colours", 120, 40, "NO_COLOR=1 ", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			term := openTerminal(t, test.columns, test.rows, test.env+launcher+" demo")
			screen := term.awaitMatch("[1-9][0-9]* of 300 have rung")
			if !strings.HasPrefix(screen, " BELFRY") || !strings.Contains(screen, "◇") {
				t.Errorf("the picture is not whole:\n%s", screen)
			}
			for line := range strings.Lines(screen) {
				if width := utf8.RuneCountInString(strings.TrimRight(line, "\n")); width > test.columns {
					t.Errorf("a line has %d columns: %q", width, line)
				}
			}
			if colored := strings.Contains(term.screen("-e"), "38;5;220"); colored != test.colors {
				t.Errorf("coloured: %v, want %v", colored, test.colors)
			}
			term.tmux("send-keys", "C-c")
			term.await("ended with 130")
			if hidden := term.tmux("display-message", "-p", "#{cursor_flag}"); hidden != "1\n" {
				t.Errorf("the cursor is not there again: %q", hidden)
			}
		})
	}
}

// TestDeleteAsksAPerson answers the question on a terminal.
func TestDeleteAsksAPerson(t *testing.T) {
	t.Parallel()
	program := launcher
	p := serve(t, program, t.TempDir())
	if got := p.run(program, "put", "orders", "x"); got.Code != 0 {
		t.Fatal(got)
	}
	ask := fmt.Sprintf("%s queue delete orders --server %s", program, p.address)
	term := openTerminal(t, 100, 10, fmt.Sprintf("%s; %s", ask, ask))
	term.await("Deleting orders removes 1 job and all its schedules.")
	term.tmux("send-keys", "no", "Enter")
	term.await("nothing was removed")
	term.tmux("send-keys", "yes", "Enter")
	term.await("deleted orders with 1 job")
	term.await("ended with 0")
}

// TestProgressOnARealTerminal shows a bar while a file is put, and takes it away.
func TestProgressOnARealTerminal(t *testing.T) {
	t.Parallel()
	program := launcher
	p := serve(t, program, t.TempDir())
	file := clitest.WriteFile(t, "jobs.ndjson",
		strings.Repeat(`{"queue":"orders","delay":"1h","text":"close"}`+"\n", 30_000))
	term := openTerminal(t, 100, 10, fmt.Sprintf("%s put --file %s --batch 50 --server %s", program, file, p.address))
	if bar := term.await(" left"); !strings.Contains(bar, "█") && !strings.Contains(bar, "░") {
		t.Errorf("there is no bar:\n%s", bar)
	}
	if screen := term.await("30,000 jobs put in"); strings.Contains(screen, "░") {
		t.Errorf("the bar is still there:\n%s", screen)
	}
}
