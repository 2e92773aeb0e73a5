package codec

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/naming"
)

// contractPackage is the package whose messages are written here. protojson writes all others.
const contractPackage protoreflect.FullName = "belfry.v1"

// jobDataField is the field that becomes `text` in JSON if its bytes are valid UTF-8.
const jobDataField protoreflect.FullName = "belfry.v1.Job.data"

// AppendJSON appends a message as JSON. It follows protojson's mapping with zero values, with three
// differences: enum values have no prefix, a job's body is text if it can be, and the bytes are the
// same every time.
func AppendJSON(dst []byte, m protoreflect.Message) ([]byte, error) {
	switch typed := m.Interface().(type) {
	case *durationpb.Duration:
		return appendDuration(dst, typed.GetSeconds(), typed.GetNanos()), nil
	case *timestamppb.Timestamp:
		return appendTime(dst, typed.GetSeconds(), int64(typed.GetNanos())), nil
	case *belfryv1.Witness:
		return appendWitness(dst, typed), nil
	case *belfryv1.PutResponse:
		return appendPutResponse(dst, typed), nil
	case *belfryv1.AckResponse:
		return appendAckResponse(dst, typed), nil
	default:
	}
	return appendMessage(dst, m)
}

// appendMessage appends a message of any type by its descriptor.
func appendMessage(dst []byte, m protoreflect.Message) ([]byte, error) {
	if m.Descriptor().ParentFile().Package() != contractPackage {
		return appendForeign(dst, m)
	}
	fields := m.Descriptor().Fields()
	dst = append(dst, '{')
	first := true
	for i := range fields.Len() {
		field := fields.Get(i)
		if field.HasPresence() && !m.Has(field) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		var err error
		if dst, err = appendField(dst, field, m.Get(field)); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// appendForeign appends a message of another package as protojson writes it, without the random
// whitespace.
func appendForeign(dst []byte, m protoreflect.Message) ([]byte, error) {
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m.Interface())
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", m.Descriptor().FullName(), err)
	}
	out := bytes.NewBuffer(dst)
	if err := json.Compact(out, text); err != nil {
		return nil, fmt.Errorf("compacting %s: %w", m.Descriptor().FullName(), err)
	}
	return out.Bytes(), nil
}

// appendField appends a name and its value.
func appendField(dst []byte, field protoreflect.FieldDescriptor, value protoreflect.Value) ([]byte, error) {
	if field.FullName() == jobDataField && utf8.Valid(value.Bytes()) {
		return appendString(append(dst, `"text":`...), string(value.Bytes())), nil
	}
	dst = append(append(append(dst, '"'), field.JSONName()...), `":`...)
	switch {
	case field.IsMap():
		return appendMap(dst, field, value.Map())
	case field.IsList():
		return appendList(dst, field, value.List())
	default:
		return appendValue(dst, field, value)
	}
}

// appendMap appends a map in the order of its keys.
func appendMap(dst []byte, field protoreflect.FieldDescriptor, m protoreflect.Map) ([]byte, error) {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	dst = append(dst, '{')
	for i, k := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, k.String()), ':')
		var err error
		if dst, err = appendValue(dst, field.MapValue(), m.Get(k)); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// appendList appends the elements of a repeated field.
