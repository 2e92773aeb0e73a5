package browsertest

import (
	"crypto/sha256"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/belfrydb/belfry/client/admin"
)

// testHostile: the page of a job shows what a producer wrote as text, and its actions act on that
// job. Screens has checked that nothing of it was executed.
func testHostile(t *testing.T, b *tab) {
	for _, text := range hostile() {
		b.visit("job?" + url.Values{"queue": {hostileQueue}, "id": {text}}.Encode())
		for selector, what := range map[string]string{"h1 .free": "id", "td.free": "header", "pre": "body"} {
			got := b.text(selector)
			if got != shown(text) && (what != "body" || !strings.HasPrefix(got, dumpOfNUL)) {
				t.Errorf("the %s %q is shown as %q, want %q", what, text, got, shown(text))
			}
		}
		names := ask[[]string](b, "[...document.querySelectorAll('main th')].map((e) => e.textContent)")
		if !slices.Contains(names, shown(text)) {
			t.Errorf("no header has the name %q: %q", shown(text), names)
		}
		b.enter("form[action=run-now] button", "done=run-now")
		wantState(t, b.site.client, hostileQueue, text, "READY")
		b.check(text, screen{})
	}
	b.clean("jobs with hostile texts")

	b.visitUntil("dead?queue=hostile%2Fdead", "dead-0")
	rows := ask[[]string](b, "[...document.querySelectorAll('tbody td.free')].map((e) => e.textContent)")
	for _, text := range hostile() {
		if !containsPart(rows, shown(text)) {
			t.Errorf("no row of the dead letters has %q: %q", shown(text), rows)
		}
	}
	dead := func() uint64 {
		return uint64(must[admin.QueueState](t)(b.site.client.Admin().Queue(t.Context(), "hostile/dead")).Dead)
	}
	for left := dead(); left > 0; left = dead() {
		b.enter("form[action=act-all] button", "done=task")
		b.awaitThat("the task", func() bool { return dead() < left })
		b.visit("dead?queue=hostile%2Fdead")
	}
	// The audit has the ids of these jobs, as parts of the requests.
	b.visit("audit")
	b.check("the audit", screen{})
	if got := b.text("main"); !strings.Contains(got, "onerror=ran=1") {
		t.Errorf("the audit does not show what was done: %q", got)
	}
	b.clean("dead letters and the audit")
}

// dumpOfNUL is how the page of the text with a NUL shows it as a body: as bytes.
const dumpOfNUL = "00000000  77 69 74 68 00 61 20 4e"

// testDownload: a body is downloaded byte for byte, as a file and not as a page, and numbers are
// shown as they were written.
func testDownload(t *testing.T, b *tab) {
	dir := t.TempDir()
	if _, err := chromedp.CallBrowser(b.ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
		Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir,
		BrowserContextID: chromedp.FromContext(b.ctx).BrowserContextID,
	}); err != nil {
		t.Fatal(err)
	}
	for id, want := range bodies() {
		b.visit("job?" + url.Values{"queue": {hostileQueue}, "id": {id}}.Encode())
		b.tabTo("a[download]")
		b.press(kb.Enter)
		file := filepath.Join(dir, "body")
		b.awaitThat("the download of "+id, func() bool {
			info, err := os.Stat(file)
			return err == nil && info.Size() == int64(len(want))
		})
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if sha256.Sum256(got) != sha256.Sum256(want) {
			t.Errorf("the body of %s: %s", id, sameBytes(got, want))
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	b.visit("job?queue=hostile%2Ftexts&id=numbers")
	got := ask[[]string](b, "[...document.querySelectorAll('.json .number')].map((e) => e.textContent)")
	want := []string{"9007199254740993", "18446744073709551616", "0.10000000000000000001", "1E+400"}
	if !slices.Equal(got, want) {
		t.Errorf("the numbers are shown as %q, want %q", got, want)
	}
	b.visit("job?queue=hostile%2Ftexts&id=numbers&as=text")
	if got := b.text("pre"); got != string(bodies()["numbers"]) {
		t.Errorf("the numbers are shown as %s, want %s", got, bodies()["numbers"])
	}
	b.clean("downloads")
}

func containsPart(all []string, part string) bool {
	for _, text := range all {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
