package redisson

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// everyCodec returns all codecs but Opaque.
func everyCodec() []Codec { return []Codec{String, JSON, Kryo5String, RiverString, FSTString, Bytes} }

// checkPair checks that a payload and a body become each other.
func checkPair(t *testing.T, c Codec, payload, body []byte) {
	t.Helper()
	if got, err := c.Encode(body); err != nil || !bytes.Equal(got, payload) {
		t.Errorf("%s writes %.80q as %.80x, %v; want %.80x", c, body, got, err, payload)
	}
	if got, ok := c.Decode(payload); !ok || !bytes.Equal(got, body) {
		t.Errorf("%s reads %.80x as %.80q, %v; want %.80q", c, payload, got, ok, body)
	}
}

func TestStringsOfJava(t *testing.T) {
	for _, v := range readVectors(t).Strings {
		text := unhex(t, v.UTF8)
		checkPair(t, Kryo5String, unhex(t, v.Kryo5), text)
		checkPair(t, RiverString, unhex(t, v.River), text)
		checkPair(t, FSTString, unhex(t, v.FST), text)
		checkPair(t, String, text, text)
		checkPair(t, Bytes, text, text)
	}
}

// TestValuesOfCodecs: what the codecs make of common values.
func TestValuesOfCodecs(t *testing.T) {
	const order = `{"orderId":1001}`
	for _, v := range []struct {
		codec         Codec
		payload, body string
	}{
		{String, "hello", "hello"},
		{String, "", ""},
		{String, "1", "1"},
		{JSON, `"hello"`, `"hello"`},
		{JSON, "1", "1"},
		{JSON, order, order},
		{JSON, `["java.lang.Long",1]`, `["java.lang.Long",1]`},
		{JSON, `"{\"orderId\":1001}"`, `"{\"orderId\":1001}"`},
		{JSON, `{"@class":"com.x.Order","big":["java.lang.Long",7],"id":"A-1"}`,
			`{"@class":"com.x.Order","big":["java.lang.Long",7],"id":"A-1"}`},
		{JSON, " {\n}\n", " {\n}\n"},
		{Kryo5String, "\x03hell\xef", "hello"},
		{Kryo5String, "\x03" + order[:15] + "\xfd", order},
		{RiverString, "\x04\x3e\x10" + order, order},
		{FSTString, "\xfc\x10" + order, order},
		{Kryo5String, "\x03a\xff", "a\x7f"},
		// the last character of two bytes and the first of three
		{Kryo5String, "\x03\x83\xdf\xbf\xe0\xa0\x80", "\u07ff\u0800"},
		{Kryo5String, "\x03\x87测试延迟消息", "测试延迟消息"},
		{Kryo5String, "\x03\x83\xed\xa0\xbd\xed\xb8\x80", "\U0001f600"},
		{RiverString, "\x04\x3e\x02\xed\xa0\xbd\xed\xb8\x80", "\U0001f600"},
		{FSTString, "\xfc\x02\xff\x3d\xd8\xff\x00\xde", "\U0001f600"},
		{Kryo5String, "\x03\x82\xef\xbf\xbd", "\ufffd"}, // the character itself, not half a pair
		{Bytes, "\x00\xff", "\x00\xff"},
	} {
		checkPair(t, v.codec, []byte(v.payload), []byte(v.body))
	}
}

// TestLengthsOfStrings: every form of a length, on both sides of where it changes.
func TestLengthsOfStrings(t *testing.T) {
	for _, v := range []struct {
		codec Codec
		heads map[int]string
	}{
		{Kryo5String, map[int]string{
			0: "0381", 1: "0382", 2: "03", 32: "03", 33: "03a2", 62: "03bf", 63: "03c001", 64: "03c101", 8190: "03ff7f",
			8191: "03c08001", 70000: "03f1c508",
		}},
		{RiverString, map[int]string{
			0: "043d", 1: "043e01", 255: "043eff", 256: "043e00", 257: "043f0101", 65535: "043fffff", 65536: "043f0000",
			65537: "044000010001",
		}},
		{FSTString, map[int]string{0: "fc00", 1: "fc01", 127: "fc7f", 128: "fc808000", 32767: "fc80ff7f",
			32768: "fc8100800000", 70000: "fc8170110100"}},
	} {
		for n, head := range v.heads {
			body := bytes.Repeat([]byte("x"), n)
			payload := append(unhex(t, head), body...)
			if head == "03" {
				payload[len(payload)-1] |= 0x80
			}
			checkPair(t, v.codec, payload, body)
		}
	}
}

