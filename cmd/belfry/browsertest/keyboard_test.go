package browsertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/admin"
)

// stop is an element that the key Tab leads to. Place is its position among all elements of the
// page that can have the focus, in the order of the document; -1 if it is none of them.
type stop struct {
	Place         int
	What          string
	Outlined, Met bool
}

// watchFocus keeps where the focus goes, in stops, and returns how many elements can have it. The
// number at the end of the outline of an element is its width.
const watchFocus = `(() => {
	const all = [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')].
		filter((e) => e.type !== 'hidden' && !e.disabled && e.checkVisibility());
	window.stops = [];
	document.addEventListener('focusin', ({target}) => {
		const style = getComputedStyle(target), box = target.getBoundingClientRect();
		stops.push({place: all.indexOf(target), what: target.outerHTML.slice(0, 120),
			outlined: style.outlineStyle === 'solid' && parseFloat(style.outlineWidth) >= 2,
			met: box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 &&
				box.left < innerWidth});
	});
	return all.length;
})()`

// testFocus: on every page the key Tab leads to each element that can have the focus, in the order
// of the document, and one sees where it is. The first element leads over the navigation.
func testFocus(t *testing.T, b *tab) {
	for _, s := range b.site.screens() {
		if strings.HasPrefix(s.name, "job \"") || strings.HasSuffix(s.name, " jobs") && s.name != "dead jobs" {
			continue // as the job, or the jobs, of another name
		}
		b.visit(s.path)
		count := ask[int](b, watchFocus)
		for range count {
			b.press(kb.Tab)
		}
		stops := ask[[]stop](b, "stops")
		if len(stops) != count {
			t.Errorf("%s: the key Tab leads to %d elements, want %d", s.name, len(stops), count)
		}
		for i, at := range stops {
			if at.Place != i || !at.Outlined || !at.Met {
				t.Errorf("%s: stop %d is element %d, outlined %t, in sight %t: %s", s.name, i, at.Place, at.Outlined, at.Met,
					at.What)
				break
			}
		}
	}
	b.visit("queues")
	b.press(kb.Tab)
	if got := ask[string](b, "document.activeElement.hash"); got != "#main" {
		t.Fatalf("the first element leads to %q, want #main", got)
	}
	b.press(kb.Enter, kb.Tab)
	if !ask[bool](b, "document.activeElement.matches('main *')") {
		t.Errorf("after the link over the navigation the focus is at %s", ask[string](b, "document.activeElement.outerHTML"))
	}
}

// testActions: each action is done with the keyboard alone, and the server has done it. The queues
// are in a namespace of their own.
func testActions(t *testing.T, b *tab, namespace string) {
	c, queue, deadQueue := b.site.client, namespace+"/acts", namespace+"/dead"
	for _, id := range []string{"sooner", "later", "cancelled", "fetched"} {
		must[client.PutResult](t)(c.Put(t.Context(), queue, []byte(id), client.ID(id), client.In(inDays(3))))
	}
	die(t, c, deadQueue, failing("no route to host 1", "no route to host 2", "disk full")...)
	queuePage := "queue?queue=" + namespace + "%2Facts"
	paused := func() bool { return *must[admin.QueueState](t)(c.Admin().Queue(t.Context(), queue)).Settings.Paused }

	b.visitUntil("queues?filter="+namespace, queuePage)
	b.act(`main a[href="`+queuePage+`"]`, kb.Enter, queuePage)
	b.tabTo(`form[action=pause] input[name=for]`)
	b.press("30m")
	b.act(`form[action=pause] button`, " ", "done=pause")
	if !paused() {
		t.Error("the queue is not paused")
	}
	b.act(`form[action=resume] button`, kb.Enter, "done=resume")
	if paused() {
		t.Error("the queue is still paused")
	}
	b.visit(queuePage)
	b.tabTo(`#find-job`)
	b.press("sooner", kb.Enter)
	b.awaitPage("id=sooner")
	b.act(`form[action=run-now] button`, " ", "done=run-now")
	wantState(t, c, queue, "sooner", "READY")
	b.visit("job?queue=" + namespace + "%2Facts&id=later")
	b.tabTo(`form[action=reschedule] input[name=due]`)
	b.press("240h", kb.Enter)
	b.awaitPage("done=reschedule")
	if job := must[*client.Job](t)(c.Get(t.Context(), queue, "later")); job.DueAt.Sub(job.CreatedAt) < inDays(9) {
		t.Errorf("the job is due at %s, want ten days after %s", job.DueAt, job.CreatedAt)
	}
	b.visit("job?queue=" + namespace + "%2Facts&id=cancelled")
	b.act(`form[action=cancel] button`, kb.Enter, "done=cancel")
	if got := state(t, c, queue, "cancelled"); !strings.Contains(got, "it is CANCELLED") {
		t.Errorf("the cancelled job: %s", got)
	}

	b.visitUntil("dead?queue="+namespace+"%2Fdead", "dead-2")
	b.act(`form[action=act-all] button`, kb.Enter, "done=task")
	if got := b.text("main .notice"); got != "The task was started." {
		t.Errorf("the page says %q", got)
	}
	b.awaitThat("the task", func() bool { return state(t, c, deadQueue, "dead-0") == "READY" })
	wantState(t, c, deadQueue, "dead-2", "DEAD")
	b.visit("job?queue=" + namespace + "%2Fdead&id=dead-2")
	b.act(`form[action=redrive] button`, " ", "done=redrive")
	wantState(t, c, deadQueue, "dead-2", "READY")

	b.visit("queue?queue=" + namespace + "%2Fdead")
	b.tabTo(`form[action=purge] select`)
	b.press("r")
	b.tabTo(`form[action=purge] input[name=confirm]`)
	b.press(deadQueue, kb.Enter)
	b.awaitPage("done=purge")
	if got := must[admin.QueueState](t)(c.Admin().Queue(t.Context(), deadQueue)); got.Ready != 0 {
		t.Errorf("the queue still has %d ready jobs", got.Ready)
	}
	b.clean("the actions")
}

