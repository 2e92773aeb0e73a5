package codec

import (
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

// plainDecode reads the plain JSON that programs send into an empty message, at a fraction of the
// cost of protojson. It reads objects, lists, strings, whole numbers, booleans and durations in whole
// seconds. At any other text it returns false, and protojson must read the text from the start. What
// it accepts has the meaning that protojson gives it.
func plainDecode(data []byte, m proto.Message) bool {
	q := plainReader{rest: data}
	return q.message(m.ProtoReflect()) && q.space() && len(q.rest) == 0
}

// plainFieldsMax bounds the fields of a message that plainDecode reads: each has a bit.
const plainFieldsMax = 64

// plainReader is the text that plainDecode has not read yet. Its methods return false for a text
// that they do not read.
type plainReader struct{ rest []byte }

// space skips whitespace. It always returns true.
func (q *plainReader) space() bool {
	for len(q.rest) > 0 && (q.rest[0] == ' ' || q.rest[0] == '\n' || q.rest[0] == '\r' || q.rest[0] == '\t') {
		q.rest = q.rest[1:]
	}
	return true
}

// take skips whitespace and then c, if c is next.
func (q *plainReader) take(c byte) bool {
	if q.space(); len(q.rest) == 0 || q.rest[0] != c {
		return false
	}
	q.rest = q.rest[1:]
	return true
}

// message reads an object into an empty message.
func (q *plainReader) message(m protoreflect.Message) bool {
	fields := m.Descriptor().Fields()
	if !q.take('{') || fields.Len() > plainFieldsMax {
		return false
	}
	if q.take('}') {
		return true
	}
	for seen := uint64(0); ; {
		name, ok := q.text()
		if !ok || !q.take(':') {
			return false
		}
		field := fields.ByJSONName(string(name))
		if field == nil || seen&(1<<field.Index()) != 0 {
			return false
		}
		seen |= 1 << field.Index()
		if one := field.ContainingOneof(); one != nil && m.WhichOneof(one) != nil {
			return false
		}
		if !q.field(m, field) {
			return false
		}
		if q.take('}') {
			return true
		}
		if !q.take(',') {
			return false
		}
	}
}

// field reads the value of a field.
func (q *plainReader) field(m protoreflect.Message, field protoreflect.FieldDescriptor) bool {
	switch {
	case field.IsMap():
		return false
	case field.IsList():
		return q.list(m, field)
	case field.Kind() == protoreflect.MessageKind:
		if field.Message().FullName() == durationType {
			d, ok := q.duration()
			if ok {
				m.Set(field, protoreflect.ValueOfMessage(d.ProtoReflect()))
			}
			return ok
		}
		return field.Message().ParentFile().Package() == contractPackage && q.message(m.Mutable(field).Message())
	default:
		value, ok := q.scalar(field.Kind())
		if ok {
			m.Set(field, value)
		}
		return ok
	}
}

// list reads the elements of a repeated field.
func (q *plainReader) list(m protoreflect.Message, field protoreflect.FieldDescriptor) bool {
	ofMessages := field.Kind() == protoreflect.MessageKind
	if !q.take('[') || ofMessages && field.Message().ParentFile().Package() != contractPackage {
		return false
	}
	if q.take(']') {
		return true
	}
	for list := m.Mutable(field).List(); ; {
		if ofMessages {
			if !q.message(list.AppendMutable().Message()) {
				return false
			}
		} else {
			value, ok := q.scalar(field.Kind())
			if !ok {
				return false
			}
			list.Append(value)
		}
		if q.take(']') {
			return true
		}
		if !q.take(',') {
			return false
		}
	}
}

// scalar reads a value of a kind.
func (q *plainReader) scalar(kind protoreflect.Kind) (v protoreflect.Value, ok bool) {
	switch kind {
	case protoreflect.StringKind:
		text, ok := q.text()
		return protoreflect.ValueOfString(string(text)), ok
	case protoreflect.BoolKind:
		return q.boolean()
	case protoreflect.Int32Kind:
		n, ok := q.number(31)
		return protoreflect.ValueOfInt32(int32(n)), ok //nolint:gosec // of 31 bits
	case protoreflect.Int64Kind:
		n, ok := q.number(53)
		return protoreflect.ValueOfInt64(int64(n)), ok //nolint:gosec // of 53 bits
	case protoreflect.Uint32Kind:
		n, ok := q.number(32)
		return protoreflect.ValueOfUint32(uint32(n)), ok //nolint:gosec // of 32 bits
	case protoreflect.Uint64Kind:
		n, ok := q.number(64)
		return protoreflect.ValueOfUint64(n), ok
	default:
		return v, false
	}
}

// text reads a string. The result may be a part of the input.
func (q *plainReader) text() ([]byte, bool) {
	if !q.take('"') {
		return nil, false
	}
	ascii := true
	for i, c := range q.rest {
		switch {
		case c == '"':
			text := q.rest[:i]
			q.rest = q.rest[i+1:]
			return text, ascii || utf8.Valid(text)
		case c == '\\':
			return q.escaped(i)
		case c < ' ':
			return nil, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return nil, false
}

// escaped reads the rest of a string whose first escape is at i. It reads the escapes of one letter.
func (q *plainReader) escaped(i int) ([]byte, bool) {
	text := append(make([]byte, 0, 2*i+64), q.rest[:i]...) //nolint:mnd // a guess
	for ; i < len(q.rest); i++ {
		c := q.rest[i]
		switch {
		case c == '"':
			q.rest = q.rest[i+1:]
			return text, utf8.Valid(text)
		case c < ' ':
			return nil, false
		case c == '\\':
			if i++; i == len(q.rest) {
				return nil, false
			}
			if c = escapedByte(q.rest[i]); c == 0 {
				return nil, false
			}
		}
		text = append(text, c)
	}
	return nil, false
}

// escapedByte returns the byte for which the letter after a backslash stands, 0 for none.
func escapedByte(letter byte) byte {
	switch letter {
	case '"', '\\', '/':
		return letter
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	default:
		return 0
	}
}

// boolean reads true or false.
func (q *plainReader) boolean() (v protoreflect.Value, ok bool) {
	for _, b := range []bool{true, false} {
		word := strconv.FormatBool(b)
		if q.space(); len(q.rest) >= len(word) && string(q.rest[:len(word)]) == word {
			q.rest = q.rest[len(word):]
			return protoreflect.ValueOfBool(b), true
		}
	}
	return v, false
}

// number reads a whole number without a sign that has at most so many bits. What ends the number
// is for the caller to check: a fraction or an exponent is not what may follow a value.
func (q *plainReader) number(bits int) (n uint64, ok bool) {
	q.space()
	end := 0
	for end < len(q.rest) && q.rest[end] >= '0' && q.rest[end] <= '9' {
		end++
	}
	if end == 0 || end > 1 && q.rest[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(q.rest[:end]), 10, bits)
	q.rest = q.rest[end:]
	return n, err == nil
}

// plainSecondsMax bounds the digits of a duration that duration reads. All such durations are in the
// range of the type.
const plainSecondsMax = 9

// duration reads a duration in whole seconds, such as "30s".
func (q *plainReader) duration() (*durationpb.Duration, bool) {
	text, ok := q.text()
	if n := len(text) - 1; !ok || n < 1 || n > plainSecondsMax || text[n] != 's' {
		return nil, false
	}
	seconds := int64(0)
	for _, c := range text[:len(text)-1] {
		if c < '0' || c > '9' {
			return nil, false
		}
		seconds = 10*seconds + int64(c-'0')
	}
	if text[0] == '0' && len(text) > 2 { // protojson refuses such numbers
		return nil, false
	}
	return &durationpb.Duration{Seconds: seconds}, true
}
