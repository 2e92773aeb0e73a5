package browsertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/admin"
)

// hostileQueue holds a job for each hostile text. fullQueue has jobs in every state.
const (
	hostileQueue = "hostile/texts"
	fullQueue    = "shop/orders"
	pausedQueue  = "shop/paused"
)

// scheduleQueue has schedules, and keyQueue jobs of keys, some of them hostile.
const (
	scheduleQueue = "shop/reports"
	keyQueue      = "hostile/keys"
)

// hostileKeys are the hostile texts that a job may have as its key.
func hostileKeys() (keys []string) {
	for _, text := range hostile() {
		if len(text) <= 128 {
			keys = append(keys, text)
		}
	}
	return keys
}

// hostile are texts that a producer could write so that a page runs, loads or hides something. Each
// of them that runs sets ran.
func hostile() []string {
	return []string{
		`<script>ran=1</script>`,
		`"><img src=x onerror=ran=1>`,
		`' onfocus=ran=1 autofocus x='`,
		`</title></textarea></pre></style><svg onload=ran=1>`,
		`javascript:ran=1`,
		`<a href=javascript:ran=1>x</a><iframe srcdoc="<script>top.ran=1</script>"></iframe>`,
		`<style>*{display:none}</style><base href=//elsewhere.example/>`,
		`<meta http-equiv=refresh content="0;url=//elsewhere.example/">`,
		`<form action=//elsewhere.example/><input name=token></form><!--`,
		`&lt;script&gt;ran=1&lt;/script&gt;&amp;&#0;`,
		"turned\u202e\u2066\u2069\u200f round",
		"שלום עולם",
		"with\x00a NUL",
		"two\r\nlines\rand\nmore\u2028all",
		" spaces around and  inside ",
		"../../v1/put?queue=x&id=y#z%00%2f+",
		"{{constructor.constructor('ran=1')()}}${ran=1}",
		strings.Repeat("long", 64),
		"\ufeff\u0301\U0001f3f4\u200d\u2620\ufe0f\ufffd",
	}
}

// shown is how a page writes a text: characters that change how the text around them looks are
// replaced.
func shown(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || strings.ContainsRune("\u2028\u202e\u2066\u2069\u200f\ufeff\u200d", r) {
			return '\ufffd'
		}
		return r
	}, text)
}

// bodies are contents that a page could change or be changed by, by the id of their job.
func bodies() map[string][]byte {
	random := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random) // never fails
	copy(random, "\xff\xfe\x00<script>ran=1</script>")
	return map[string][]byte{
		"mebibyte": random,
		"numbers":  []byte(`{"big":9007199254740993,"huge":18446744073709551616,"exact":0.10000000000000000001,"e":1E+400}`),
		"text":     []byte("\u202e<script>ran=1</script>\r\n\x01 \u200f\n"),
		"invalid":  []byte("almost text \xc3\x28 \xa0\xa1 \xed\xa0\x80"),
		"empty":    {},
	}
}

// must fails the test for an error.
func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// fill fills a server, so that each page has much to show.
func fill(t *testing.T, s *site) {
	t.Helper()
	var puts []client.Put
	for queue := range 60 {
		name := fmt.Sprintf("%s/queue-%02d", []string{"shop", "mail", "billing"}[queue%3], queue)
		for job := range 50 {
			puts = append(puts, client.Put{Queue: name, Body: fmt.Appendf(nil, `{"job":%d}`, job),
				Options: []client.PutOption{client.In(time.Duration(job*queue) * time.Minute)}})
		}
	}
	for job := range 1200 {
		puts = append(puts, client.Put{Queue: fullQueue, Body: []byte("order"),
			Options: []client.PutOption{client.In(time.Duration(1+job) * 30 * time.Second)}})
	}
	for _, text := range hostile() {
		puts = append(puts, client.Put{Queue: hostileQueue, Body: []byte(text), Options: []client.PutOption{
			client.ID(text), client.Header(text, text), client.In(time.Hour)}})
	}
	for id, body := range bodies() {
		puts = append(puts, client.Put{Queue: hostileQueue, Body: body, Options: []client.PutOption{
			client.ID(id), client.In(2 * time.Hour)}})
	}
	for part := range slices.Chunk(puts, 1000) {
		for _, result := range must[[]client.PutResult](t)(s.client.PutBatch(t.Context(), part)) {
			if result.Err != nil {
				t.Fatal(result.Err)
			}
		}
	}
	die(t, s.client, "hostile/dead", failing(hostile()...)...)
	var failures []string
	for n := range 40 {
		failures = append(failures, fmt.Sprintf("connecting to 10.0.0.%d:5432: timeout after %d ms", n, 100*n))
	}
	die(t, s.client, fullQueue, failing(failures...)...)
	die(t, s.client, "mail/retry", failing("550 no such mailbox", "550 no such mailbox", "greylisted for 300 s")...)
	hold(t, s.client, fullQueue, 12)
	must[client.PutResult](t)(s.client.Put(t.Context(), pausedQueue, []byte("x")))
	pause(t, s.client, pausedQueue)
	fillRooms(t, s)
	s.counted = startTask(t, s, `{"queue":"shop/orders","state":"DELAYED","text":"order","act":"COUNT"}`)
	s.running = startTask(t, s, `{"queue":"shop/orders","state":"DELAYED","act":"COUNT","perSecond":1}`)
	for i, namespace := range []string{"shop", "mail", "billing"} {
		if _, err := program.Run(t.Context(), "namespace", "set", namespace, "--max-jobs", fmt.Sprint((i+1)*1_000_000),
			"--max-bytes", "1000000000", "--max-in-flight", "100", "--server", s.server.URL()); err != nil {
			t.Fatal(err)
		}
	}
}

