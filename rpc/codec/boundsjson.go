package codec

import (
	"bytes"
	"encoding/json"
)

// jsonCount counts the elements of lists in JSON without decoding them. It looks only at strings,
// brackets and commas, and may accept text that is not JSON: the decoders stop there, and find no
// more elements than were counted.
type jsonCount struct {
	rest   []byte
	counts []int
}

// message counts in an object of a shape, and skips another value. It does not go deeper than the
// shape, however deep the JSON is.
func (j *jsonCount) message(s *shape) {
	if !j.skipByte('{') {
		j.skip()
		return
	}
	for j.more('}') {
		b := s.named(j.name())
		j.skipByte(':')
		switch {
		case b == nil:
			j.skip()
		case b.list:
			j.list(b)
		case b.keys:
			j.members(b)
		default:
			j.message(b.inner)
		}
	}
}

// list counts the elements of an array.
func (j *jsonCount) list(b *bound) {
	if !j.skipByte('[') {
		j.skip()
		return
	}
	for j.more(']') {
		j.counts[b.slot]++
		if b.inner != nil {
			j.message(b.inner)
		} else {
			j.skip()
		}
	}
}

// members counts the members of an object that is a map.
func (j *jsonCount) members(b *bound) {
	if !j.skipByte('{') {
		j.skip()
		return
	}
	for j.more('}') {
		j.counts[b.slot]++
		j.name()
		j.skipByte(':')
		j.skip()
	}
}

// more skips what is between two values. It returns false at the end of the text, or of the list
// that end closes. Unexpected brackets end the count.
func (j *jsonCount) more(end byte) bool {
	for j.skipByte(',') {
	}
	if j.skipByte(end) || len(j.rest) == 0 {
		return false
	}
	if j.rest[0] == '}' || j.rest[0] == ']' {
		j.rest = nil
		return false
	}
	return true
}

// skipByte skips white space, and then one byte if it is want.
func (j *jsonCount) skipByte(want byte) bool {
	for len(j.rest) > 0 && (j.rest[0] == ' ' || j.rest[0] == '\t' || j.rest[0] == '\n' || j.rest[0] == '\r') {
		j.rest = j.rest[1:]
	}
	if len(j.rest) == 0 || j.rest[0] != want {
		return false
	}
	j.rest = j.rest[1:]
	return true
}

// name skips the name of a member and returns it.
func (j *jsonCount) name() []byte {
	if len(j.rest) == 0 || j.rest[0] != '"' {
		j.rest = nil
		return nil
	}
	quoted := j.string()
	if bytes.IndexByte(quoted, '\\') < 0 {
		return bytes.Trim(quoted, `"`)
	}
	var name string
	if json.Unmarshal(quoted, &name) != nil {
		return nil
	}
	return []byte(name)
}

// string skips a string and returns it with its quotes. The text begins with one.
func (j *jsonCount) string() []byte {
	whole := j.rest
	for end := 1; ; end++ {
		quote := bytes.IndexByte(whole[end:], '"')
		if quote < 0 {
			j.rest = nil
			return whole
		}
		end += quote
		escapes := 0
		for whole[end-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			j.rest = whole[end+1:]
			return whole[:end+1]
		}
	}
}

// skip skips one value.
func (j *jsonCount) skip() {
	depth := 0
	for len(j.rest) > 0 {
		switch j.rest[0] {
		case '"':
			j.string()
			if depth == 0 {
				return
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return
			}
			if depth--; depth == 0 {
				j.rest = j.rest[1:]
				return
			}
		case ',':
			if depth == 0 {
				return
			}
		}
		j.rest = j.rest[1:]
	}
}
