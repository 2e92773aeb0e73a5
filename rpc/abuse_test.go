package rpc

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/rpc/wire"
)

// zeros is a gzip stream of n times 16 MiB of zeros. Such streams may be put one after the other.
func zeros(t *testing.T, n int) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.CopyN(w, zeroReader{}, 16<<20); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return strings.Repeat(b.String(), n)
}

// zeroReader reads zeros for ever.
type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// jobsJSON is a batch of n copies of a put.
func jobsJSON(n int, put string) string {
	return `{"jobs":[` + strings.TrimSuffix(strings.Repeat(put+",", n), ",") + `]}`
}

// abuse is a request that is to be refused, with the status and a part of the answer.
type abuse struct {
	name, path, body string
	headers          []string
	status           int
	want             string
}

// badForm are requests that cannot be read.
func badForm() []abuse {
	return []abuse{
		{"not JSON", "/v1/put", `queue=a`, nil, 400, "request: not valid JSON"},
		{"cut off", "/v1/put", `{"queue":"a"`, nil, 400, "request: not valid JSON: it ends too early"},
		{"an array", "/v1/put", `[{"queue":"a"}]`, nil, 400, "request: want a JSON object"},
		{"a null", "/v1/put", `null`, nil, 400, "request: want a JSON object"},
		{"two values", "/v1/put", `{"queue":"a"}{"queue":"b"}`, nil, 400, "request: more than one JSON value"},
		{"invalid UTF-8", "/v1/put", "{\"queue\":\"a\",\"text\":\"\xff\"}", nil, 400, "request: not valid UTF-8"},
		{"half a surrogate", "/v1/put", `{"queue":"a","text":"\ud800"}`, nil, 400, "request: "},
		{"10,000 brackets", "/v1/put", strings.Repeat(`{"queue":`, 10_000), nil, 400, "request: "},
		{"1,000,000 brackets in a field", "/v1/put", `{"headers":` + strings.Repeat(`[`, 1_000_000), nil, 400,
			"not valid JSON"},
		{"an unknown field", "/v1/put", `{"queue":"a","prio":1}`, nil, 400, `prio: unknown field; did you mean \"priority\"`},
		{"an unknown field in a batch", "/v1/put-batch", `{"jobs":[{"queue":"a","body":"x"}]}`, nil, 400,
			`jobs[0].body: unknown field`},
		{"a field twice", "/v1/put", `{"queue":"a","queue":"b"}`, nil, 400, `duplicate field \"queue\"`},
		{"text and data", "/v1/put", `{"queue":"a","text":"a","data":"YQ=="}`, nil, 400, `data: not together with text`},
		{"delay and dueAt", "/v1/put", `{"queue":"a","delay":"1s","dueAt":"2026-11-21T09:30:00Z"}`, nil, 400,
			`dueAt: not together with delay`},
		{"protobuf that is none", "/v1/put", "\xff\xff\xff", []string{"Content-Type", "application/proto"}, 400, "request: "},
		{"protobuf with invalid UTF-8", "/v1/put", "\x0a\x01\xff", []string{"Content-Type", "application/proto"}, 400,
			"invalid UTF-8"},
		{"an encoding nobody knows", "/v1/put", `{}`, []string{"Content-Encoding", "br"}, 501, `unknown compression \"br\"`},
		{"gzip that is none", "/v1/put", `{"queue":"a"}`, []string{"Content-Encoding", "gzip"}, 400, "gzip: invalid header"},
		{"a protocol version from the future", "/v1/put", `{}`, []string{"Connect-Protocol-Version", "9"}, 400,
			"Connect-Protocol-Version"},
		{"a timeout that is none", "/v1/put", `{}`, []string{"Connect-Timeout-Ms", "soon"}, 400, "request: "},
	}
}

