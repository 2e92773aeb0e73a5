package rpc

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
)

// serveKeys serves a node that writes the format of keys, and a queue "wide" of three partitions.
func serveKeys(t *testing.T, change ...func(*Config)) *served {
	t.Helper()
	s := serve(t, change...)
	s.node.Format = fsm.KeysFormat
	s.want("/v1/create-queue", `{"queue":"wide","partitions":3}`, 200, `"wide"`)
	return s
}

// want makes a call, and fails the test unless it has the status and the answer has all texts.
func (s *served) want(path, body string, status int, texts ...string) answered {
	s.t.Helper()
	got := s.post(path, body)
	if got.status != status {
		s.t.Errorf("%s %s: status %d, want %d: %s", path, body, got.status, status, got.body)
	}
	for _, text := range texts {
		if !strings.Contains(got.body, text) {
			s.t.Errorf("%s %s: %s is not in %s", path, body, text, got.body)
		}
	}
	return got
}

// shardOf returns the shard that an answer's witness names.
func shardOf(t *testing.T, a answered) string {
	t.Helper()
	m := regexp.MustCompile(`"shard":(\d+)`).FindStringSubmatch(a.body)
	if m == nil {
		t.Fatalf("no shard is in %s", a.body)
	}
	return m[1]
}

// TestPutsOnExistingJobs: each choice does what it says, and answers what became of the job.
func TestPutsOnExistingJobs(t *testing.T) {
	s := serveKeys(t)
	put := func(fields string, status int, texts ...string) {
		t.Helper()
		s.want("/v1/put", `{"queue":"q","id":"a","delay":"1h",`+fields+`}`, status, texts...)
	}
	put(`"text":"one"`, 200, `"created":true`, `"replaced":false`, `"version":"1"`)
	put(`"text":"one"`, 200, `"created":false`, `"replaced":false`, `"version":"0"`)
	put(`"text":"one","onExisting":"RETURN"`, 200, `"created":false`)
	put(`"text":"two","onExisting":"RETURN"`, 409, `JOB_EXISTS`)
	put(`"text":"two","onExisting":"KEEP"`, 200, `"created":false`, `"replaced":false`, `"version":"1"`)
	s.want("/v1/get", `{"queue":"q","id":"a"}`, 200, `"text":"one"`, `"version":"1"`)
	put(`"text":"two","onExisting":"REPLACE"`, 200, `"created":false`, `"replaced":true`, `"version":"2"`)
	s.want("/v1/get", `{"queue":"q","id":"a"}`, 200, `"text":"two"`, `"version":"2"`)
	put(`"text":"3","onExisting":"REPLACE","ifVersion":1`, 400, `"reason":"VERSION_CHANGED"`, `"version":"2"`,
		`the job has version 2`, `"outcome":"NOT_APPLIED"`)
	put(`"text":"3","onExisting":"NEXT","ifVersion":2`, 200, `"replaced":true`, `"version":"3"`)
	s.want("/v1/put", `{"queue":"q","id":"never","onExisting":"REPLACE","ifVersion":1}`, 400, `VERSION_CHANGED`,
		`no job with this id is held`, `"version":"0"`)
	batch := s.want("/v1/put-batch",
		`{"jobs":[{"queue":"q","id":"a","text":"4","onExisting":"REPLACE","ifVersion":1}]}`, 200, `"reason":"VERSION_CHANGED"`)
	if !strings.Contains(batch.body, `"version":"3"`) {
		t.Errorf("the entry of a batch has no version: %s", batch.body)
	}
	// It is due by now, at the latest 10 ms after its first put.
	put(`"text":"due","onExisting":"REPLACE","maxWait":"0.001s"`, 200, `"version":"4"`)
	got := s.want("/v1/reserve", `{"queues":["q"],"wait":"5s"}`, 200, `"text":"due"`, `"version":"4"`)
	put(`"text":"5","onExisting":"REPLACE"`, 400, `JOB_RESERVED`, `with onExisting NEXT instead of REPLACE`)
	put(`"text":"next","onExisting":"NEXT"`, 200, `"replaced":true`, `"version":"5"`, `"state":"RESERVED"`)
	s.want("/v1/get", `{"queue":"q","id":"a"}`, 200, `"version":"4"`, `"next":{"version":"5","dueAt":"`)
	s.want("/v1/list", `{"queue":"q","state":"RESERVED"}`, 200, `"next":{"version":"5","dueAt":"`)
	lease := regexp.MustCompile(`"lease":"([^"]*)"`).FindStringSubmatch(got.body)
	if lease == nil {
		t.Fatal(got.body)
	}
	s.want("/v1/ack", `{"lease":"`+lease[1]+`"}`, 200)
	s.want("/v1/get", `{"queue":"q","id":"a"}`, 200, `"text":"next"`, `"version":"5"`, `"state":"DELAYED"`)
}