func appendList(dst []byte, field protoreflect.FieldDescriptor, list protoreflect.List) ([]byte, error) {
	dst = append(dst, '[')
	for i := range list.Len() {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = appendValue(dst, field, list.Get(i)); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

// appendValue appends one value. 64-bit integers are strings.
func appendValue(dst []byte, field protoreflect.FieldDescriptor, value protoreflect.Value) ([]byte, error) {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return AppendJSON(dst, value.Message())
	case protoreflect.EnumKind:
		return appendEnum(dst, field.Enum(), value.Enum()), nil
	case protoreflect.StringKind:
		return appendString(dst, value.String()), nil
	case protoreflect.BytesKind:
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, value.Bytes())
		return append(dst, '"'), nil
	case protoreflect.BoolKind:
		return strconv.AppendBool(dst, value.Bool()), nil
	case protoreflect.Int32Kind, protoreflect.Int64Kind: // the contract's int64 fit into a float64
		return strconv.AppendInt(dst, value.Int(), 10), nil
	case protoreflect.Uint32Kind:
		return strconv.AppendUint(dst, value.Uint(), 10), nil
	case protoreflect.Uint64Kind:
		return append(strconv.AppendUint(append(dst, '"'), value.Uint(), 10), '"'), nil
	case protoreflect.DoubleKind:
		text, err := json.Marshal(value.Float())
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", field.FullName(), err)
		}
		return append(dst, text...), nil
	default:
		return nil, fmt.Errorf("writing %s: the contract has no fields of kind %s", field.FullName(), field.Kind())
	}
}

// appendEnum appends an enum value without prefix; a number without a name is appended as a number.
func appendEnum(dst []byte, enum protoreflect.EnumDescriptor, n protoreflect.EnumNumber) []byte {
	value := enum.Values().ByNumber(n)
	if value == nil {
		return strconv.AppendInt(dst, int64(n), 10)
	}
	return appendString(dst, strings.TrimPrefix(string(value.Name()), naming.EnumPrefix(enum)))
}

// QuotedEnum returns an enum value as JSON writes it.
func QuotedEnum(e protoreflect.Enum) string {
	return string(appendEnum(nil, e.Descriptor(), e.Number()))
}

// appendTime appends a time in UTC with as many groups of three decimals as it needs.
func appendTime(dst []byte, seconds, nanos int64) []byte {
	t := time.Unix(seconds, nanos).UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	if year < 0 || year > 9999 { // no time of the contract
		return append(t.AppendFormat(append(dst, '"'), "2006-01-02T15:04:05"), `Z"`...)
	}
	dst = appendDigits(append(dst, '"'), year, 4)
	dst = appendDigits(append(dst, '-'), int(month), 2)
	dst = appendDigits(append(dst, '-'), day, 2)
	dst = appendDigits(append(dst, 'T'), hour, 2)
	dst = appendDigits(append(dst, ':'), minute, 2)
	dst = appendDigits(append(dst, ':'), second, 2)
	switch nanos := t.Nanosecond(); {
	case nanos == 0:
	case nanos%1e6 == 0:
		dst = appendDigits(append(dst, '.'), nanos/1e6, 3)
	case nanos%1e3 == 0:
		dst = appendDigits(append(dst, '.'), nanos/1e3, 6)
	default:
		dst = appendDigits(append(dst, '.'), nanos, 9)
	}
	return append(dst, `Z"`...)
}

// appendDigits appends the last digits of a number that is not negative, at most nine.
func appendDigits(dst []byte, n, digits int) []byte {
	var text [9]byte
	for i := digits - 1; i >= 0; i-- {
		text[i] = byte('0' + n%10)
		n /= 10
	}
	return append(dst, text[:digits]...)
}

// appendDuration appends a duration in seconds. Both parts have the same sign, or one is zero.
func appendDuration(dst []byte, seconds int64, nanos int32) []byte {
	dst = append(dst, '"')
	if seconds < 0 || nanos < 0 {
		dst, seconds, nanos = append(dst, '-'), -seconds, -nanos
	}
	dst = strconv.AppendInt(dst, seconds, 10)
	if nanos != 0 {
		decimals := fmt.Sprintf("%09d", nanos)
		for strings.HasSuffix(decimals, "000") {
			decimals = decimals[:len(decimals)-3]
		}
		dst = append(append(dst, '.'), decimals...)
	}
	return append(dst, `s"`...)
}

// appendString appends a JSON string, and replaces invalid UTF-8. None should arrive here: a proto
// string cannot hold it, and a body is checked before it is written as text.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += size
			continue
		}
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
		i++
	}
	return append(dst, '"')
}