// badTypes are fields of the wrong type.
func badTypes() []abuse {
	return []abuse{
		{"a number for a queue", "/v1/put", `{"queue":7}`, nil, 400, "queue: want a string, not 7"},
		{"an object for a text", "/v1/put", `{"queue":"a","text":{"a":1}}`, nil, 400, `text: want a string`},
		{"text for base64", "/v1/put", `{"queue":"a","data":"hello world!"}`, nil, 400, "want base64"},
		{"a word for a delay", "/v1/put", `{"queue":"a","delay":"soon"}`, nil, 400, "delay: want a duration"},
		{"a word for a time", "/v1/put", `{"queue":"a","dueAt":"tomorrow"}`, nil, 400, "dueAt: want a time"},
		{"a fraction for a priority", "/v1/put", `{"queue":"a","priority":0.5}`, nil, 400, "priority: want a whole number"},
		{"a number for a header", "/v1/put", `{"queue":"a","headers":{"n":1}}`, nil, 400, `headers[\"n\"]: want a string`},
		{"a string for queues", "/v1/reserve", `{"queues":"a"}`, nil, 400, "queues: want a JSON array"},
		{"a word for a state", "/v1/list", `{"queue":"a","state":"LATE"}`, nil, 400, "state: want one of DELAYED"},
		{"a number for a state", "/v1/list", `{"queue":"a","state":77}`, nil, 400, "state: want one of DELAYED"},
		{"an ended state", "/v1/list", `{"queue":"a","state":"ACKED"}`, nil, 400,
			"state: want one of DELAYED, READY, RESERVED, DEAD, not"},
	}
}

// badNames are names and ids that cannot be.
func badNames() []abuse {
	return []abuse{
		{"no queue", "/v1/put", `{"text":"x"}`, nil, 400, "queue: a queue's name is required"},
		{"a queue of 257 bytes", "/v1/put", `{"queue":"` + strings.Repeat("q", 257) + `"}`, nil, 400,
			"queue: 257 bytes; the limit is 256"},
		{"a queue with a space", "/v1/put", `{"queue":"a b"}`, nil, 400, "queue: only letters"},
		{"a queue in Cyrillic", "/v1/put", `{"queue":"очередь"}`, nil, 400, "queue: only letters"},
		{"a queue of three parts", "/v1/put", `{"queue":"a/b/c"}`, nil, 400, "queue: want `name` or `namespace/name`"},
		{"a queue that climbs", "/v1/put", `{"queue":"../etc"}`, nil, 400,
			`queue: want \"name\" or \"namespace/name\"; a part is empty`},
		{"a queue with an empty part", "/v1/put", `{"queue":"/a"}`, nil, 400, "a part is empty"},
		{"a queue with a NUL", "/v1/put", `{"queue":"a\u0000"}`, nil, 400, "queue: only letters"},
		{"an id of 257 bytes", "/v1/put", `{"queue":"a","id":"` + strings.Repeat("i", 257) + `"}`, nil, 400,
			"id: 257 bytes; the limit is 256"},
		{"an id of the server's form", "/v1/put", `{"queue":"a","id":"0-17"}`, nil, 400, "id: ids of the form"},
		{"again without an id", "/v1/put", `{"queue":"a","again":true}`, nil, 400, "again: it needs an id"},
		{"a requestId of 65 bytes", "/v1/put", `{"queue":"a","requestId":"` + strings.Repeat("r", 65) + `"}`, nil, 400,
			"requestId: 65 bytes; the limit is 64"},
		{"a get without an id", "/v1/get", `{"queue":"a"}`, nil, 400, "id: a job's id is required"},
	}
}

// badTimes are times out of range.
func badTimes() []abuse {
	return []abuse{
		{"a negative delay", "/v1/put", `{"queue":"a","delay":"-1s"}`, nil, 400, "delay: -1s is out of range: 0s to 100y"},
		{"a delay of 101 years", "/v1/put", `{"queue":"a","delay":"885000h"}`, nil, 400,
			"delay: 885000h is out of range: 0s to 100y"},
		{"a delay of 10,000 years", "/v1/put", `{"queue":"a","delay":"315576000000s"}`, nil, 400, "out of range: 0s to 100y"},
		{"a delay beyond protobuf", "/v1/put", `{"queue":"a","delay":"999999999999s"}`, nil, 400, "delay: want a duration"},
		{"a due time in the year 9999", "/v1/put", `{"queue":"a","dueAt":"9999-12-31T23:59:59Z"}`, nil, 400,
			"dueAt: 9999-12-31T23:59:59Z is out of range: at most 100y (876600h) from now"},
		{"a TTR of zero", "/v1/put", `{"queue":"a","ttr":"0s"}`, nil, 400, "ttr: 0s is out of range: 1ms to 24h"},
		{"a TTR of two days", "/v1/reserve", `{"queues":["a"],"ttr":"48h"}`, nil, 400,
			"ttr: 48h is out of range: 1ms to 24h"},
		{"a TTL of zero", "/v1/put", `{"queue":"a","ttl":"0s"}`, nil, 400, "ttl: 0s is out of range: 1ms to 100y"},
		{"a wait of an hour", "/v1/reserve", `{"queues":["a"],"wait":"1h"}`, nil, 400, "wait: 1h is out of range: 0s to 1m"},
		{"a negative wait", "/v1/reserve", `{"queues":["a"],"wait":-1}`, nil, 400, "wait: -1s is out of range: 0s to 1m"},
		{"a negative retry delay", "/v1/put", `{"queue":"a","retryDelays":["0s","-5s"]}`, nil, 400,
			"retryDelays[1]: -5s is out of range: 0s to 100y"},
	}
}