// TestRepeatedReplace: a repeat under the same request id replaces nothing twice.
func TestRepeatedReplace(t *testing.T) {
	s := serveKeys(t)
	put := `{"queue":"q","id":"a","delay":"1h","text":"x","onExisting":"REPLACE","requestId":"r"}`
	s.want("/v1/put", `{"queue":"q","id":"a","delay":"1h"}`, 200)
	for range 2 {
		s.want("/v1/put", put, 200, `"replaced":true`, `"version":"2"`)
	}
	s.want("/v1/get", `{"queue":"q","id":"a"}`, 200, `"version":"2"`)
}

// TestWrongKeyFields: each wrong field is named with its limit, and nothing is put.
func TestWrongKeyFields(t *testing.T) {
	s := serveKeys(t)
	for fields, want := range map[string]string{
		`"key":"` + strings.Repeat("k", 129) + `"`:        `key: 129 bytes; the limit is 128`,
		`"onExisting":"KEEP"`:                             `onExisting: KEEP needs an id`,
		`"onExisting":"REPLACE"`:                          `onExisting: REPLACE needs an id`,
		`"onExisting":"NEXT"`:                             `onExisting: NEXT needs an id`,
		`"onExisting":"REPLACED","id":"a"`:                `onExisting: `,
		`"onExisting":7,"id":"a"`:                         `onExisting: want one of RETURN, KEEP, REPLACE, NEXT, not 7`,
		`"maxWait":"1s","id":"a"`:                         `maxWait: it needs onExisting REPLACE or NEXT`,
		`"maxWait":"1s","id":"a","onExisting":"KEEP"`:     `maxWait: it needs onExisting REPLACE or NEXT`,
		`"ifVersion":1,"id":"a"`:                          `ifVersion: it needs onExisting REPLACE or NEXT`,
		`"ifVersion":1,"id":"a","onExisting":"KEEP"`:      `ifVersion: it needs onExisting REPLACE or NEXT`,
		`"maxWait":"0s","id":"a","onExisting":"NEXT"`:     `maxWait: 0s is out of range: 1ms to 100y`,
		`"maxWait":"36600d","id":"a","onExisting":"NEXT"`: `maxWait: 878400h is out of range: 1ms to 100y`,
	} {
		s.want("/v1/put", `{"queue":"q",`+fields+`}`, http.StatusBadRequest, want)
	}
	for path, more := range map[string]string{"get": ``, "cancel": ``, "reschedule": `,"delay":"1s"`} {
		s.want("/v1/"+path, `{"queue":"q","id":"a","key":"`+strings.Repeat("k", 129)+`"`+more+`}`, http.StatusBadRequest,
			`key: 129 bytes; the limit is 128`)
	}
	s.want("/v1/put", `{"queue":"q","key":"`+strings.Repeat("k", 128)+`"}`, 200)
	s.want("/v1/put", `{"queue":"q","key":""}`, 200)
	raw := s.post("/q/q?key=%ff", "x")
	if raw.status != http.StatusBadRequest || !strings.Contains(raw.body, "key: not valid UTF-8") {
		t.Errorf("%d %s", raw.status, raw.body)
	}
}

