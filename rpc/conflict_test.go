package rpc

import (
	"regexp"
	"strings"
	"testing"
)

// TestConflictNamesTheField: a put that is not the same as the first of its id is told in what,
// while the job is held.
func TestConflictNamesTheField(t *testing.T) {
	s := serve(t)
	const first = `"dueAt":"2099-01-01T00:00:00Z","ttr":"60s","priority":3,"maxAttempts":4,"retryDelays":["1s","2s"],` +
		`"ttl":"24h","text":"x","headers":{"a":"1"}`
	put := func(id, fields string) answered {
		t.Helper()
		return s.send("POST", "/v1/put", `{"queue":"conflicts","id":"`+id+`",`+fields+`}`)
	}
	if got := put("full", first); got.status != 200 {
		t.Fatal(got.body)
	}
	if got := put("delayed", `"delay":"1h","text":"x"`); got.status != 200 {
		t.Fatal(got.body)
	}
	if got := put("bare", `"text":"x"`); got.status != 200 {
		t.Fatal(got.body)
	}
	replaced := func(old, other string) string { return strings.Replace(first, old, other, 1) }
	for _, c := range []struct{ id, fields, want string }{
		{"full", replaced("00:00:00Z", "00:30:00Z"),
			"dueAt differs (2099-01-01T00:00:00Z at first, now 2099-01-01T00:30:00Z); with delay a repeat is the same put"},
		{"full", replaced(`"dueAt":"2099-01-01T00:00:00Z"`, `"delay":"1h"`), "the first put had dueAt, this one has delay"},
		{"full", replaced(`"text":"x"`, `"text":"y"`), "the body differs"},
		{"full", replaced(`"a":"1"`, `"a":"2"`), "headers differ"},
		{"full", replaced(`"ttr":"60s"`, `"ttr":"61s"`), "ttr differs"},
		{"full", replaced(`"ttr":"60s",`, ``), "ttr differs"},
		{"full", replaced(`"priority":3`, `"priority":4`), "priority differs"},
		{"full", replaced(`"maxAttempts":4`, `"maxAttempts":5`), "maxAttempts differs"},
		{"full", replaced(`"1s","2s"`, `"1s"`), "retryDelays differs"},
		{"full", replaced(`"24h"`, `"25h"`), "ttl differs"},
		{"delayed", `"delay":"2h","text":"x"`, "delay differs"},
		{"delayed", `"text":"x"`, "the first put had delay, this one has neither delay nor dueAt"},
		{"bare", `"text":"x","ttr":"30s"`, "ttr differs"},
	} {
		got := put(c.id, c.fields)
		if want := `"message":"a job with this id exists: ` + c.want + `"`; got.status != 409 ||
			!strings.Contains(got.body, want) {
			t.Errorf("%s: status %d, %s is not in %s", c.fields, got.status, want, got.body)
		}
		batch := s.send("POST", "/v1/put-batch", `{"jobs":[{"queue":"conflicts","id":"`+c.id+`",`+c.fields+`}]}`)
		if !strings.Contains(batch.body, c.want) {
			t.Errorf("%s in a batch: %s", c.fields, batch.body)
		}
	}
	if got := put("full",
		first[:len(first)-len(`"headers":{"a":"1"}`)]+`"headers":{"a":"1","traceparent":"00-x"}`); got.status != 200 {
		t.Errorf("the same content from another trace: %s", got.body)
	}
}