// testForms: queues and jobs are made, changed and deleted with the keyboard alone.
func testForms(t *testing.T, b *tab) {
	c, queue := b.site.client, "forms/made"
	b.visit("queues")
	b.act(`main a[href="new-queue"]`, kb.Enter, "new-queue")
	b.tabTo("main input[name=queue]")
	b.press(queue)
	b.tabTo("input[name=maxAttempts]")
	b.press("7")
	b.act("form[action=new-queue] button", kb.Enter, "done=new-queue")
	made := must[admin.QueueState](t)(c.Admin().Queue(t.Context(), queue))
	if made.Settings.MaxAttempts == nil || *made.Settings.MaxAttempts != 7 {
		t.Errorf("the settings are %+v, want 7 attempts", made.Settings)
	}
	b.act(`main a[href^="queue-settings"]`, kb.Enter, "queue-settings")
	b.tabTo("input[name=maxAttempts]")
	b.press(kb.Backspace, "9")
	b.act("form[action=queue-settings] button", " ", "done=queue-settings")
	made = must[admin.QueueState](t)(c.Admin().Queue(t.Context(), queue))
	if got := *made.Settings.MaxAttempts; got != 9 {
		t.Errorf("%d attempts, want 9", got)
	}
	b.act(`main a[href^="put?"]`, kb.Enter, "/ui/put")
	b.tabTo("textarea[name=body]")
	b.press("typed <b>here</b>")
	b.tabTo("input[name=id]")
	b.press("typed-1")
	b.act("form[action=put] button", kb.Enter, "done=put")
	if job := must[*client.Job](t)(c.Get(t.Context(), queue, "typed-1")); string(job.Body) != "typed <b>here</b>" {
		t.Errorf("the body is %q", job.Body)
	}
	b.visit("queue?queue=forms%2Fmade")
	b.tabTo("input[name=confirm-delete]")
	b.press(queue)
	b.act("form[action=delete-queue] button", kb.Enter, "done=delete-queue")
	if _, err := c.Admin().Queue(t.Context(), queue); !errors.Is(err, client.Reason("QUEUE_NOT_FOUND")) {
		t.Errorf("the queue after it was deleted: %v", err)
	}
	b.clean("forms")
}

// testTheme: the theme of the settings, chosen with the keyboard, wins over that of the system.
func testTheme(t *testing.T, b *tab) {
	backgrounds := map[string]string{}
	for _, theme := range []string{"light", "dark"} {
		b.prefer(theme)
		b.visit("")
		backgrounds[theme] = ask[sight](b, look).Background
	}
	for chosen, other := range map[string]string{"light": "dark", "dark": "light"} {
		b.prefer(other)
		b.visit("settings")
		b.tabTo("select[name=theme]")
		b.press(chosen[:1])
		b.act("form[action=settings] button:not([type])", kb.Enter, "done=settings")
		b.visit("")
		if got := ask[sight](b, look).Background; got != backgrounds[chosen] {
			t.Errorf("the background is %s, want %s as the theme %s", got, backgrounds[chosen], chosen)
		}
	}
	b.visit("settings")
	b.act("#zone-here", kb.Enter, "settings")
	b.act("form[action=settings] button:not([type])", kb.Enter, "done=settings")
	if got := b.text("footer"); !strings.Contains(got, "+09:00") || !strings.Contains(got, "Asia/Tokyo") {
		t.Errorf("the zone of the browser was chosen, and the page says %q", got)
	}
	b.clean("the settings")
}

// wantState checks the state of a job.
func wantState(t *testing.T, c *client.Client, queue, id, want string) {
	t.Helper()
	if got := state(t, c, queue, id); got != want {
		t.Errorf("the job %q is %s, want %s", id, got, want)
	}
}

// quoted writes a text as a script does.
func quoted(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		panic(fmt.Sprintf("%q: %v", text, err)) // no text has an error
	}
	return string(out)
}
