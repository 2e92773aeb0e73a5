package mirror

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisson"
)

// TestEntryID pins the id of a known member: another one would bring all entries over a second
// time. Whatever tells entries apart changes it.
func TestEntryID(t *testing.T) {
	member := redisson.Member{Generation: redisson.New, Random: [8]byte{0, 1, 2, 3, 4, 5, 6, 7}, Payload: []byte("hello")}
	v1 := string(member.Append(nil))
	if id := entryID(1, "orders", v1); id != "redisson:03ac0f9b264ad5255eb35073f30932e9" {
		t.Errorf("the id is %s", id)
	}
	ids := map[string]bool{
		entryID(1, "orders", v1): true, entryID(2, "orders", v1): true, entryID(12, "orders", v1): true,
		entryID(1, "orders2", v1):    true,
		entryID(1, "orders", v1+"x"): true, entryID(1, "订单", v1): true, entryID(1, "orders", ""): true,
	}
	if len(ids) != 7 {
		t.Errorf("7 entries have %d ids", len(ids))
	}
}

// TestOrigin reads what it writes, for each format and codec.
func TestOrigin(t *testing.T) {
	for _, generation := range []redisson.Generation{redisson.Old, redisson.New} {
		for codec := redisson.Opaque; codec <= redisson.Bytes; codec++ {
			from := origin{generation: generation, random: [8]byte{0, 0xff, '/', 3, 4, 5, 6, 7}, codec: codec}
			got, came, err := originOf(&client.Job{ID: "redisson:42", Headers: map[string]string{HeaderMember: from.text()}})
			if err != nil || !came || got != from {
				t.Errorf("%s is read as %+v, %v, %v", from.text(), got, came, err)
			}
		}
	}
	if _, came, err := originOf(&client.Job{Headers: map[string]string{"other": "x"}}); came || err != nil {
		t.Errorf("a job without the header: %v, %v", came, err)
	}
	for _, text := range []string{
		"", "new", "new/0001020304050607", "new/00010203040506/opaque", "new/000102030405060708/opaque",
		"new/000102030405060g/opaque",
		"newer/0001020304050607/opaque", "new/0001020304050607/zip", "new/0001020304050607/opaque/",
	} {
		if _, came, err := originOf(&client.Job{ID: "redisson:42",
			Headers: map[string]string{HeaderMember: text}}); came || err == nil || !strings.Contains(err.Error(),
			"job redisson:42") {
			t.Errorf("%q: %v, %v", text, came, err)
		}
	}
}

// TestPayload makes the payload that came again, whatever codec is named now, and one by the codec
// for a job of Belfry's own.
func TestPayload(t *testing.T) {
	came := func(codec redisson.Codec) map[string]string {
		return map[string]string{HeaderMember: origin{generation: redisson.New, codec: codec}.text()}
	}
	for _, test := range []struct {
		name    string
		headers map[string]string
		codec   redisson.Codec
		body    string
		want    string
		fails   bool
	}{
		{"opaque came", came(redisson.Opaque), redisson.JSON, "no json", "no json", false},
		{"opaque came, none named", came(redisson.Opaque), redisson.Opaque, "x", "x", false},
		{"decoded came", came(redisson.Kryo5String), redisson.JSON, "hello", "\x03hell\xef", false},
		{"own", nil, redisson.Kryo5String, "hello", "\x03hell\xef", false},
		{"own, with the headers of one that came", came(redisson.Opaque), redisson.Kryo5String, "hello", "\x03hell\xef",
			false},
		{"own, none named", nil, redisson.Opaque, "hello", "", true},
		{"own, not possible", nil, redisson.JSON, "{", "", true},
	} {
		id := "redisson:42"
		if strings.HasPrefix(test.name, "own") {
			id = "42"
		}
		got, err := payloadOf(&client.Job{ID: id, Headers: test.headers, Body: []byte(test.body)}, test.codec)
		if string(got) != test.want || (err != nil) != test.fails {
			t.Errorf("%s: %q, %v", test.name, got, err)
		}
	}
}

// TestTags tells two jobs of the same id apart.
func TestTags(t *testing.T) {
	at := time.Date(2030, 1, 31, 9, 0, 0, 1, time.UTC)
	first, second := tagOf(&client.Job{ID: "an id", CreatedAt: at}), tagOf(&client.Job{ID: "an id", CreatedAt: at.Add(1)})
	if first == second {
		t.Errorf("both have the tag %q", first)
	}
	if _, id := untag(first); id != "an id" {
		t.Errorf("the id is %q", id)
	}
}

// TestNextBatch takes fewer when a script was slow, and slowly more when it was quick.
func TestNextBatch(t *testing.T) {
	var got []int
	batch := pair.BatchMax
	for _, took := range []time.Duration{0, 4, 7, 11, 50, 200, 200, 200, 200, 1, 1} {
		batch = pair.NextBatch(batch, took*time.Millisecond)
		got = append(got, batch)
	}
	if diff := cmp.Diff([]int{500, 500, 500, 250, 125, 62, 31, 16, 16, 32, 48}, got); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
}