// opaquePayloads are payloads of which the codec would not make the same bytes again, in
// hexadecimal.
var opaquePayloads = []struct {
	codec        Codec
	name, digits string
}{
	{String, "not UTF-8", "ff"},
	{String, "half a surrogate pair", "eda0bd"},
	{JSON, "nothing", ""},
	{JSON, "text", hex.EncodeToString([]byte("hello"))},
	{JSON, "two texts", hex.EncodeToString([]byte("{}{}"))},
	{JSON, "not UTF-8", "22ff22"},

	{Kryo5String, "nothing", ""},
	{Kryo5String, "the class alone", "03"},
	{Kryo5String, "null", "00"},
	{Kryo5String, "null as a string", "0380"},
	{Kryo5String, "a long", "0902"},
	{Kryo5String, "an object", "01006a6176612e7574696c2e486173684d61f0"},
	{Kryo5String, "no end", "0368656c6c6f"},
	{Kryo5String, "a byte more", "0368656c6cef00"},
	{Kryo5String, "a character missing", "0383c3a9"},
	{Kryo5String, "a character cut off", "0382c3"},
	{Kryo5String, "ASCII with a length", "038668656c6c6f"},
	{Kryo5String, "one character without a length", "03e1"},
	{Kryo5String, "33 of ASCII without a length", "03" + strings.Repeat("78", 32) + "f8"},
	{Kryo5String, "a length in more bytes than it takes", "03c20061"},
	{Kryo5String, "a length without end", "03ffffff"},
	{Kryo5String, "a length beyond 64 bits", "03ffffffffffffffffffffffffff7f"},
	{Kryo5String, "a length of 4 GiB", "03ffffffff7f61"},
	{Kryo5String, "U+0000 in two bytes", "0382c080"},
	{Kryo5String, "an overlong character", "0382e08081"},
	{Kryo5String, "a bad second byte", "0382c329"},
	{Kryo5String, "four bytes of UTF-8", "0382f09f9880"},
	{Kryo5String, "the first half of a pair", "0382eda0bd"},
	{Kryo5String, "the second half of a pair", "0382edb880"},
	{Kryo5String, "a pair the wrong way round", "0383edb880eda0bd"},
	{Kryo5String, "hello, with references", "030168656c6cef"},
	{Kryo5String, "nothing, with references", "030181"},
	{Kryo5String, "one character, with references", "03018261"},

	{RiverString, "nothing", ""},
	{RiverString, "the protocol alone", "04"},
	{RiverString, "null", "0401"},
	{RiverString, "a long", "044c0000000000000001"},
	{RiverString, "another protocol", "033e0161"},
	{RiverString, "a byte more", "043e016162"},
	{RiverString, "a character missing", "043e0261"},
	{RiverString, "a length cut off", "043e"},
	{RiverString, "a medium length cut off", "043f00"},
	{RiverString, "a large length cut off", "0440000000"},
	{RiverString, "a length of two bytes for one", "043f000161"},
	{RiverString, "a length of four bytes for one", "04400000000161"},
	{RiverString, "a length of 4 GiB", "0440ffffffff61"},
	{RiverString, "U+0000 in one byte", "043e0100"},
	{RiverString, "half a surrogate pair", "043e01eda0bd"},

	{FSTString, "nothing", ""},
	{FSTString, "the class alone", "fc"},
	{FSTString, "a long", "f601"},
	{FSTString, "a byte more", "fc016162"},
	{FSTString, "a character missing", "fc0261"},
	{FSTString, "a wide character cut off", "fc02ff4b"},
	{FSTString, "a character missing behind a wide one", "fc02ff4b6d"},
	{FSTString, "a length of two bytes for one", "fc80010061"},
	{FSTString, "a length of four bytes for one", "fc810100000061"},
	{FSTString, "a length cut off", "fc8001"},
	{FSTString, "a long length cut off", "fc81010000"},
	{FSTString, "a negative length", "fc82"},
	{FSTString, "a length of 4 GiB", "fc81ffffffff61"},
	{FSTString, "a wide character that is not", "fc01ff6100"},
	{FSTString, "half a surrogate pair", "fc01ff3dd8"},

	{Opaque, "anything", "68656c6c6f"},
	{Bytes + 1, "anything", "68656c6c6f"},
}

