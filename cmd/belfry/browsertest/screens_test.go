package browsertest

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// screen is a page in one of its states. Its name is for messages.
type screen struct {
	name, path string
	status     int64
}

// pageOfQueue returns the path of a page about a queue, with more names and values.
func pageOfQueue(page, queue string, more ...string) string {
	values := url.Values{"queue": {queue}}
	for i := 0; i < len(more); i += 2 {
		values.Set(more[i], more[i+1])
	}
	return page + "?" + values.Encode()
}

// screens are all pages of a server that needs no token.
func (s *site) screens() []screen {
	queue := pageOfQueue
	all := []screen{
		{name: "overview", path: ""},
		{name: "queues", path: "queues"},
		{name: "queues by dead", path: "queues?sort=dead&filter=shop"},
		{name: "no queues", path: "queues?filter=%3Cscript%3Eran%3D1%3C%2Fscript%3E"},
		{name: "queue", path: queue("queue", fullQueue)},
		{name: "paused queue", path: queue("queue", pausedQueue)},
		{name: "dead letters", path: "dead"},
		{name: "dead letters of a queue", path: queue("dead", "mail/retry")},
		{name: "what was found", path: "find?job=order"},
		{name: "what was found in a queue", path: queue("find", hostileQueue, "job", "ran=1")},
		{name: "what was not found", path: "find?job=%3Cscript%3Eran%3D1%3C%2Fscript%3Enowhere"},
		{name: "a search of jobs", path: queue("jobs", hostileQueue, "idPrefix", "<", "text", "ran")},
		{name: "a search of many jobs", path: queue("jobs", fullQueue, "text", "order")},
		{name: "jobs of a cause", path: queue("jobs", fullQueue, "state", "dead", "cause",
			"connecting to #.#.#.#:#: timeout after # ms")},
		{name: "consumers", path: "consumers"},
		{name: "tasks", path: "tasks"},
		{name: "a task that has counted", path: "task?id=" + s.counted},
		{name: "a task that runs", path: "task?id=" + s.running},
		{name: "no such task", path: "task?id=%3Cscript%3Eran%3D1%3C%2Fscript%3E", status: 400},
		{name: "job", path: queue("job", hostileQueue, "id", "numbers")},
		{name: "large job", path: queue("job", hostileQueue, "id", "mebibyte")},
		{name: "job as text", path: queue("job", hostileQueue, "id", "numbers", "as", "text")},
		{name: "job as bytes", path: queue("job", hostileQueue, "id", "numbers", "as", "hex")},
		{name: "settings of a queue", path: queue("queue-settings", fullQueue)},
		{name: "new queue", path: "new-queue"},
		{name: "put", path: queue("put", fullQueue)},
		{name: "cluster", path: "cluster"},
		{name: "node", path: "node?name=n1"},
		{name: "no such node", path: "node?name=%3Cscript%3Eran%3D1%3C%2Fscript%3E", status: 404},
		{name: "namespaces", path: "namespaces"},
		{name: "namespace", path: "namespace?name=shop"},
		{name: "tokens", path: "tokens"},
		{name: "audit", path: "audit"},
		{name: "settings", path: "settings"},
		{name: "login", path: "login"},
		{name: "no such queue", path: queue("queue", "none"), status: 404},
		{name: "a bad time", path: queue("jobs", fullQueue, "after", "<script>ran=1</script>"), status: 400},
	}
	for _, state := range []string{"delayed", "ready", "reserved", "dead"} {
		all = append(all, screen{name: state + " jobs", path: queue("jobs", fullQueue, "state", state, "size", "100")})
	}
	all = append(all, screen{name: "hostile jobs", path: queue("jobs", hostileQueue, "size", "100")})
	all = append(all, screen{name: "hostile dead jobs", path: queue("jobs", "hostile/dead", "state", "dead")})
	all = append(all, roomScreens()...)
	for _, id := range hostile() {
		all = append(all, screen{name: fmt.Sprintf("job %.20q", id), path: queue("job", hostileQueue, "id", id)})
	}
	return all
}

// roomScreens are the pages about schedules and keys.
func roomScreens() []screen {
	queue := pageOfQueue
	all := []screen{
		{name: "schedules of all queues", path: "schedules"},
		{name: "schedules of a queue", path: queue("schedules", scheduleQueue)},
		{name: "no schedules", path: queue("schedules", fullQueue)},
		{name: "schedule", path: queue("schedule", scheduleQueue, "name", "hourly")},
		{name: "paused schedule", path: queue("schedule", scheduleQueue, "name", "night/report")},
		{name: "no such schedule", path: queue("schedule", scheduleQueue, "name", "none"), status: 404},
		{name: "backfill", path: queue("backfill", scheduleQueue, "name", "hourly")},
		{name: "what a backfill would put", path: queue("backfill", scheduleQueue, "name", "night/report", "from",
			"2026-03-01", "to", "2026-04-15", "max", "40")},
		{name: "a bad span", path: queue("backfill", scheduleQueue, "name", "hourly", "from", "<script>ran=1</script>"),
			status: 400},
		{name: "keys", path: queue("keys", keyQueue)},
		{name: "keys by name", path: queue("keys", keyQueue, "order", "name", "state", "ready")},
		{name: "no keys", path: queue("keys", keyQueue, "prefix", "<script>ran=1</script>none")},
		{name: "key", path: queue("key", keyQueue, "key", "customer-1")},
		{name: "paused key", path: queue("key", keyQueue, "key", "customer-2")},
		{name: "key without jobs", path: queue("key", keyQueue, "key", "<script>ran=1</script>none")},
		{name: "jobs of a key", path: queue("jobs", keyQueue, "state", "ready", "key", "customer-1")},
		{name: "job of a key", path: queue("job", keyQueue, "id", "keyed-0", "key", hostileKeys()[0])},
	}
	for _, key := range hostileKeys() {
		all = append(all, screen{name: fmt.Sprintf("job \"of key\" %.20q", key), path: queue("key", keyQueue, "key", key)})
	}
	return all
}

