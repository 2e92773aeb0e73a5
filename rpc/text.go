package rpc

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// quotedBytesMax bounds the part of the input that an error message quotes.
const quotedBytesMax = 64

// indexed returns the path of an element of a repeated field.
func indexed(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// cut shortens a text to at most most bytes, and never splits a character.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// clip is cut with a mark for what is missing.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return cut(text, most) + "…"
}

// quote returns the beginning of the input for an error message.
func quote(value []byte) string { return clip(string(bytes.TrimSpace(value)), quotedBytesMax) }
