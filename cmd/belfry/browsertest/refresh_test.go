package browsertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"

	"github.com/belfrydb/belfry/client"
)

// settle chooses a theme by the form of the settings, and after how many seconds pages are refreshed,
// also such as the form does not offer.
func (b *tab) settle(theme, seconds string) {
	b.t.Helper()
	b.visit("settings")
	ask[bool](b, `document.querySelector('select[name=theme]').value = `+quoted(theme)+`;
		document.querySelector('select[name=refresh]').selectedOptions[0].value = `+quoted(seconds)+`;
		document.querySelector('form[action=settings]').requestSubmit(), true`)
	b.awaitPage("done=settings")
	b.visit("queues")
	got := ask[string](b, "document.documentElement.dataset.theme + document.body.dataset.refresh")
	if got != theme+seconds {
		b.t.Fatalf("theme and refresh are %q, want %q", got, theme+seconds)
	}
}

// testRefresh: the script shows what is new, and leaves alone what a person has focused, typed,
// opened or scrolled to. It reads nothing while a person selects text.
func testRefresh(t *testing.T, b *tab) {
	c, queue := b.site.client, "refresh/jobs"
	put := func() { must[client.PutResult](t)(c.Put(t.Context(), queue, []byte("x"), client.In(inDays(1)))) }
	put()
	b.settle("auto", "1")
	b.size(360)
	b.visit("queue?queue=refresh%2Fjobs")
	delayed := `[...document.querySelectorAll('dl.figures div')].some((e) => e.innerText.replace(/\s+/g, ' ') === 'Delayed %d')`
	b.await("the first job", fmt.Sprintf(delayed, 1))

	// From now on the server seems to send a part that can be opened.
	ask[bool](b, `(() => {
		const real = fetch;
		window.fetch = async (...all) => new Response((await (await real(...all)).text()).replace('</main>',
			'<details><summary>More</summary>text</details></main>'));
		return true;
	})()`)
	b.await("a part to open", "document.querySelector('main details')")
	b.press("\t") // from here on the focus is that of a keyboard
	ask[bool](b, `(() => {
		document.querySelector('main details').open = true;
		document.querySelector('#for').value = 'half an id';
		document.querySelector('select[name=state]').value = 'ready';
		const link = document.querySelector('dl.figures a[href^="dead"]');
		link.focus();
		scrollTo(0, 137);
		window.kept = [link, document.querySelector('#for'), document.querySelector('form[action=pause]')];
		return true;
	})()`)
	put()
	b.await("the second job", fmt.Sprintf(delayed, 2))
	for what, is := range map[string]string{
		"the focus":         "document.activeElement === kept[0]",
		"the typed text":    "document.querySelector('#for').value === 'half an id'",
		"the choice":        "document.querySelector('select[name=state]').value === 'ready'",
		"the place":         "scrollY === 137",
		"what was open":     "document.querySelector('main details').open",
		"what was rendered": "kept.every((e) => e.isConnected)",
	} {
		if !ask[bool](b, is) {
			t.Errorf("the refresh lost %s", what)
		}
	}

	ask[bool](b, "getSelection().selectAllChildren(document.querySelector('h1')), true")
	ask[bool](b, "refresh().then(() => true)") // one that the clock began before is over, too
	before := b.refreshed()
	ask[bool](b, "refresh().then(() => true)")
	if got := b.refreshed(); got != before {
		t.Errorf("the page was read %d times while text was selected", got-before)
	}
	ask[bool](b, "getSelection().removeAllRanges(), true")
	b.awaitThat("the page to be read again", func() bool { return b.refreshed() > before })
	b.clean("the refresh")
}

// testOffline: if the server does not answer, the page says so at its head and how old it is, and
// no longer once it answers.
func testOffline(t *testing.T, b *tab) {
	b.settle("auto", "3600")
	b.visit("queues")
	if got := b.text("#lost"); got != "" {
		t.Errorf("the page says %q", got)
	}
	under := func(conditions ...*network.Conditions) {
		call(b, network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{
			MatchedNetworkConditions: conditions})
	}
	under(&network.Conditions{Offline: true, DownloadThroughput: -1, UploadThroughput: -1})
	ask[bool](b, "refresh().then(() => true)")
	b.await("the page to be three seconds old", `/^The server does not answer\. This page is ([3-9]|\d\d+) s old\.$/.
		test(document.querySelector('#lost').innerText)`)
	if !ask[bool](b, "document.querySelector('#lost').getBoundingClientRect().height > 0") {
		t.Error("the message is not to be seen")
	}
	if got := ask[sight](b, look); got.Wider > 0 {
		t.Errorf("the page scrolls %d px to the side", got.Wider)
	}
	for _, problem := range b.forgive() {
		if !strings.Contains(problem, "ERR_INTERNET_DISCONNECTED") {
			t.Error(problem)
		}
	}
	under(&network.Conditions{DownloadThroughput: -1, UploadThroughput: -1})
	ask[bool](b, "refresh().then(() => true)")
	if got := b.text("#lost"); got != "" {
		t.Errorf("the server answers again, and the page says %q", got)
	}
	b.clean("the page after that")
}