// TestPayloadsThatStayOpaque: they are not decoded, and come back as they are.
func TestPayloadsThatStayOpaque(t *testing.T) {
	for _, v := range opaquePayloads {
		payload := unhex(t, v.digits)
		if got, ok := v.codec.Decode(payload); ok || !bytes.Equal(got, payload) {
			t.Errorf("%s, %s: %s is read as %q, %v", v.codec, v.name, v.digits, got, ok)
		}
	}
}

// TestMadeUpLengths: a payload that claims to be long is refused before there is memory for what it
// claims.
func TestMadeUpLengths(t *testing.T) {
	for _, c := range []Codec{Kryo5String, RiverString, FSTString} {
		payload := unhex(t, map[Codec]string{Kryo5String: "03ffffff7f61", RiverString: "0440ffffffff61",
			FSTString: "fc81ffffffff61"}[c])
		if n := testing.AllocsPerRun(10, func() { c.Decode(payload) }); n > 0 {
			t.Errorf("%s allocates %v times to refuse %x", c, n, payload)
		}
	}
}

func TestBodiesWithoutPayload(t *testing.T) {
	for _, v := range []struct {
		codec      Codec
		body, want string
	}{
		{String, "\xff", "the body is not UTF-8, so no string"},
		{Kryo5String, "a\xff", "the body is not UTF-8, so no kryo5-string"},
		{RiverString, "\xed\xa0\xbd", "the body is not UTF-8, so no river-string"},
		{FSTString, "\xff", "the body is not UTF-8, so no fst-string"},
		{JSON, "\"\xff\"", "the body is not UTF-8, so no json"},
		{JSON, "hello", "the body is not one JSON text"},
		{JSON, "", "the body is not one JSON text"},
		{Opaque, "hello", "name its codec"},
		{Bytes + 1, "hello", "name its codec"},
	} {
		if got, err := v.codec.Encode([]byte(v.body)); err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%s writes %q as %x, error %v; want it to say %q", v.codec, v.body, got, err, v.want)
		}
	}
}

func TestNamesOfCodecs(t *testing.T) {
	names := strings.Split("opaque|string|json|kryo5-string|river-string|fst-string|bytes", "|")
	for i, c := range slices.Concat([]Codec{Opaque}, everyCodec()) {
		if got, err := ParseCodec(names[i]); err != nil || got != c || c.String() != names[i] {
			t.Errorf("%s is read as %s, %v; want %s", names[i], got, err, c)
		}
	}
	for _, name := range []string{"", "kryo5", "String", "codec 7"} {
		if c, err := ParseCodec(name); err == nil || c != Opaque || !strings.Contains(err.Error(), `"river-string"`) {
			t.Errorf("%q is read as %s, %v", name, c, err)
		}
	}
	if got := (Bytes + 1).String(); got != "codec 7" {
		t.Errorf("a codec that does not exist is called %q", got)
	}
}

// FuzzCodec decodes any payload and encodes any body.
func FuzzCodec(f *testing.F) {
	for i, v := range readVectors(f).Strings {
		if i%10 == 0 { // the engine makes the rest
			for _, digits := range []string{v.UTF8, v.Kryo5, v.River, v.FST} {
				f.Add(unhex(f, digits))
			}
		}
	}
	for _, payload := range []string{`{"a":[1]}`, "\x03\x01hell\xef", "\x03\x83\xed\xa0\xbd\xed\xb8\x80",
		"\x01\x00java.util.HashMa\xf0", "\xac\xed\x00\x05"} {
		f.Add([]byte(payload))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if Sniff(b) == "" {
			t.Errorf("nothing is said of %x", b)
		}
		for _, c := range everyCodec() {
			if body, ok := c.Decode(b); ok {
				checkPair(t, c, b, body)
			}
			payload, err := c.Encode(b)
			if want := c == Bytes || utf8.Valid(b) && (c != JSON || json.Valid(b)); want != (err == nil) {
				t.Errorf("%s writes %q as %x, %v", c, b, payload, err)
			}
			if err == nil && (c != Kryo5String || !maybeReference(payload)) {
				checkPair(t, c, payload, b)
			}
		}
	})
}
