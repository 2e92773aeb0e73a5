package lmstfy

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What a real server wrote.
const (
	memberHex  = "03006e73310200713103001a0030314d375956354d4338464b3851353159315043383057303030"
	elementHex = "01001a0030314d375956354d43474a395757563047435630303030303030"
	delayedID  = "01M7YV5MC8FK8Q51Y1PC80W000"
	readyID    = "01M7YV5MCGJ9WWV0GCV0000000"

	versionedHex   = "03006e73310200713101001b003130314d3832395154514233594550343630374638593030303030"
	versionedID    = "101M829QTQB3YEP4607F8Y00000"
	versionedValue = `{"body":"bm93","attributes":{"trace":"a\u003cb","x":"\ufffd"}}`
)

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestKeys(t *testing.T) {
	q := Queue{Namespace: "ns1", Name: "q1"}
	got := []string{TimerKey, NamespacesKey, QueuesKey("ns1"), q.ReadyKey(), q.DeadLetterKey(), q.JobKey(delayedID)}
	want := []string{"timer_set", "m/ns", "m/ns/ns1", "q/ns1/q1", "d/ns1/q1", "j/ns1/q1/" + delayedID}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestTimerMember(t *testing.T) {
	for _, tt := range []struct {
		bytes string
		want  TimerMember
	}{
		{memberHex, TimerMember{Namespace: "ns1", Queue: "q1", Tries: 3, ID: delayedID}},
		{versionedHex, TimerMember{Namespace: "ns1", Queue: "q1", Tries: 1, ID: versionedID}},
		{"0100 61 0100 62 ffff 0100 63", TimerMember{Namespace: "a", Queue: "b", Tries: 65535, ID: "c"}},
		{"0100 00 0200 2f2f 0000 0100 ff", TimerMember{Namespace: "\x00", Queue: "//", ID: "\xff"}},
	} {
		member := unhex(t, tt.bytes)
		got, err := ParseTimerMember(member)
		if err != nil || got != tt.want {
			t.Errorf("%s is read as %+v, %v; want %+v", tt.bytes, got, err, tt.want)
		}
		if again, err := tt.want.Append([]byte("x")); err != nil || string(again) != "x"+string(member) {
			t.Errorf("%+v is written as %x, %v; want x and %x", tt.want, again, err, member)
		}
	}
}

func TestElement(t *testing.T) {
	for _, tt := range []struct {
		bytes string
		want  Element
	}{
		{elementHex, Element{Tries: 1, ID: readyID}},
		{"ffff 0100 61", Element{Tries: 65535, ID: "a"}},
		{"0000 0100 61", Element{ID: "a"}},
	} {
		element := unhex(t, tt.bytes)
		got, err := ParseElement(element)
		if err != nil || got != tt.want {
			t.Errorf("%s is read as %+v, %v; want %+v", tt.bytes, got, err, tt.want)
		}
		if again, err := tt.want.Append([]byte("x")); err != nil || string(again) != "x"+string(element) {
			t.Errorf("%+v is written as %x, %v; want x and %x", tt.want, again, err, element)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	parsers := map[string]func([]byte) error{
		"timer member": func(b []byte) error { _, err := ParseTimerMember(b); return err },
		"list element": func(b []byte) error { _, err := ParseElement(b); return err },
	}
	for _, tt := range []struct{ what, bytes, want string }{
		{"timer member", "", "0 bytes: 0 bytes are left for the 2 of the length of the namespace"},
		{"timer member", "01", "1 bytes are left for the 2 of the length of the namespace"},
		{"timer member", "0000 0100 62 0000 0100 63", "the namespace is empty"},
		{"timer member", "0300 6e73", "the namespace is to have 3 bytes, 2 are left"},
		{"timer member", "ffff 61 0100 62 0000 0100 63", "the namespace is to have 65535 bytes, 9 are left"},
		{"timer member", "0100 61 0000 0000 0100 63", "the queue is empty"},
		{"timer member", "0100 61 0900 62 0000 0100 63", "the queue is to have 9 bytes, 6 are left"},
		{"timer member", "0100 61 0100 62 00", "1 bytes are left for the 2 of the tries"},
		{"timer member", "0100 61 0100 62 0000", "0 bytes are left for the 2 of the length of the id"},
		{"timer member", "0100 61 0100 62 0000 0000", "the id is empty"},
		{"timer member", "0100 61 0100 62 0000 0200 63", "the id is to have 2 bytes, 1 are left"},
		{"timer member", "0100 61 0100 62 0000 0100 6363", "12 bytes: 1 bytes follow its end"},
		{"list element", "", "0 bytes: 0 bytes are left for the 2 of the tries"},
		{"list element", "01", "1 bytes are left for the 2 of the tries"},
		{"list element", "0100 01", "1 bytes are left for the 2 of the length of the id"},
		{"list element", "0100 0000", "the id is empty"},
		{"list element", "0100 001a 61", "the id is to have 6656 bytes, 1 are left"},
		{"list element", "0100 0100 6161", "6 bytes: 1 bytes follow its end"},
		{"list element", memberHex, "the id is to have 29550 bytes, 35 are left"},
	} {
		err := parsers[tt.what](unhex(t, tt.bytes))
		if err == nil || !strings.Contains(err.Error(), tt.what) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %q: error is %v, want one that says %q", tt.what, tt.bytes, err, tt.want)
		}
	}
}

func TestParseRefusesEveryCut(t *testing.T) {
	member, element := unhex(t, memberHex), unhex(t, elementHex)
	for n := range member {
		if got, err := ParseTimerMember(member[:n]); err == nil {
			t.Errorf("a member cut to %d bytes is read as %+v", n, got)
		}
	}
	for n := range element {
		if got, err := ParseElement(element[:n]); err == nil {
			t.Errorf("an element cut to %d bytes is read as %+v", n, got)
		}
	}
}

func TestAppendRefuses(t *testing.T) {
	longest := strings.Repeat("x", 65535)
	if b, err := (TimerMember{Namespace: longest, Queue: longest, ID: longest}).Append(nil); err != nil ||
		len(b) != 4*2+3*65535 {
		t.Errorf("the longest member has %d bytes, %v", len(b), err)
	}
	type appender interface{ Append([]byte) ([]byte, error) }
	for _, tt := range []struct {
		value appender
		want  string
	}{
		{TimerMember{Queue: "q", ID: "i"}, "the namespace is empty"},
		{TimerMember{Namespace: "n", ID: "i"}, "the queue is empty"},
		{TimerMember{Namespace: "n", Queue: "q"}, "the id is empty"},
		{TimerMember{Namespace: longest + "x", Queue: "q", ID: "i"}, "the namespace has 65536 bytes, at most 65535"},
		{TimerMember{Namespace: "n", Queue: longest + "x", ID: "i"}, "the queue has 65536 bytes, at most 65535"},
		{TimerMember{Namespace: "n", Queue: "q", ID: longest + "x"}, "the id has 65536 bytes, at most 65535"},
		{Element{Tries: 1}, "the id is empty"},
		{Element{ID: longest + "x"}, "the id has 65536 bytes, at most 65535"},
	} {
		got, err := tt.value.Append([]byte("x"))
		if err == nil || !strings.Contains(err.Error(), tt.want) || string(got) != "x" {
			t.Errorf("appended %q, error is %v, want one that says %q", got, err, tt.want)
		}
	}
}

func TestParseID(t *testing.T) {
	created := time.UnixMilli(1795257717128).UTC()
	for _, tt := range []struct {
		id   string
		want ID
	}{
		{delayedID, ID{Created: created, Delay: time.Hour}},
		{"1" + delayedID, ID{Version: 1, Created: created, Delay: time.Hour}},
		{versionedID, ID{Version: 1, Created: time.UnixMilli(1795373656811).UTC(), Delay: time.Minute}},
		{readyID, ID{Created: created.Add(8 * time.Millisecond)}},
		{"00000000000000000000000000", ID{Created: time.UnixMilli(0).UTC()}},
		{"00000000010000000000000000", ID{Created: time.UnixMilli(1).UTC()}},
		{"0000000000ZZZZZZZZZZZZ0400", ID{Created: time.UnixMilli(0).UTC(), Delay: 1_110_271 * time.Second}},
		{"7ZZZZZZZZZZZZZZZZZZZZZZZZZ", ID{Created: time.UnixMilli(1<<48 - 1).UTC(), Delay: (1<<32 - 1) * time.Second}},
	} {
		if got, err := ParseID(tt.id); err != nil || got != tt.want {
			t.Errorf("%s is read as %+v, %v; want %+v", tt.id, got, err, tt.want)
		}
	}
}

func TestParseIDRefuses(t *testing.T) {
	for _, tt := range []struct{ id, want string }{
		{"", "has 0 characters, want 26 or 27"},
		{delayedID[:25], "has 25 characters"},
		{"11" + delayedID, "has 28 characters"},
		{strings.Repeat("x", 1000), `id "` + strings.Repeat("x", 40) + `" has 1000 characters`},
		{"2" + delayedID, `is of version '2', this program reads '1'`},
		{"0" + delayedID, `is of version '0'`},
		{"81M7YV5MC8FK8Q51Y1PC80W000", "more than the 128 bits"},
		{"1Z1M7YV5MC8FK8Q51Y1PC80W000", "more than the 128 bits"},
		{"01m7YV5MC8FK8Q51Y1PC80W000", "'m', which is no digit"},
		{"O1M7YV5MC8FK8Q51Y1PC80W000", "'O', which is no digit"},
		{"01M7YV5MC8FK8Q51Y1PC80W00U", "'U', which is no digit"},
		{"01M7YV5MC8FK8Q51Y1PC80W0\n0", `'\n', which is no digit`},
		{"01M7YV5MC8FK8Q51Y1PC80W0é", "'Ã', which is no digit"},
	} {
		if got, err := ParseID(tt.id); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q is read as %+v, error %v; want one that says %q", tt.id, got, err, tt.want)
		}
	}
}

func TestBody(t *testing.T) {
	for _, tt := range []struct {
		id, value, body string
		attributes      map[string]string
	}{
		{delayedID, "now", "now", nil},
		{delayedID, "", "", nil},
		{delayedID, `{"body":"bm93"}`, `{"body":"bm93"}`, nil},
		{"1" + delayedID, `{"body":"bm93","attributes":{"trace":"abc"}}`, "now", map[string]string{"trace": "abc"}},
		{versionedID, versionedValue, "now", map[string]string{"trace": "a<b", "x": "\ufffd"}},
		{"1" + delayedID, `{"body":"bm93","attributes":{}}`, "now", map[string]string{}},
		{"1" + delayedID, `{"body":"bm93","attributes":null}`, "now", nil},
		{"1" + delayedID, `{"body":""}` + "\n", "", nil},
		{"1" + delayedID, `{"body":"/wA="}`, "\xff\x00", nil},
	} {
		body, attributes, err := Body(tt.id, []byte(tt.value))
		if err != nil || string(body) != tt.body {
			t.Errorf("%s %q: body %q, %v; want %q", tt.id, tt.value, body, err, tt.body)
		}
		if diff := cmp.Diff(tt.attributes, attributes); diff != "" {
			t.Errorf("%s %q: attributes (-want +got):\n%s", tt.id, tt.value, diff)
		}
	}
}

func TestBodyRefuses(t *testing.T) {
	for _, tt := range []struct{ id, value, want string }{
		{"order-42", "now", "has 8 characters"},
		{"1" + delayedID, "", "EOF"},
		{"1" + delayedID, "now", "invalid character"},
		{"1" + delayedID, `"bm93"`, "cannot unmarshal string"},
		{"1" + delayedID, `null`, "has no body"},
		{"1" + delayedID, `{}`, "has no body"},
		{"1" + delayedID, `{"body":null}`, "has no body"},
		{"1" + delayedID, `{"body":"bm93"`, "unexpected EOF"},
		{"1" + delayedID, `{"body":"bm93"}{}`, "something follows"},
		{"1" + delayedID, `{"body":"bm93"}x`, "something follows"},
		{"1" + delayedID, `{"body":"now"}`, "illegal base64"},
		{"1" + delayedID, `{"body":7}`, "cannot unmarshal number"},
		{"1" + delayedID, `{"body":"bm93","priority":7}`, `unknown field "priority"`},
		{"1" + delayedID, `{"body":"bm93","attributes":["trace"]}`, "cannot unmarshal array"},
		{"1" + delayedID, `{"body":"bm93","attributes":{"trace":7}}`, "cannot unmarshal number"},
	} {
		body, _, err := Body(tt.id, []byte(tt.value))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %q: body %q, error %v; want one that says %q", tt.id, tt.value, body, err, tt.want)
		}
	}
}
