package redisson

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Sniff guesses the codec of a payload, for people who inspect a queue. No program may act on the
// result: a payload, above all a short one, may be valid in several codecs.
//
// It returns the name of a [Codec] that decodes the payload, or one of these: "json-jackson", JSON
// with the names of classes, which codec json takes as well; "kryo5-string with references"; "kryo5
// C", an object of the Java class C; "jdk", Java's own serialization; "unknown". A text in UTF-8
// without control characters is "string".
func Sniff(payload []byte) (name string) {
	for _, c := range []Codec{Kryo5String, RiverString, FSTString} {
		if _, ok := c.Decode(payload); ok {
			return c.String()
		}
	}
	if maybeReference(payload) {
		return Kryo5String.String() + " with references"
	}
	if bytes.HasPrefix(payload, []byte{0xac, 0xed, 0, 5}) {
		return "jdk"
	}
	if class, ok := kryo5ClassName(payload); ok {
		return "kryo5 " + class
	}
	// numbers and words are texts as well
	if _, ok := JSON.Decode(payload); ok && bytes.IndexByte([]byte(`{["`), payload[0]) >= 0 {
		if bytes.Contains(payload, []byte(`"@class"`)) || bytes.Contains(payload, []byte(`["java.`)) {
			return "json-jackson"
		}
		return JSON.String()
	}
	if utf8.Valid(payload) && bytes.IndexFunc(payload, isControl) < 0 {
		return String.String()
	}
	return "unknown"
}

// isControl reports whether a character is one that texts do not have.
func isControl(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\t\n\r", r) }

// kryo5ClassName returns the class of an object of Kryo5Codec that carries its name: 01, 00, and
// the name.
func kryo5ClassName(payload []byte) (class string, ok bool) {
	name, ok := bytes.CutPrefix(payload, []byte{1, 0})
	if !ok {
		return "", false
	}
	units, _, _ := readKryo5Text(name)
	class = string(utf16.Decode(units))
	return class, class != "" && len(class) < 256 && strings.IndexFunc(class, notOfClass) < 0
}

// notOfClass reports whether a character is in no name of a class, not even in that of an array.
func notOfClass(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._$[;", r)
}