// badSizes are sizes and counts out of range.
func badSizes() []abuse {
	return []abuse{
		{"a body above 1 MiB", "/v1/put", `{"queue":"a","text":"` + strings.Repeat("x", 1<<20+1) + `"}`, nil, 400,
			"text: 1048577 bytes; the limit is 1048576"},
		{"data above 1 MiB", "/v1/put",
			`{"queue":"a","data":"` + base64.StdEncoding.EncodeToString(make([]byte, 1<<20+1)) + `"}`, nil, 400,
			"data: 1048577 bytes; the limit is 1048576"},
		{"a message above 8 MiB", "/v1/put", `{"queue":"a","text":"` + strings.Repeat("x", 9<<20) + `"}`, nil, 400,
			"request: more than 8388608 bytes"},
		{"headers above 16 KiB", "/v1/put", `{"queue":"a","headers":{"h":"` + strings.Repeat("x", 16<<10) + `"}}`, nil, 400,
			"headers: 16385 bytes; the limit is 16384"},
		{"a header without a name", "/v1/put", `{"queue":"a","headers":{"":"x"}}`, nil, 400,
			"headers: a header without a name"},
		{"a priority of 2^32", "/v1/put", `{"queue":"a","priority":4294967296}`, nil, 400,
			"priority: 4294967296 is out of range: -128 to 4294967295"},
		{"2,000,000 attempts", "/v1/put", `{"queue":"a","maxAttempts":2000000}`, nil, 400,
			"maxAttempts: 2000000 is out of range: 0 to 1000000"},
		{"65 retry delays", "/v1/put", `{"queue":"a","retryDelays":[` + strings.Repeat(`"1s",`, 64) + `"1s"]}`, nil, 400,
			"retryDelays: 65 entries; the limit is 64"},
		{"an empty batch", "/v1/put-batch", `{}`, nil, 400, "jobs: at least one is required; the limit is 1000"},
		{"a batch of 1,001", "/v1/put-batch", jobsJSON(1001, `{"queue":"a"}`), nil, 400,
			"jobs: 1001 entries; the limit is 1000"},
		{"a batch above 4 MiB", "/v1/put-batch", jobsJSON(5, `{"queue":"a","text":"`+strings.Repeat("x", 1<<20)+`"}`), nil,
			400, "bytes; the limit is 4194304"},
		{"no queues", "/v1/reserve", `{}`, nil, 400, "queues: at least one is required; the limit is 64"},
		{"a queue twice", "/v1/reserve", `{"queues":["a","b","a"]}`, nil, 400, "queues[2]: the queue is named twice"},
		{"1,001 jobs", "/v1/reserve", `{"queues":["a"],"maxJobs":1001}`, nil, 400,
			"maxJobs: 1001 is out of range: 1 to 1000"},
		{"a negative page", "/v1/list", `{"queue":"a","pageSize":-1}`, nil, 400, "pageSize: -1 is out of range: 1 to 1000"},
		{"a forged page token", "/v1/list", `{"queue":"a","pageToken":"AAAA"}`, nil, 400,
			"pageToken: not a token of this list"},
		{"a forged page token of queues", "/v1/list-queues", `{"pageToken":"%%%"}`, nil, 400,
			"pageToken: not a token of this list"},
		{"redrive of nothing", "/v1/redrive", `{"queue":"a"}`, nil, 400, "ids: ids or max is required"},
		{"redrive of both", "/v1/redrive", `{"queue":"a","ids":["x"],"max":1}`, nil, 400, "max: give either ids or max"},
		{"redrive of a million", "/v1/redrive", `{"queue":"a","max":1000000}`, nil, 400,
			"max: 1000000 is out of range: 1 to 100000"},
	}
}

// badFloods are requests of so many elements that they are refused before anything is made of them.
func badFloods() []abuse {
	var out []abuse
	for _, c := range floods() {
		if c.path == "" {
			continue // it has a stream of its own
		}
		_, want, _ := strings.Cut(c.want, ": ")
		out = append(out,
			abuse{"a flood of " + c.name, c.path, c.json, nil, 400, want},
			abuse{"a flood of " + c.name + " in protobuf", c.path, string(c.binary),
				[]string{"Content-Type", "application/proto"}, 400, want},
		)
	}
	return out
}