// TestRefusedKeys: a queue that takes no keys refuses them by the name of the field and the setting.
func TestRefusedKeys(t *testing.T) {
	s := serveKeys(t)
	s.want("/v1/create-queue", `{"queue":"q","settings":{"noKeys":true}}`, 200)
	s.want("/v1/put", `{"queue":"q","key":"k"}`, http.StatusBadRequest, `"reason":"INVALID"`, `"field":"key"`, `noKeys`)
	s.want("/v1/put", `{"queue":"q"}`, 200)
}

// TestKeyOfAnotherJob: in a queue of one partition an id is unique, and a put of it with another key
// is told so.
func TestKeyOfAnotherJob(t *testing.T) {
	s := serveKeys(t)
	s.want("/v1/put", `{"queue":"q","id":"a","key":"k1","dueAt":"2099-01-01T00:00:00Z"}`, 200)
	for _, choice := range []string{"RETURN", "KEEP", "REPLACE", "NEXT"} {
		s.want("/v1/put", `{"queue":"q","id":"a","key":"k2","dueAt":"2099-01-02T00:00:00Z","onExisting":"`+choice+`"}`, 409,
			`a job with this id exists: key differs`)
	}
}

// keylessNode answers queries as a node before fsm.KeysFormat does: it does not read their keys.
type keylessNode struct{ *backendtest.Node }

func (n keylessNode) Query(ctx context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
	if job, ok := q.(*fsm.JobQuery); ok {
		q = &fsm.JobQuery{Queue: job.Queue, ID: job.ID, Ended: job.Ended}
	}
	return n.Node.Query(ctx, shard, q)
}

// TestKeysBeforeTheirFormat: until all nodes know keys, a call that needs them is refused with the
// name of the field. Reads leave the key out, and do not find a job without it.
func TestKeysBeforeTheirFormat(t *testing.T) {
	s := serve(t, func(c *Config) { c.Node = keylessNode{c.Node.(*backendtest.Node)} })
	s.node.Format = fsm.KeysFormat - 1
	s.want("/v1/put", `{"queue":"q","id":"a","delay":"1h"}`, 200, `"version":"1"`)
	for call, field := range map[string]string{
		`put {"queue":"q","key":"k"}`:                                               "key",
		`put {"queue":"q","id":"a","onExisting":"KEEP"}`:                            "onExisting",
		`cancel {"queue":"q","id":"a","key":"k"}`:                                   "key",
		`reschedule {"queue":"q","id":"a","key":"k","delay":"1s"}`:                  "key",
		`put {"queue":"q","id":"a","onExisting":"REPLACE","maxWait":"1s"}`:          "onExisting",
		`put {"queue":"q","id":"a","key":"k","onExisting":"REPLACE","ifVersion":1}`: "key",
	} {
		method, body, _ := strings.Cut(call, " ")
		s.want("/v1/"+method, body, http.StatusNotImplemented, `"reason":"UNIMPLEMENTED"`, `"field":"`+field+`"`,
			field+`: not all nodes run a version that knows this field: upgrade all of them first`)
	}
	s.want("/v1/get", `{"queue":"q","id":"a"}`, 200)
	s.want("/v1/get", `{"queue":"q","id":"a","key":"k"}`, 404, `there is no such job`)
}