// fillRooms makes schedules and keys.
func fillRooms(t *testing.T, s *site) {
	t.Helper()
	job := `"job":{"text":"<script>ran=1</script>","headers":{"kind":"</td><script>ran=1</script>"}}`
	for name, spec := range map[string]string{
		"hourly":       `{"every":"1h","phase":"5m","jitter":"30s"}`,
		"night/report": `{"cron":"30 2 * * *","timeZone":"Europe/Berlin","exclude":["* * 24 12 *"]}`,
		"over":         `{"cron":"0 0 1 1 *","end":"2020-01-01T00:00:00Z"}`,
	} {
		apiCall[struct{}](t, s, "put-schedule", fmt.Sprintf(`{"queue":%q,"name":%q,"spec":%s,%s}`, scheduleQueue, name, spec, job))
	}
	apiCall[struct{}](t, s, "trigger-schedule", fmt.Sprintf(`{"queue":%q,"name":"hourly"}`, scheduleQueue))
	apiCall[struct{}](t, s, "pause-schedules", fmt.Sprintf(
		`{"queue":%q,"names":["night/report"],"note":"<script>ran=1</script>"}`, scheduleQueue))
	apiCall[struct{}](t, s, "create-queue", fmt.Sprintf(
		`{"queue":%q,"partitions":1,"settings":{"keyConcurrency":1,"keyRate":{"count":1,"per":"1h"}}}`, keyQueue))
	for i, key := range append(hostileKeys(), "customer-1", "customer-1", "customer-1", "customer-2") {
		must[client.PutResult](t)(s.client.Put(t.Context(), keyQueue, []byte("x"), client.Key(key),
			client.ID(fmt.Sprint("keyed-", i))))
	}
	apiCall[struct{}](t, s, "pause-key", fmt.Sprintf(`{"queue":%q,"key":"customer-2"}`, keyQueue))
}

// apiCall makes a call with JSON.
func apiCall[T any](t *testing.T, s *site, method, request string) (answer T) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.server.URL()+"/v1/"+method,
		strings.NewReader(request))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res := must[*http.Response](t)(http.DefaultClient.Do(req))
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s, %v", method, request, res.Status, err)
	}
	return answer
}

// startTask starts a task, and returns its id.
func startTask(t *testing.T, s *site, request string) string {
	t.Helper()
	begun := apiCall[struct{ Task struct{ ID string } }](t, s, "start-task", request)
	if begun.Task.ID == "" {
		t.Fatalf("%s began no task", request)
	}
	return begun.Task.ID
}

// death is a job that dies: its id, the error that it dies of, and for how long it has been due.
type death struct {
	id, failure string
	ago         time.Duration
}

// failing returns a death for each error.
func failing(failures ...string) (all []death) {
	for i, failure := range failures {
		all = append(all, death{fmt.Sprintf("dead-%d", i), failure, 0})
	}
	return all
}

// die makes dead jobs in a queue.
func die(t *testing.T, c *client.Client, queue string, all ...death) {
	t.Helper()
	failures := map[string]string{}
	for _, d := range all {
		failures[d.id] = d.failure
		must[client.PutResult](t)(c.Put(t.Context(), queue, []byte("dies"), client.MaxAttempts(1), client.Priority(-9),
			client.ID(d.id), client.At(time.Now().Add(-d.ago))))
	}
	for range all {
		job := reserve(t, c, queue)
		if err := job.Nack(t.Context(), errors.New(failures[job.ID])); err != nil {
			t.Fatal(err)
		}
	}
}

// hold makes jobs that a consumer holds.
func hold(t *testing.T, c *client.Client, queue string, jobs int) {
	t.Helper()
	for range jobs {
		must[client.PutResult](t)(c.Put(t.Context(), queue, []byte("held")))
	}
	for range jobs {
		reserve(t, c, queue)
	}
}

func reserve(t *testing.T, c *client.Client, queue string) *client.Job {
	t.Helper()
	options := client.ReserveOptions{Queues: []string{queue}, Wait: time.Minute, TTR: time.Hour}
	jobs := must[[]*client.Job](t)(c.Reserve(t.Context(), options))
	if len(jobs) != 1 {
		t.Fatalf("%d jobs of %s, want 1", len(jobs), queue)
	}
	return jobs[0]
}

func pause(t *testing.T, c *client.Client, queue string) {
	t.Helper()
	yes := true
	must[admin.ConfiguredQueue](t)(c.Admin().UpdateQueue(t.Context(), queue, &admin.QueueSettings{Paused: &yes}))
}

// state returns the state of a job, or how it ended.
func state(t *testing.T, c *client.Client, queue, id string) string {
	t.Helper()
	job, err := c.Get(t.Context(), queue, id)
	if err != nil {
		return err.Error()
	}
	return string(job.State)
}

// inDays returns a delay.
func inDays(days int) time.Duration { return time.Duration(days) * 24 * time.Hour }

// sameBytes says where two contents differ; empty if nowhere.
func sameBytes(got, want []byte) string {
	if bytes.Equal(got, want) {
		return ""
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	return fmt.Sprintf("%d bytes, want %d; they differ at byte %d", len(got), len(want), at)
}