// TestGetOfAnEndedJob: a call that asks for ended jobs is answered what became of the job, while
// its id is remembered. Those that do not ask are told in the error.
func TestGetOfAnEndedJob(t *testing.T) {
	s := serve(t)
	post := func(path, body string, want ...string) answered {
		t.Helper()
		got := s.post(path, body)
		for _, w := range want {
			if !strings.Contains(got.body, w) {
				t.Errorf("%s %s: %s is not in %s", path, body, w, got.body)
			}
		}
		return got
	}
	post("/v1/put", `{"queue":"e","id":"a","text":"x","ttr":"1s"}`, `"created":true`)
	post("/v1/put", `{"queue":"e","id":"b","delay":"1h"}`, `"created":true`)
	post("/v1/put", `{"queue":"e"}`, `"created":true`)
	post("/v1/get", `{"queue":"e","id":"a","ended":true}`, `"text":"x"`, `"state":"READY"`)
	lease := regexp.MustCompile(`"lease":"([^"]*)"`)
	nack := func() {
		t.Helper()
		taken := lease.FindStringSubmatch(post("/v1/reserve", `{"queues":["e"]}`).body)
		if taken == nil {
			t.Fatal("nothing was handed out")
		}
		post("/v1/nack", `{"lease":"`+taken[1]+`","delay":"1h"}`, `"state":"DELAYED"`)
	}
	nack()
	post("/v1/cancel", `{"queue":"e","id":"a"}`)
	post("/v1/cancel", `{"queue":"e","id":"b"}`)
	if got := post("/v1/get", `{"queue":"e","id":"a"}`, `the job has ended: it is CANCELLED since 20`,
		`, after 1 attempt"`, `"state":"CANCELLED"`); got.status != 404 {
		t.Errorf("status %d", got.status)
	}
	got := post("/v1/get", `{"queue":"e","id":"b","ended":true}`, `"state":"CANCELLED"`, `"endedAt":"20`, `"attempt":0`,
		`"firstDueAt":"20`, `"queue":"e"`, `"id":"b"`)
	if got.status != 200 || strings.Contains(got.body, `"text"`) || strings.Contains(got.body, `"ttr"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := post("/v1/get", `{"queue":"e","id":"never","ended":true}`, `there is no such job`); got.status != 404 {
		t.Errorf("status %d", got.status)
	}
	post("/v1/put", `{"queue":"e","id":"a","text":"y"}`,
		`a job with this id and other content ended within the dedup window: it is CANCELLED since 20`)
}

// TestConflictsTellNoSecrets: a caller that may put to a queue but not read from it learns when a
// job was first due, and nothing else of it.
func TestConflictsTellNoSecrets(t *testing.T) {
	s, tokenStore := serveWithTokens(t)
	producer, _ := tokenStore.make(t, "put:q", "consume:other")
	both, _ := tokenStore.make(t, "put:q", "consume:q")
	put := func(token, fields string) answered {
		t.Helper()
		return s.with(token, "POST", "/v1/put", `{"queue":"q",`+fields+`}`)
	}
	for _, first := range []string{`"id":"a","dueAt":"2099-01-01T00:00:00Z","text":"x"`, `"id":"gone","text":"x"`} {
		if got := put(producer, first); got.status != 200 {
			t.Fatal(got.body)
		}
	}
	if got := s.with(producer, "POST", "/v1/cancel", `{"queue":"q","id":"gone"}`); got.status != 200 {
		t.Fatal(got.body)
	}
	const silent = `"message":"a job with this id exists, or ended within the dedup window, with other content"`
	for _, c := range []struct{ fields, producer, both string }{
		{`"id":"a","dueAt":"2099-01-01T00:30:00Z","text":"x"`, "dueAt differs (2099-01-01T00:00:00Z at first",
			"dueAt differs (2099-01-01T00:00:00Z at first"},
		{`"id":"a","dueAt":"2099-01-01T00:00:00Z","text":"y"`, silent, "the body differs"},
		{`"id":"a","dueAt":"2099-01-01T00:00:00Z","text":"x","ttr":"9s"`, silent, "ttr differs"},
		{`"id":"a","delay":"1h","text":"x"`, silent, "the first put had dueAt"},
		{`"id":"gone","text":"y"`, silent, "it is CANCELLED since 20"},
	} {
		if got := put(producer, c.fields); got.status != 409 || !strings.Contains(got.body, c.producer) {
			t.Errorf("%s: who may only put is told %d %s", c.fields, got.status, got.body)
		}
		if got := put(both, c.fields); got.status != 409 || !strings.Contains(got.body, c.both) {
			t.Errorf("%s: who may consume is told %d %s", c.fields, got.status, got.body)
		}
	}
}