// badLeases are leases that are none.
func badLeases() []abuse {
	lease := wire.FormatLease(leaseOfNothing())
	return []abuse{
		{"no lease", "/v1/ack", `{}`, nil, 400, "lease: a lease is required"},
		{"a lease of one's own", "/v1/ack", `{"lease":"let me in"}`, nil, 400, "lease: not a lease"},
		{"a lease cut short", "/v1/extend", `{"lease":"` + lease[:len(lease)-2] + `"}`, nil, 400, "lease: not a lease"},
		{"a lease of 1 MiB", "/v1/ack", `{"lease":"` + strings.Repeat("A", 1<<20) + `"}`, nil, 400, "lease: not a lease"},
		{"a lease of a job that never was", "/v1/ack", `{"lease":"` + lease + `"}`, nil, 400, `"reason":"STALE_LEASE"`},
		{"dead and a delay", "/v1/nack", `{"lease":"` + lease + `","dead":true,"delay":"1s"}`, nil, 400,
			"delay: a job that is to be dead has no delay"},
	}
}

// badSettings are settings that make no sense.
func badSettings() []abuse {
	return []abuse{
		{"a queue of 99 partitions", "/v1/create-queue", `{"queue":"p","partitions":99}`, nil, 400,
			"partitions: 99 is out of range: 1 to 3"},
		{"a limit below the partitions", "/v1/create-queue", `{"queue":"p","partitions":3,"settings":{"maxJobs":2}}`, nil,
			400, "settings.maxJobs: 2 is below the number of partitions, 3"},
		{"a policy without a mode", "/v1/create-queue", `{"queue":"p","settings":{"overdue":{}}}`, nil, 400,
			"settings.overdue.mode: want one of FIRE, SPREAD, DROP"},
		{"spread without a period", "/v1/create-queue", `{"queue":"p","settings":{"overdue":{"mode":"SPREAD"}}}`, nil, 400,
			"settings.overdue.period: it goes with SPREAD"},
		{"an update of nothing", "/v1/update-queue", `{"queue":"a"}`, nil, 400, "settings: at least one setting is required"},
		{"an update of no queue", "/v1/update-queue", `{"queue":"nix","settings":{"ttr":"1m"}}`, nil, 404,
			`"reason":"QUEUE_NOT_FOUND"`},
		{"purge of an ended state", "/v1/purge-queue", `{"queue":"a","states":["ACKED"]}`, nil, 400,
			"states[0]: want one of DELAYED"},
	}
}

// bombs are requests that are small until they are decompressed.
func bombs(t *testing.T) []abuse {
	t.Helper()
	return []abuse{
		{"a bomb of 1 GiB", "/v1/put", zeros(t, 64), []string{"Content-Encoding", "gzip", "Content-Type", "application/json"},
			400, "request: more than 8388608 bytes when decompressed"},
		{"a bomb in protobuf", "/v1/put", zeros(t, 16),
			[]string{"Content-Encoding", "gzip", "Content-Type", "application/proto"}, 400,
			"request: more than 8388608 bytes when decompressed"},
	}
}

// TestAbuse goes through the tables of malformed and abusive requests. Each is answered with the
// code of its reason, in words that name the field and, where there is one, the limit; and none
// leaves anything behind.
func TestAbuse(t *testing.T) {
	s := serve(t)
	all := slices.Concat(badForm(), badTypes(), badNames(), badTimes(), badSizes(), badFloods(), badLeases(),
		badSettings(), bombs(t))
	if len(all) < 60 {
		t.Errorf("only %d requests", len(all))
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			s.t = t
			headers := c.headers
			if len(headers) == 0 {
				headers = []string{"Content-Type", "application/json"}
			}
			got := s.send(http.MethodPost, c.path, c.body, headers...)
			if got.status != c.status || !strings.Contains(got.body, c.want) {
				t.Errorf("%d %s\nwant %d and %s", got.status, got.body, c.status, c.want)
			}
			if !strings.Contains(got.body, `"type":"google.rpc.ErrorInfo"`) ||
				!strings.Contains(got.body, `"outcome":"NOT_APPLIED"`) {
				t.Errorf("no reason in %s", got.body)
			}
			if len(got.body) > 2500 {
				t.Errorf("the answer has %d bytes", len(got.body))
			}
		})
	}
	s.t = t
	if got := s.post("/v1/list-queues", ""); !strings.HasPrefix(got.body, `{"queues":[],"nextPageToken":"",`) {
		t.Errorf("something was left behind: %s", got.body)
	}
}