// widths are those of a phone, a desk and a wall, in pixels.
func widths() []int64 { return []int64{360, 1440, 3840} }

// sight is what a test sees of a page.
type sight struct {
	Title, Heading, Lang string
	Headings, Mains      int
	Navigations          int
	HeadingShown         bool
	Wider                int
	Background           string
	Links                []string
	Ran                  bool
}

const look = `(() => {
	const heading = document.querySelector('h1'), box = heading ? heading.getBoundingClientRect() : {};
	const style = heading ? getComputedStyle(heading) : {};
	return {
		title: document.title, heading: heading ? heading.innerText : '', lang: document.documentElement.lang,
		headings: document.querySelectorAll('h1').length, mains: document.querySelectorAll('main').length,
		navigations: document.querySelectorAll('header nav').length,
		headingShown: box.width > 0 && box.height > 0 && box.top < innerHeight && box.left < innerWidth &&
			style.visibility === 'visible' && style.opacity === '1',
		wider: document.scrollingElement.scrollWidth - document.documentElement.clientWidth,
		background: getComputedStyle(document.body).backgroundColor,
		links: [...document.querySelectorAll('a[href], form[method=get]')].map((e) =>
			e.getAttribute('href') || e.getAttribute('action')),
		ran: 'ran' in window,
	};
})()`

// check checks what every page must be.
func (b *tab) check(where string, s screen) sight {
	b.t.Helper()
	got := ask[sight](b, look)
	for problem, is := range map[string]bool{
		fmt.Sprintf("the title is %q", got.Title):                    !strings.HasSuffix(got.Title, " · Belfry"),
		fmt.Sprintf("the language is %q", got.Lang):                  got.Lang != "en",
		fmt.Sprintf("%d main headings", got.Headings):                got.Headings != 1,
		fmt.Sprintf("%d main parts", got.Mains):                      got.Mains != 1,
		fmt.Sprintf("%d navigations", got.Navigations):               got.Navigations != 1,
		"the main heading is not to be seen":                         !got.HeadingShown,
		fmt.Sprintf("the page scrolls %d px to the side", got.Wider): got.Wider > 0,
		"a hostile text was executed":                                got.Ran,
	} {
		if is {
			b.t.Errorf("%s: %s", where, problem)
		}
	}
	b.mu.Lock()
	status := b.status
	b.mu.Unlock()
	if want := max(s.status, 200); status != want {
		b.t.Errorf("%s: status %d, want %d", where, status, want)
	}
	return got
}

// cleanScreen is clean for a screen whose status is an error, which the browser reports.
func (b *tab) cleanScreen(where string, s screen) {
	b.t.Helper()
	for _, problem := range b.forgive() {
		if s.status == 0 || !strings.Contains(problem, fmt.Sprintf("responded with a status of %d", s.status)) {
			b.t.Errorf("%s: %s", where, problem)
		}
	}
}

// testScreens: every page is whole with and without scripts, in both themes, at every width; and
// every page that another one leads to is one of these.
func testScreens(t *testing.T, b *tab) {
	known, linked := map[string]bool{}, map[string]bool{}
	for _, scripts := range []bool{true, false} {
		b.scripts(scripts)
		for _, s := range b.site.screens() {
			path, _, _ := strings.Cut(s.path, "?")
			known[path] = true
			b.visit(s.path)
			backgrounds := map[string]string{}
			for _, theme := range []string{"light", "dark"} {
				b.prefer(theme)
				for _, width := range widths() {
					b.size(width)
					got := b.check(fmt.Sprintf("%s, scripts %t, %s, %d px", s.name, scripts, theme, width), s)
					backgrounds[theme] = got.Background
					for _, link := range got.Links {
						path, _, _ := strings.Cut(strings.TrimPrefix(link, "./"), "?")
						linked[path] = true
					}
				}
			}
			if backgrounds["light"] == backgrounds["dark"] {
				t.Errorf("%s has the background %s in both themes", s.name, backgrounds["light"])
			}
			b.cleanScreen(s.name, s)
		}
	}
	b.scripts(true)
	for path := range linked {
		if !known[path] && !strings.HasPrefix(path, "#") && path != "body" && path != "export" { // testDownload has these
			t.Errorf("the pages lead to %q, which no test visits", path)
		}
	}
}
