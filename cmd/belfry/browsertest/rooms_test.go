package browsertest

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp/kb"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/admin"
)

// testRooms: schedules and keys are paused, resumed, run and removed with the keyboard alone, whatever a
// key is called. The queue is in a namespace of its own.
func testRooms(t *testing.T, b *tab, namespace string) {
	c, queue := b.site.client, namespace+"/acts"
	jobs := func() uint64 {
		q := must[admin.QueueState](t)(c.Admin().Queue(t.Context(), queue))
		return uint64(q.Delayed + q.Ready)
	}
	apiCall[struct{}](t, b.site, "put-schedule", fmt.Sprintf(
		`{"queue":%q,"name":"night","spec":{"cron":"30 2 * * *","timeZone":"Europe/Berlin"}}`, queue))
	list, page := "schedules?queue="+namespace+"%2Facts", "schedule?name=night&queue="+namespace+"%2Facts"
	b.visit("queue?queue=" + namespace + "%2Facts")
	b.act(`main a[href="`+list+`"]`, kb.Enter, list)
	b.act(`main a[href="`+page+`"]`, kb.Enter, page)
	b.tabTo("input[name=note]")
	b.press("we move", kb.Enter)
	b.awaitPage("done=pause-schedule")
	if got := b.text("main .warning"); !strings.Contains(got, "It is paused: we move.") {
		t.Errorf("paused: %q", got)
	}
	b.act("form[action=resume-schedule] button", " ", "done=resume-schedule")
	b.act("form[action=trigger-schedule] button", kb.Enter, "done=trigger-schedule")
	b.awaitThat("the job", func() bool { return jobs() == 1 })
	b.act(`main a[href^="backfill"]`, kb.Enter, "backfill")
	b.tabTo("input[name=from]")
	b.press("2026-03-01")
	b.tabTo("input[name=to]")
	b.press("2026-04-01", kb.Enter)
	b.awaitPage("to=2026-04-01")
	if got := b.text("main section h2"); got != "It would put 31 jobs" {
		t.Errorf("the preview says %q", got)
	}
	b.act("form[action=backfill-schedule] button", kb.Enter, "done=backfill-schedule")
	b.awaitThat("the jobs", func() bool { return jobs() == 32 })
	b.tabTo("form[action=delete-schedule] input[name=cancelWaiting]")
	b.press(" ")
	b.tabTo("input[name=confirm]")
	b.press("night", kb.Enter)
	b.awaitPage("done=delete-schedule")
	if got := b.text("main .notice"); !strings.Contains(got, "8 jobs were cancelled") {
		t.Errorf("deleted: %q", got)
	}

	for i, key := range hostileKeys() {
		must[client.PutResult](t)(c.Put(t.Context(), queue, []byte("x"), client.Key(key), client.ID(fmt.Sprint(i)),
			client.In(inDays(1))))
		before := jobs()
		b.visit("key?" + url.Values{"queue": {queue}, "key": {key}}.Encode())
		if got := b.text("h1 .free"); got != shown(key) {
			t.Errorf("the key %q is shown as %q", key, got)
		}
		b.act("form[action=pause-key] button", kb.Enter, "done=pause-key")
		b.act("form[action=resume-key] button", " ", "done=resume-key")
		b.tabTo("input[name=confirm]")
		call(b, input.InsertText, input.InsertTextParams{Text: b.text("form[action=purge-key] code")}) // as by pasting
		b.press(kb.Enter)
		b.awaitPage("done=purge-key")
		if after := jobs(); after != before-1 {
			t.Errorf("%d jobs before the purge of %q, and %d after it", before, key, after)
		}
		b.check("the key", screen{})
	}
	b.clean("schedules and keys")
}
