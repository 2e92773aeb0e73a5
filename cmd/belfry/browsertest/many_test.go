package browsertest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/admin"
)

// testMany: a job of which a person knows a part is found and run, and jobs are acted on together, with
// the keyboard alone. The queue is in a namespace of its own.
func testMany(t *testing.T, b *tab, namespace string) {
	c, queue := b.site.client, namespace+"/orders"
	query := "queue=" + namespace + "%2Forders"
	for n := range 60 {
		id := fmt.Sprintf("order-%d", 4700+n)
		must[client.PutResult](t)(c.Put(t.Context(), queue, []byte("{}"), client.ID(id), client.In(inDays(3))))
	}
	in := func(state string) int {
		q := must[admin.QueueState](t)(c.Admin().Queue(t.Context(), queue))
		return map[string]int{"delayed": q.Delayed, "ready": q.Ready}[state]
	}

	// Find the job of the order 4711 and run it now: three keys or clicks after the overview.
	b.awaitThat("the queue to be known to the search", func() bool {
		b.visit("")
		b.tabTo("#find-job")
		b.press("4711", kb.Enter)
		b.awaitPage("find?job=4711")
		return strings.Contains(b.text("main"), queue)
	})
	b.act(`main a[href*="id=order-4711"][href*="`+query+`"]`, kb.Enter, "id=order-4711")
	b.act(`form[action=run-now] button`, " ", "done=run-now")
	wantState(t, c, queue, "order-4711", "READY")

	// Two jobs that were ticked.
	b.visit("jobs?" + query + "&idPrefix=order-475")
	for _, id := range []string{"order-4751", "order-4753"} {
		b.tabTo(`input[name=job][value="` + id + `"]`)
		b.press(" ")
	}
	b.act(`form[action=choose] button:not([type])`, kb.Enter, "/ui/choose")
	if got := b.text("h1"); got != "2 jobs chosen" {
		t.Errorf("the page says %q", got)
	}
	b.act(`form[action=act-chosen] button`, kb.Enter, "done=chosen-run-now")
	wantState(t, c, queue, "order-4753", "READY")
	wantState(t, c, queue, "order-4752", "DELAYED")

	// All that match, which a task counts first.
	b.visit("jobs?" + query + "&text=order-47")
	b.act(`form[action=count] button`, kb.Enter, "done=task")
	b.awaitThat("the count", func() bool {
		b.visit(strings.TrimPrefix(ask[string](b, "location.href"), b.site.page("")))
		return ask[bool](b, "document.querySelector('form[action=act-all]') !== null")
	})
	if got := b.text("button.danger"); got != "Cancel 57 jobs" {
		t.Errorf("the button says %q", got)
	}
	b.tabTo(`#confirm`)
	b.press(" ")
	b.act(`button.danger`, kb.Enter, "done=task")
	b.awaitThat("the jobs to be cancelled", func() bool { return in("delayed") == 0 })
	if got := in("ready"); got != 3 {
		t.Errorf("%d jobs are ready, want the 3 that were run", got)
	}
	b.clean("acts on many jobs")
}

// testConsumers: what a consumer holds that is gone is released with the keyboard alone, after a tick.
func testConsumers(t *testing.T, b *tab, name string) {
	c, queue := b.site.client, name+"/held"
	gone := must[*client.Client](t)(client.New(b.site.server.URL(), client.WithName(name)))
	defer gone.Close()
	for n := range 3 {
		must[client.PutResult](t)(c.Put(t.Context(), queue, nil, client.ID(fmt.Sprintf("held-%d", n))))
		reserve(t, gone, queue)
	}
	form := `tr:has(a[href*="` + name + `%2Fheld"]) form[action=release-leases] `
	b.awaitThat("the consumer to be shown", func() bool {
		b.visit("consumers")
		return ask[bool](b, "document.querySelector("+strconv.Quote(form+"button")+") !== null")
	})
	if got := b.text(form + "button"); got != "Release 3 jobs" {
		t.Errorf("the button says %q", got)
	}
	b.tabTo(form + "input[name=confirm]")
	b.press(" ")
	b.act(form+"button", kb.Enter, "done=release-leases")
	if got := b.text("main .notice"); got != "3 jobs are ready again." {
		t.Errorf("the page says %q", got)
	}
	wantState(t, c, queue, "held-2", "READY")
	b.clean("the release of leases")
}
