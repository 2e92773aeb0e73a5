package redisson

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"strconv"
	"testing"
)

// vectors are what Redisson's scripts and the Java codecs wrote; "_about" in the file says which.
type vectors struct {
	Members []memberVector
	Strings []stringVector
}

// A memberVector is an entry that a script of Redisson packed. Random is hexadecimal in the new
// generation and decimal in the old one.
type memberVector struct {
	Format, Codec, Random, Payload, Member string

	Score       int64
	ZscoreReply string `json:"zscore_reply"`
}

// A stringVector is a string in UTF-8 and as three codecs write it, in hexadecimal.
type stringVector struct{ UTF8, Kryo5, River, FST string }

// moreMembers are those that the file lacks.
var moreMembers = []memberVector{
	{"new", "json-jackson", "0001020304050607", "2268656c6c6f22", "08000102030405060707000000000000002268656c6c6f22",
		0, "0"},
	{"new", "kryo5", "0001020304050607", "0368656c6cef", "08000102030405060706000000000000000368656c6cef", 0, "0"},
	{"new", "kryo5", "0001020304050607", "09f6a1abfef962", "080001020304050607070000000000000009f6a1abfef962", 0, "0"},
	{"old", "json-jackson", "0", "2268656c6c6f22", "000000000000000007000000000000002268656c6c6f22", 0, "0"},
	{"old", "kryo5", "1", "0368656c6cef", "000000000000f03f06000000000000000368656c6cef", 0, "0"},
	{"old", "string", "9007199254740993", "78", "0000000000004043010000000000000078", 0, "0"}, // 2^53+1 is rounded
	{"old", "string", "9007199254740992", "78", "0000000000004043010000000000000078", 0, "0"},
}

func readVectors(tb testing.TB) vectors {
	tb.Helper()
	text, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		tb.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(text, &v); err != nil {
		tb.Fatal(err)
	}
	if len(v.Members) != 14 || len(v.Strings) != 150 {
		tb.Fatalf("there are %d members and %d strings, want 14 and 150", len(v.Members), len(v.Strings))
	}
	v.Members = append(v.Members, moreMembers...)
	return v
}

// unhex returns the bytes of a vector.
func unhex(tb testing.TB, digits string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(digits)
	if err != nil {
		tb.Fatalf("%q: %v", digits, err)
	}
	return b
}

// unpacked returns the member that Redisson packed.
func (v memberVector) unpacked(tb testing.TB) Member {
	tb.Helper()
	m := Member{Payload: unhex(tb, v.Payload)}
	switch v.Format {
	case "new":
		m.Generation, m.Random = New, [8]byte(unhex(tb, v.Random))
	case "old":
		n, err := strconv.ParseInt(v.Random, 10, 64)
		if err != nil {
			tb.Fatal(err)
		}
		m.Generation, m.Random = Old, OldRandom(n)
	default:
		tb.Fatalf("the generation of a vector is %q", v.Format)
	}
	return m
}
