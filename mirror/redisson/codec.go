package redisson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// A Codec says how the payloads of a queue and the bodies of jobs become each other. In Redisson it
// belongs to the queue, not to the client, and nothing in Redis names it: people name it, it is
// never concluded from payloads.
type Codec uint8

// The codecs.
const (
	// Opaque reads and writes nothing: payloads stay as they are, and a body has no payload.
	Opaque Codec = iota
	// String is StringCodec, also LongCodec and the like: the body is the payload, and UTF-8.
	String
	// JSON is JsonJacksonCodec and TypedJsonJacksonCodec: the body is the payload, one JSON text. A
	// Java string is a JSON string there, with its quotes. JsonJacksonCodec reads objects and
	// collections only with the names of classes in the text, which a body for it must bring along.
	JSON
	// Kryo5String is a string of Kryo5Codec without references. The body is the string.
	Kryo5String
	// RiverString is a string of MarshallingCodec (JBoss River). The body is the string.
	RiverString
	// FSTString is a string of FstCodec. The body is the string.
	FSTString
	// Bytes is ByteArrayCodec: the body is the payload.
	Bytes
)

// codecNames returns the names of the codecs, each in the place of its number.
func codecNames() []string {
	return []string{"opaque", "string", "json", "kryo5-string", "river-string", "fst-string", "bytes"}
}

// String returns the name by which people name the codec.
func (c Codec) String() string {
	if names := codecNames(); int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("codec %d", c)
}

// ParseCodec reads what String returns. The error of an unknown name lists the known ones.
func ParseCodec(s string) (Codec, error) {
	for i, name := range codecNames() {
		if s == name {
			return Codec(i), nil
		}
	}
	return Opaque, fmt.Errorf("there is no codec %q; want one of %q", s, codecNames())
}

// Decode returns the body of a payload. It is ok only if [Codec.Encode] makes the same payload of
// the body again. Otherwise, and always with [Opaque], body is the payload, which then stays
// opaque. The body may be a part of payload.
//
// Two kinds of strings are never ok: strings with half a surrogate pair, which are not UTF-8, and
// strings of Kryo5String that begin with U+0001, which may also be another string, written with
// references.
func (c Codec) Decode(payload []byte) (body []byte, ok bool) {
	body = payload
	if read := c.reader(); read != nil {
		units, _, ok := read(payload)
		if !ok {
			return payload, false
		}
		body = []byte(string(utf16.Decode(units))) // half a pair becomes U+FFFD, of which Encode makes other bytes
	}
	again, err := c.Encode(body)
	if err != nil || !bytes.Equal(again, payload) || c == Kryo5String && maybeReference(payload) {
		return payload, false
	}
	return body, true
}

// Encode returns the payload that stands for a body, which may be the body itself. The error says
// why there is none: the body is not UTF-8, or not JSON, or the codec is [Opaque], which cannot
// write a job that did not come from Redisson.
func (c Codec) Encode(body []byte) ([]byte, error) {
	switch c {
	case Bytes:
		return body, nil
	case String, JSON, Kryo5String, RiverString, FSTString:
		if !utf8.Valid(body) {
			return nil, fmt.Errorf("the body is not UTF-8, so no %s", c)
		}
	default:
		return nil, errors.New("nothing is known of the payloads of the queue, so none can be made: name its codec")
	}
	switch c {
	case JSON:
		if !json.Valid(body) {
			return nil, errors.New("the body is not one JSON text")
		}
		return body, nil
	case Kryo5String:
		return appendKryo5(nil, unitsOf(body)), nil
	case RiverString:
		return appendRiver(nil, unitsOf(body)), nil
	case FSTString:
		return appendFST(nil, unitsOf(body)), nil
	default:
		return body, nil
	}
}

// A reader takes a string off the front of a payload. It may take more forms than the codec writes,
// since Decode compares.
type reader func(payload []byte) (units []uint16, rest []byte, ok bool)

// reader returns how the codec reads strings, nil if their payload is their text.
func (c Codec) reader() reader {
	switch c {
	case Kryo5String:
		return readKryo5
	case RiverString:
		return readRiver
	case FSTString:
		return readFST
	default:
		return nil
	}
}

// unitsOf returns valid UTF-8 as the UTF-16 units that Java counts.
func unitsOf(body []byte) []uint16 {
	units := make([]uint16, 0, len(body))
	for _, r := range string(body) {
		units = utf16.AppendRune(units, r)
	}
	return units
}
