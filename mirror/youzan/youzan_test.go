package youzan

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"
)

// What a real server wrote.
const orderHex = "85 a131 a5 6f72646572 a132 ab 3135373032333938333231 a133 ce 6b018336 a134 78 a135 b1 " +
	"7b22756964223a2031303832393337387d"

func order() Job {
	return Job{Topic: "order", ID: "15702398321", Due: 1795261238, TTR: 120, Body: `{"uid": 10829378}`}
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestNames(t *testing.T) {
	for _, tt := range []struct {
		names         Names
		bucket, queue string
	}{
		{DefaultNames(), "dq_bucket_12", "dq_queue_order%d"},
		{Names{Bucket: "%d", Queue: "%s"}, "12", "order%d"},
		{Names{Bucket: "b:%d:x", Queue: "q:%s:x"}, "b:12:x", "q:order%d:x"},
	} {
		if err := tt.names.Check(); err != nil {
			t.Errorf("%+v: %v", tt.names, err)
		}
		if bucket, queue := tt.names.BucketKey(12), tt.names.QueueKey("order%d"); bucket != tt.bucket || queue != tt.queue {
			t.Errorf("%+v names %s and %s, want %s and %s", tt.names, bucket, queue, tt.bucket, tt.queue)
		}
	}
}

func TestNamesCheckRefuses(t *testing.T) {
	for _, tt := range []struct {
		names Names
		want  string
	}{
		{Names{}, `"" of buckets must have one %d`},
		{Names{Bucket: "dq_bucket", Queue: "%s"}, `"dq_bucket" of buckets must have one %d`},
		{Names{Bucket: "dq_%s", Queue: "%s"}, `"dq_%s" of buckets`},
		{Names{Bucket: "dq_%03d", Queue: "%s"}, `"dq_%03d" of buckets`},
		{Names{Bucket: "dq_%d_%d", Queue: "%s"}, `"dq_%d_%d" of buckets`},
		{Names{Bucket: "dq_%d%%", Queue: "%s"}, `"dq_%d%%" of buckets`},
		{Names{Bucket: "%d", Queue: "dq"}, `"dq" of queues must have one %s`},
		{Names{Bucket: "%d", Queue: "%v"}, `"%v" of queues`},
	} {
		if err := tt.names.Check(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error is %v, want one that says %q", tt.names, err, tt.want)
		}
	}
}

// TestJob reads and writes values as servers write them.
func TestJob(t *testing.T) {
	with := func(change func(*Job)) Job {
		j := order()
		change(&j)
		return j
	}
	const head, tail = "85 a131 a5 6f72646572 a132 ab 3135373032333938333231 a133 ce 6b018336 a134",
		" a135 b1 7b22756964223a2031303832393337387d"
	for _, tt := range []struct {
		bytes string
		want  Job
	}{
		{orderHex, order()},
		{head + "cd 012c" + tail, with(func(j *Job) { j.TTR = 300 })},
		{head + "ce 00015180" + tail, with(func(j *Job) { j.TTR = 86400 })},
		{head + "78 a135 a0", with(func(j *Job) { j.Body = "" })},
		{head + "78 a135 bf" + strings.Repeat("78", 31), with(func(j *Job) { j.Body = strings.Repeat("x", 31) })},
		{head + "78 a135 d920" + strings.Repeat("78", 32), with(func(j *Job) { j.Body = strings.Repeat("x", 32) })},
		{head + "78 a135 d928" + strings.Repeat("78", 40), with(func(j *Job) { j.Body = strings.Repeat("x", 40) })},
		{head + "78 a135 d9ff" + strings.Repeat("78", 255), with(func(j *Job) { j.Body = strings.Repeat("x", 255) })},
		{head + "78 a135 da0100" + strings.Repeat("78", 256), with(func(j *Job) { j.Body = strings.Repeat("x", 256) })},
		{head + "78 a135 da012c" + strings.Repeat("78", 300), with(func(j *Job) { j.Body = strings.Repeat("x", 300) })},
		{head + "78 a135 daffff" + strings.Repeat("78", 65535), with(func(j *Job) { j.Body = strings.Repeat("x", 65535) })},
		{head + "78 a135 db00010000" + strings.Repeat("78", 65536), with(func(j *Job) {
			j.Body = strings.Repeat("x",
				65536)
		})},
		{head + "78 a135 a2ff00", with(func(j *Job) { j.Body = "\xff\x00" })},
		{"85 a131a0 a132a0 a13300 a13400 a135a0", Job{}},
	} {
		value := unhex(t, tt.bytes)
		got, err := Parse(value)
		if err != nil || got != tt.want {
			t.Errorf("%.200s is read as %.200v, %v; want %.200v", tt.bytes, got, err, tt.want)
		}
		if again, err := tt.want.Append([]byte("x")); err != nil || string(again) != "x"+string(value) {
			t.Errorf("%.200v is written as %.200x, %v; want x and %.200x", tt.want, again, err, value)
		}
	}
}

// TestNumbers reads and writes a number at each end of each form.
func TestNumbers(t *testing.T) {
	for _, tt := range []struct {
		bytes string
		want  int64
	}{
		{"00", 0},
		{"7f", 127},
		{"cc80", 128},
		{"ccff", 255},
		{"cd0100", 256},
		{"cdffff", 65535},
		{"ce00010000", 65536},
		{"ceffffffff", math.MaxUint32},
		{"cf0000000100000000", math.MaxUint32 + 1},
		{"cf7fffffffffffffff", math.MaxInt64},
		{"ff", -1},
		{"e0", -32},
		{"d0df", -33},
		{"d080", -128},
		{"d1ff7f", -129},
		{"d18000", -32768},
		{"d2ffff7fff", -32769},
		{"d280000000", math.MinInt32},
		{"d3ffffffff7fffffff", math.MinInt32 - 1},
		{"d38000000000000000", math.MinInt64},
	} {
		value := unhex(t, tt.bytes)
		r := reader{value: value}
		if got := r.number(); got != tt.want || r.err != nil || r.at != len(value) {
			t.Errorf("%s is read as %d, %v; want %d", tt.bytes, got, r.err, tt.want)
		}
		if got := appendNumber([]byte("x"), tt.want); !bytes.Equal(got, append([]byte("x"), value...)) {
			t.Errorf("%d is written as %x, want x and %s", tt.want, got, tt.bytes)
		}
	}
}

// TestParseTakesOtherForms reads what other writers of msgpack make of the same job.
func TestParseTakesOtherForms(t *testing.T) {
	want := Job{Topic: "t", ID: "i", Due: 100, TTR: 60, Body: "b"}
	for name, value := range map[string]string{
		"another order":      "85 a135a162 a1343c a132a169 a13364 a131a174",
		"map16":              "de0005 a131a174 a132a169 a13364 a1343c a135a162",
		"str8":               "85 d90131d90174 d90132a169 a13364 a1343c a135d90162",
		"str16":              "85 da000131a174 a132da000169 a13364 a1343c a135a162",
		"str32":              "85 a131a174 a132a169 a13364 a1343c a135db0000000162",
		"uint8 and uint16":   "85 a131a174 a132a169 a133cc64 a134cd003c a135a162",
		"uint32 and uint64":  "85 a131a174 a132a169 a133ce00000064 a134cf000000000000003c a135a162",
		"int8 and int16":     "85 a131a174 a132a169 a133d064 a134d1003c a135a162",
		"int32 and int64":    "85 a131a174 a132a169 a133d200000064 a134d3000000000000003c a135a162",
		"the longest of all": "de0005 db0000000131db0000000174 a132a169 a133d30000000000000064 a1343c a135a162",
	} {
		if got, err := Parse(unhex(t, value)); err != nil || got != want {
			t.Errorf("%s: read as %+v, %v", name, got, err)
		}
	}
	want.Body = ""
	if got, err := Parse(unhex(t, "84 a131a174 a132a169 a13364 a1343c")); err != nil || got != want {
		t.Errorf("without a body: read as %+v, %v", got, err)
	}
}

func TestParseRefuses(t *testing.T) {
	const four = "a131a174 a132a169 a13364 a1343c "
	for _, tt := range []struct{ bytes, want string }{
		{"", "0 bytes: 1 bytes are to follow the first 0, 0 are left"},
		{"95", "byte 0, 0x95, begins no map"},
		{"df00000005" + four + "a135a162", "byte 0, 0xdf, begins no map"},
		{"7b22223a317d", "byte 0, 0x7b, begins no map"},
		{"de00", "2 bytes are to follow the first 1, 1 are left"},
		{"80", `key "1" is missing`},
		{"83 a132a169 a13364 a1343c", `key "1" is missing`},
		{"83 a131a174 a13364 a1343c", `key "2" is missing`},
		{"83 a131a174 a132a169 a1343c", `key "3" is missing`},
		{"83 a131a174 a132a169 a13364", `key "4" is missing`},
		{"85" + four + "a134 3c", `key "4" comes twice`},
		{"86" + four + "a135a162 a131a174", `key "1" comes twice`},
		{"deffff" + four + "a135a162 a131a174", `key "1" comes twice`},
		{"85" + four + "a136a162", `no job has a key "6"`},
		{"85" + four + "a5746f706963a162", `no job has a key "topic"`},
		{"85" + four + "a0a162", `no job has a key ""`},
		{"85" + four + "d928" + strings.Repeat("78", 40), `no job has a key "xxxxxxxxxxxxxxxxxxxx"`},
		{"85" + four + "05a162", "byte 15, 0x05, begins no text"},
		{"85" + four, "1 bytes are to follow the first 15, 0 are left"},
		{"85" + four + "a135", "1 bytes are to follow the first 17, 0 are left"},
		{"85" + four + "a135a262", "2 bytes are to follow the first 18, 1 are left"},
		{"85" + four + "a135d9", "1 bytes are to follow the first 18, 0 are left"},
		{"85" + four + "a135daffff78", "65535 bytes are to follow the first 20, 1 are left"},
		{"85" + four + "a135dbffffffff78", "4294967295 bytes are to follow the first 22, 1 are left"},
		{"85" + four + "a135c40162", "byte 17, 0xc4, begins no text"},
		{"85" + four + "a135c0", "byte 17, 0xc0, begins no text"},
		{"85" + four + "a135a16200", "20 bytes: 1 bytes follow its end"},
		{"84 a13107", "byte 3, 0x07, begins no text"},
		{"84 a133a130", "byte 3, 0xa1, begins no whole number"},
		{"84 a133c0", "byte 3, 0xc0, begins no whole number"},
		{"84 a133cb4059000000000000", "byte 3, 0xcb, begins no whole number"},
		{"84 a133ce0000", "4 bytes are to follow the first 4, 2 are left"},
		{"84 a133cf8000000000000000", "9223372036854775808 has more than 63 bits"},
	} {
		got, err := Parse(unhex(t, tt.bytes))
		if err == nil || !strings.Contains(err.Error(), tt.want) || got != (Job{}) {
			t.Errorf("%s is read as %+v, error %v; want one that says %q", tt.bytes, got, err, tt.want)
		}
	}
}

func TestParseRefusesEveryCut(t *testing.T) {
	value := unhex(t, orderHex)
	for n := range value {
		if got, err := Parse(value[:n]); err == nil {
			t.Errorf("cut to %d bytes it is read as %+v", n, got)
		}
	}
}

func TestLongestValue(t *testing.T) {
	const around = len("\x85\xa11\xa0\xa12\xa0\xa13\x00\xa14\x00\xa15\xdb\x00\x00\x00\x00")
	longest := Job{Body: strings.Repeat("x", ValueBytesMax-around)}
	value, err := longest.Append(nil)
	if err != nil || len(value) != ValueBytesMax {
		t.Fatalf("the longest value has %d bytes, want %d: %v", len(value), ValueBytesMax, err)
	}
	if got, err := Parse(value); err != nil || got != longest {
		t.Errorf("the longest value does not survive being read: %v", err)
	}
	tooLong := Job{ID: "long", Body: longest.Body}
	if got, err := tooLong.Append([]byte("x")); err == nil || string(got) != "x" || !strings.Contains(err.Error(),
		`job "long": it takes 16777220 bytes, at most 16777216`) {
		t.Errorf("what is too long is written in %d bytes, %v", len(got), err)
	}
	if _, err := Parse(append(value, 0)); err == nil || !strings.Contains(err.Error(),
		"16777217 bytes: at most 16777216 are read") {
		t.Errorf("what is too long is read, or refused for another reason: %v", err)
	}
}
