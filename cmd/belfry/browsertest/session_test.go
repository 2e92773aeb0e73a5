package browsertest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// testSession: one logs in and out with the keyboard, comes to the page that one wanted, and is
// shown out at the next page once the token has ended. A wrong token is refused.
func testSession(t *testing.T, b *tab, axe string) {
	id, token := makeToken(t, b.site, "<script>ran=1</script>\u202e")
	b.visit("cluster")
	b.awaitPage("login?next=cluster")
	b.tabTo("input[name=token]")
	b.press("belfry_wrong", kb.Enter)
	b.await("the refusal", "document.querySelector('[role=alert]')")
	if got := b.text("[role=alert]"); got != "This token is not valid." {
		t.Errorf("a wrong token: the page says %q", got)
	}
	b.axe("a wrong token", axe, everyRule)
	b.check("a wrong token", screen{status: 401})
	b.forgive() // the status
	b.tabTo("input[name=token]")
	b.press(token, kb.Enter)
	b.awaitPage("/ui/cluster")
	for _, s := range []screen{{path: "tokens"}, {path: "namespaces"}, {path: ""}, {path: "settings"}} {
		for _, theme := range []string{"light", "dark"} {
			b.prefer(theme)
			b.visit(s.path)
			b.check(s.path+" after the login", s)
			b.axe(s.path+" after the login, "+theme, axe, everyRule)
		}
	}
	b.visit("tokens")
	b.act(`main a[href="token?id=`+id+`"]`, kb.Enter, "token?id=")
	b.check("a token", screen{})
	b.axe("a token", axe, everyRule)
	b.visit("tokens")
	if got := b.text("main table"); !strings.Contains(got, "<script>ran=1</script>\ufffd") {
		t.Errorf("the tokens are shown as %q", got)
	}
	if got := ask[string](b, "document.cookie"); got != "" {
		t.Errorf("scripts can read %q", got)
	}
	b.act("form[action=logout] button", " ", "/ui/login")
	b.visit("cluster")
	b.awaitPage("login?next=cluster")
	b.tabTo("input[name=token]")
	b.press(token, kb.Enter)
	b.awaitPage("/ui/cluster")
	b.clean("a session")

	b.settle("dark", "1")
	b.visit("queues")
	ofRoot(t, b.site, "token", "delete", id)
	b.awaitPage("/ui/login?next=queues") // by the script
	b.visit("settings")
	b.awaitPage("/ui/login?next=settings")
}

// makeToken makes a token that may do everything.
func makeToken(t *testing.T, s *site, about string) (id, token string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	var made struct{ Record struct{ ID string } }
	out := ofRoot(t, s, "token", "create", "--scope", "admin:*", "--about", about, "--out", file, "-o", "json")
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Record.ID == "" {
		t.Fatalf("making a token: %v: %s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return made.Record.ID, strings.TrimSpace(string(text))
}

// ofRoot runs a command with the root token.
func ofRoot(t *testing.T, s *site, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "root")
	if err := os.WriteFile(file, []byte(s.token), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := program.Run(t.Context(), append(args, "--server", s.server.URL(), "--token-file", file)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