// TestRawPutWithKey: the raw route takes the fields as parameters, and shows a consumer the key.
func TestRawPutWithKey(t *testing.T) {
	s := serveKeys(t)
	put := func(query string, status int, text string) {
		t.Helper()
		if got := s.post("/q/raw?"+query, "x"); got.status != status || !strings.Contains(got.body, text) {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
	put("id=a&key=kunde%20%C3%A9&delay=1h", 200, `"version":"1"`)
	put("id=a&key=kunde%20%C3%A9&onExisting=REPLACE&maxWait=1h&ifVersion=1", 200, `"version":"2"`)
	put("id=a&key=kunde%20%C3%A9&onExisting=REPLACE&ifVersion=1", 400, `VERSION_CHANGED`)
	put("id=a&onExisting=replace", 400, `onExisting: want one of RETURN, KEEP, REPLACE, NEXT, not replace`)
	put("id=a&onExisting=UNSPECIFIED", 400, `onExisting: want one of`)
	put("id=a&onExisting=REPLACE&ifVersion=-1", 400, `ifVersion: want a whole number from 0 to 18446744073709551615, not -1`)
	put("id=a&onExisting=REPLACE&maxWait=soon", 400, `maxWait: `)
	got := s.send(http.MethodGet, "/q/raw?wait=1s", "")
	if got.header.Get("Belfry-Key") != "kunde%20%C3%A9" || got.header.Get("Belfry-Version") != "2" {
		t.Errorf("%v", got.header)
	}
}

// TestPlacesOfKeyedJobs: a key says in which partition its jobs are, whatever their ids and however
// they are put. The shards of these keys must never change.
func TestPlacesOfKeyedJobs(t *testing.T) {
	s := serveKeys(t)
	var got []string
	for _, key := range []string{"a", "b", "customer-42", "customer-43", "ärger", "1-7"} {
		first := shardOf(t, s.want("/v1/put", `{"queue":"wide","key":"`+key+`","id":"x"}`, 200, `"created":true`))
		for _, put := range []string{
			`{"queue":"wide","key":"` + key + `"}`, `{"queue":"wide","key":"` + key + `","requestId":"` + key + `"}`,
			`{"queue":"wide","key":"` + key + `","id":"other"}`,
		} {
			if other := shardOf(t, s.want("/v1/put", put, 200, `"created":true`)); other != first {
				t.Errorf("%s is in shard %s, an earlier job of its key in %s", put, other, first)
			}
		}
		for _, body := range []string{
			`{"queue":"wide","id":"x","key":"` + key + `"}`,
		} {
			if other := shardOf(t, s.want("/v1/get", body, 200, `"key":"`+key+`"`)); other != first {
				t.Errorf("%s is answered by shard %s, not by %s", body, other, first)
			}
		}
		got = append(got, first)
	}
	if want := "1 1 0 2 0 1"; strings.Join(got, " ") != want {
		t.Errorf("the keys are in shards %s, want %s", strings.Join(got, " "), want)
	}
}

// TestKeyedPutsStayInTheirPartition: a put with a key is never offered to another partition, since
// the limits of the key hold in its own.
func TestKeyedPutsStayInTheirPartition(t *testing.T) {
	s := serveKeys(t)
	s.want("/v1/update-queue", `{"queue":"wide","settings":{"maxJobs":3}}`, 200)
	s.want("/v1/put", `{"queue":"wide","key":"k"}`, 200)
	s.want("/v1/put", `{"queue":"wide","key":"k"}`, 429, `QUEUE_FULL`)
	s.want("/v1/put", `{"queue":"wide"}`, 200)
}

// elsewhere returns a key whose jobs are not in the shard of an unkeyed job with the id.
func (s *served) elsewhere(id string) (key string) {
	s.t.Helper()
	for i := range 100 {
		key = fmt.Sprint("key", i)
		if node.PartitionOf(key, 3) != node.PartitionOf(id, 3) {
			return key
		}
	}
	s.t.Fatal("all keys are in one partition")
	return ""
}

// TestKeyedJobsAreFound: Get, Cancel, Reschedule and Redrive find a job with a key in any partition,
// with its key and without it.
func TestKeyedJobsAreFound(t *testing.T) {
	s := serveKeys(t)
	key := s.elsewhere("a")
	with := `,"key":"` + key + `"`
	for _, key := range []string{"", with} {
		s.want("/v1/put", `{"queue":"wide","id":"a","delay":"1h","again":true`+with+`}`, 200, `"created":true`)
		s.want("/v1/get", `{"queue":"wide","id":"a"`+key+`}`, 200, `"id":"a"`, with[1:])
		s.want("/v1/get", `{"queue":"wide","id":"a","stale":true`+key+`}`, 200, `"id":"a"`)
		s.want("/v1/reschedule", `{"queue":"wide","id":"a","delay":"2h"`+key+`}`, 200, `"state":"DELAYED"`)
		s.want("/v1/cancel", `{"queue":"wide","id":"a"`+key+`}`, 200, `"state":"DELAYED"`)
		s.want("/v1/cancel", `{"queue":"wide","id":"a"`+key+`}`, 404, `it is CANCELLED`, `"state":"CANCELLED"`)
		s.want("/v1/get", `{"queue":"wide","id":"a"`+key+`}`, 404, `it is CANCELLED since`)
		s.want("/v1/get", `{"queue":"wide","id":"a","ended":true`+key+`}`, 200, `"state":"CANCELLED"`, with[1:], `"version":"0"`)
	}
	s.want("/v1/get", `{"queue":"wide","id":"a","key":"other"}`, 404, `there is no such job`)
	s.want("/v1/cancel", `{"queue":"wide","id":"never"}`, 404, `there is no such job`)
}

// TestHeldJobBeforeAnEndedOne: a job that is held is found although a job of its id, which had no key,
// has ended.
func TestHeldJobBeforeAnEndedOne(t *testing.T) {
	s := serveKeys(t)
	s.want("/v1/put", `{"queue":"wide","id":"a","delay":"1h"}`, 200)
	s.want("/v1/cancel", `{"queue":"wide","id":"a"}`, 200)
	s.want("/v1/put", `{"queue":"wide","id":"a","delay":"1h","key":"`+s.elsewhere("a")+`"}`, 200, `"created":true`)
	s.want("/v1/get", `{"queue":"wide","id":"a","ended":true}`, 200, `"state":"DELAYED"`)
	s.want("/v1/reschedule", `{"queue":"wide","id":"a","delay":"2h"}`, 200)
}

// TestJobOfTheIDComesFirst: a job without a key is found before one of the same id with a key.
func TestJobOfTheIDComesFirst(t *testing.T) {
	s := serveKeys(t)
	key := s.elsewhere("a")
	s.want("/v1/put", `{"queue":"wide","id":"a","delay":"1h","text":"keyed","key":"`+key+`"}`, 200)
	s.want("/v1/put", `{"queue":"wide","id":"a","delay":"1h","text":"bare"}`, 200, `"created":true`)
	s.want("/v1/get", `{"queue":"wide","id":"a"}`, 200, `"text":"bare"`)
	s.want("/v1/cancel", `{"queue":"wide","id":"a"}`, 200)
	s.want("/v1/get", `{"queue":"wide","id":"a"}`, 200, `"text":"keyed"`)
}

// TestRedriveOfKeyedJobs: dead jobs are found by their ids, whatever their keys, and a repeat moves
// none twice.
func TestRedriveOfKeyedJobs(t *testing.T) {
	s := serveKeys(t)
	b := s.elsewhere("a") // an id of another partition
	for _, job := range []string{`"id":"a","key":"` + s.elsewhere("a") + `"`, `"id":"` + b + `"`} {
		s.want("/v1/put", `{"queue":"wide",`+job+`}`, 200)
	}
	for range 2 {
		got := s.want("/v1/reserve", `{"queues":["wide"]}`, 200)
		lease := regexp.MustCompile(`"lease":"([^"]*)"`).FindStringSubmatch(got.body)
		if lease == nil {
			t.Fatal(got.body)
		}
		s.want("/v1/nack", `{"lease":"`+lease[1]+`","dead":true}`, 200, `"DEAD"`)
	}
	for range 2 {
		s.want("/v1/redrive", `{"queue":"wide","ids":["a","`+b+`","a"],"requestId":"r"}`, 200, `"moved":2`)
	}
	s.want("/v1/redrive", `{"queue":"wide","ids":["a"]}`, 404)
}

// TestRepeatsThatAskSeveralPartitions: a call without a key that was carried out in another partition
// is answered from memory when it is repeated, although a job of the same id, with another key, has
// come since. The job in the id's own partition costs no call of the others.
func TestRepeatsThatAskSeveralPartitions(t *testing.T) {
	s := serveKeys(t)
	// The keys of two partitions other than that of the id, the one with the higher number first.
	keys := map[uint32]string{}
	for i := range 100 {
		key := fmt.Sprint("key", i)
		keys[node.PartitionOf(key, 3)] = key
	}
	home := node.PartitionOf("a", 3)
	low, high := (home+1)%3, (home+2)%3
	if low > high {
		low, high = high, low
	}
	put := func(key string) {
		t.Helper()
		s.want("/v1/put", `{"queue":"wide","id":"a","delay":"1h","key":"`+key+`"}`, 200, `"created":true`)
	}
	put(keys[high])
	cancel := `{"queue":"wide","id":"a","requestId":"r"}`
	first := s.want("/v1/cancel", cancel, 200, `"state":"DELAYED"`)
	put(keys[low])
	if again := s.want("/v1/cancel", cancel, 200, `"state":"DELAYED"`); shardOf(t, again) != shardOf(t, first) {
		t.Errorf("the repeat was carried out elsewhere: %s, first %s", again.body, first.body)
	}
	s.want("/v1/get", `{"queue":"wide","id":"a"}`, 200, `"key":"`+keys[low]+`"`)
	// The same id of a request with other content is refused.
	s.want("/v1/cancel", `{"queue":"wide","id":"a","force":true,"requestId":"r"}`, 400, `requestId`)
}

// TestJobsAreNotMissingWhileAPartitionIsAway: a job that may be in a shard without a leader is not
// reported missing.
func TestJobsAreNotMissingWhileAPartitionIsAway(t *testing.T) {
	s := serveKeys(t)
	key := s.elsewhere("a")
	away := node.ShardOf("wide", node.PartitionOf(key, 3), 3)
	s.node.Fail = func(shard uint32) error {
		if shard == away {
			return nodeNoLeader()
		}
		return nil
	}
	for path, more := range map[string]string{"get": ``, "cancel": ``, "reschedule": `,"delay":"1s"`} {
		s.want("/v1/"+path, `{"queue":"wide","id":"a"`+more+`}`, http.StatusServiceUnavailable, `NO_LEADER`)
	}
}

// TestKeysInAllProtocols: the methods on messages carry the fields, too.
func TestKeysInAllProtocols(t *testing.T) {
	s := serveKeys(t)
	for name, options := range map[string][]connect.ClientOption{
		"connect": nil, "connect with JSON": {connect.WithProtoJSON()}, "gRPC": {connect.WithGRPC()},
		"gRPC-Web": {connect.WithGRPCWeb()},
	} {
		q := belfryv1connect.NewQueueServiceClient(h2c(t), s.url, options...)
		put := &belfryv1.PutRequest{
			Queue: "proto", Id: name, Key: "k", OnExisting: belfryv1.OnExisting_ON_EXISTING_REPLACE,
			MaxWait: durationpb.New(time.Hour), When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(time.Minute)},
		}
		if res, err := q.Put(t.Context(), put); err != nil || !res.GetCreated() || res.GetVersion() != 1 {
			t.Fatalf("%s: %v, %v", name, res, err)
		}
		put.IfVersion = 1
		if res, err := q.Put(t.Context(), put); err != nil || !res.GetReplaced() || res.GetVersion() != 2 {
			t.Fatalf("%s: %v, %v", name, res, err)
		}
		_, err := q.Put(t.Context(), put)
		if f, ok := fault.FromConnect(err); !ok || f.Version == nil || *f.Version != 2 {
			t.Errorf("%s: %v", name, err)
		}
		res, err := q.Get(t.Context(), &belfryv1.GetRequest{Queue: "proto", Id: name, Key: "k"})
		if err != nil || res.GetJob().GetKey() != "k" || res.GetJob().GetVersion() != 2 {
			t.Errorf("%s: %v, %v", name, res, err)
		}
	}
}
