package fault

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// QuotedBytesMax bounds the part of the input that an error message quotes.
const QuotedBytesMax = 64

// Indexed returns the path of an element of a repeated field.
func Indexed(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// Join returns the path of a field of the message at a path, which is empty for the request itself.
func Join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// Cut shortens a text to at most most bytes, and never splits a character.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// Clip is cut with a mark for what is missing.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return Cut(text, most) + "…"
}

// Quote returns the beginning of the input for an error message.
func Quote(value []byte) string { return Clip(string(bytes.TrimSpace(value)), QuotedBytesMax) }
