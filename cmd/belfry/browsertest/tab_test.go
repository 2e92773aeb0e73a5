package browsertest

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// lookPause is the time between two looks at a page.
const lookPause = 20 * time.Millisecond

// tab is a tab of the browser, with cookies of its own. It is for the test's own goroutine.
type tab struct {
	t    *testing.T
	ctx  context.Context
	site *site

	mu sync.Mutex
	// problems are what the browser complained of, and refreshes how often the page was read again.
	problems  []string
	refreshes int
	// status is that of the last page.
	status int64
}

// open opens a tab for a site. It ends with the test.
func open(browser context.Context, t *testing.T, s *site) *tab {
	t.Helper()
	b := &tab{t: t, site: s}
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.hear))
	t.Cleanup(cancel)
	b.ctx = ctx
	if err := chromedp.Do(ctx); err != nil { // opens the tab, which lasts longer than a wait
		t.Fatalf("opening a tab: %v", err)
	}
	call(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	b.size(1440)
	return b
}

// hear keeps what the browser complains of.
func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if slices.Contains([]runtime.ConsoleAPICalledType{runtime.ConsoleAPICalledTypeError,
			runtime.ConsoleAPICalledTypeWarning, runtime.ConsoleAPICalledTypeAssert}, e.Type) {
			for _, part := range e.Args {
				b.problem("the console has %s: %s%s", e.Type, part.Value, part.Description)
			}
		}
	case *runtime.EventExceptionThrown:
		b.problem("a script failed: %v", e.ExceptionDetails)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.problem("%s of %s: %s %s", e.Entry.Level, e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *page.EventJavascriptDialogOpening:
		b.problem("a dialog says %q", e.Message)
	case *network.EventRequestWillBeSent:
		at, err := url.Parse(e.Request.URL)
		if err != nil || at.Scheme != "data" && at.Scheme+"://"+at.Host != b.site.server.URL() {
			b.problem("a request goes to %s", e.Request.URL)
		}
		if _, ok := e.Request.Headers["X-Belfry-Refresh"]; ok {
			b.refreshes++
		}
	case *network.EventResponseReceived:
		if e.Type == network.ResourceTypeDocument {
			b.status = e.Response.Status
		}
	}
}

func (b *tab) problem(format string, args ...any) {
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

// refreshed returns how often the script has read the page again.
func (b *tab) refreshed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refreshes
}

// clean fails the test if the browser complained since the last call.
func (b *tab) clean(where string) {
	b.t.Helper()
	for _, problem := range b.forgive() {
		b.t.Errorf("%s: %s", where, problem)
	}
}

// forgive returns what the browser complained of since the last call, and forgets it.
func (b *tab) forgive() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	problems := b.problems
	b.problems = nil
	return problems
}

// call has the browser execute a command.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, waitMax)
	defer cancel()
	result, err := chromedp.Call(ctx, command, params)
	if err != nil {
		b.t.Fatalf("%s: %v", command.Method, err)
	}
	return result
}

// do has the browser do something.
func (b *tab) do(what string, action chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, waitMax)
	defer cancel()
	if err := chromedp.Do(ctx, action); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// size gives the tab a width in pixels.
func (b *tab) size(width int64) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1})
}

// prefer makes the system of the browser prefer a theme, light or dark.
func (b *tab) prefer(theme string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
}

// scripts turns the scripts of pages on or off.
func (b *tab) scripts(on bool) {
	b.t.Helper()
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
}

// visit shows a page of the site.
func (b *tab) visit(path string) {
	b.t.Helper()
	b.do("opening "+path, chromedp.Navigate(b.site.page(path)))
}

// ask returns the value of an expression, or what a promise of it gives.
func ask[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := evaluate[T](b, expression)
	if err != nil {
		b.t.Fatalf("asking for %s: %v", cut(expression), err)
	}
	return value
}

func evaluate[T any](b *tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, waitMax)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

func cut(text string) string { return text[:min(len(text), 200)] }

// await waits until an expression is true. While a page gives way to the next, it is not.
func (b *tab) await(what, expression string) {
	b.t.Helper()
	b.awaitThat(what, func() bool {
		yes, err := evaluate[bool](b, "Boolean("+expression+")")
		return err == nil && yes
	})
}

// awaitThat waits until a question is answered with yes.
func (b *tab) awaitThat(what string, yes func() bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, waitMax)
	defer cancel()
	look := time.NewTicker(lookPause)
	defer look.Stop()
	for !yes() {
		select {
		case <-look.C:
		case <-ctx.Done():
			text, _ := evaluate[string](b, "location.href + '\\n' + document.body.innerText") // only to explain
			b.t.Fatalf("waited in vain for %s; the page is %s", what, text)
		}
	}
}

// press presses keys, one after the other.
func (b *tab) press(keys ...string) {
	b.t.Helper()
	b.do(fmt.Sprintf("pressing %q", keys), chromedp.KeyEvent(strings.Join(keys, "")))
}

// tabTo presses Tab until the element of a selector has the focus.
func (b *tab) tabTo(selector string) {
	b.t.Helper()
	reached := "document.activeElement.matches(" + quoted(selector) + ")"
	for range 1000 {
		if ask[bool](b, reached) {
			return
		}
		b.press(kb.Tab)
	}
	b.t.Fatalf("the key Tab does not lead to %s on %s", selector, ask[string](b, "location.href"))
}

// awaitPage waits for a page whose address has a text, until it is read.
func (b *tab) awaitPage(part string) {
	b.t.Helper()
	b.await("the page "+part, "location.href.includes("+quoted(part)+") && document.readyState === 'complete'")
}

// act goes to an element by the key Tab, presses a key there, and waits for the page that follows.
func (b *tab) act(selector, key, part string) {
	b.t.Helper()
	b.tabTo(selector)
	b.press(key)
	b.awaitPage(part)
}

// enter is act for an element that gets the focus at once, and the key Enter.
func (b *tab) enter(selector, part string) {
	b.t.Helper()
	ask[bool](b, "document.querySelector("+quoted(selector)+").focus(), true")
	b.press(kb.Enter)
	b.awaitPage(part)
}

// text returns the text of the first element of a selector; empty if there is none.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return ask[string](b, "(document.querySelector("+quoted(selector)+") || {textContent: ''}).textContent")
}

// visitUntil shows a page until it has a link to another: the pages about all queues may show those
// of a moment ago.
func (b *tab) visitUntil(path, link string) {
	b.t.Helper()
	b.awaitThat("a link to "+link, func() bool {
		b.visit(path)
		return ask[bool](b, "document.querySelector('main a[href*=' + CSS.escape("+quoted(link)+") + ']') !== null")
	})
}
