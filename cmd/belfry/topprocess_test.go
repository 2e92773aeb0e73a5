package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// TestTopOnATerminal watches a server: what changes is drawn, an outage is said, and Ctrl-C leaves
// the terminal as it was.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	p := serve(t, launcher, t.TempDir())
	term := openTerminal(t, 80, 24, fmt.Sprintf("%s top --interval 200ms --server %s", launcher, p.address))
	term.await("1 node, 6 shards: healthy")
	if got := p.run(launcher, "put", "orders", "x"); got.Code != 0 {
		t.Fatalf("a put: %+v", got)
	}
	screen := term.awaitMatch("orders +1 ")
	if !strings.HasPrefix(screen, "belfry ") {
		t.Errorf("the picture does not begin at the top:\n%s", screen)
	}
	p.signal(syscall.SIGKILL)
	p.end()
	term.await("NO ANSWER: ")
	term.tmux("send-keys", "C-c")
	term.await("ended with ")
	if shown := term.tmux("display-message", "-p", "#{cursor_flag} #{alternate_on}"); shown != "1 0\n" {
		t.Errorf("the terminal is not as it was: %q", shown)
	}
}
