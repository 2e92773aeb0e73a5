package codec

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/naming"
	"github.com/belfrydb/belfry/rpc/spelling"
	"github.com/belfrydb/belfry/rpc/wire"
)

// These well-known types have their own form in JSON.
const (
	durationType  protoreflect.FullName = "google.protobuf.Duration"
	timestampType protoreflect.FullName = "google.protobuf.Timestamp"
)

// decodeJSON reads JSON into a message. It tries plainDecode and then the strict parser first, so
// that valid input costs no extra work and has exactly the meaning that protojson gives it.
func decodeJSON(data []byte, m proto.Message) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	if proto.Reset(m); plainDecode(data, m) {
		return nil
	}
	strictErr := protojson.Unmarshal(data, m)
	if strictErr == nil {
		return nil
	}
	if !utf8.Valid(data) {
		return fault.Invalid("request", "not valid UTF-8")
	}
	relaxed, err := relax(m.ProtoReflect().Descriptor(), data, "")
	if err != nil {
		return err
	}
	proto.Reset(m)
	if err := protojson.Unmarshal(relaxed, m); err != nil {
		return fault.Invalid("request", "%s", protoErrorText(err))
	}
	return nil
}

// protoErrorText returns the text of a protobuf error, without a long quotation of the input, and
// without the package's prefix, whose whitespace is random by design.
func protoErrorText(err error) string {
	text := err.Error()
	if rest, ok := strings.CutPrefix(text, "proto:"); ok {
		text = strings.TrimLeft(rest, " \u00a0")
	}
	return fault.Clip(text, 200)
}

// relax rewrites a JSON object so that the strict parser accepts the forms that people write:
// durations in any form of wire.ParseDuration, and enum values without prefix. It looks only where
// the schema has a duration or an enum. All other values, bodies and headers among them, are copied
// byte for byte. An error names the path of the field.
func relax(desc protoreflect.MessageDescriptor, data []byte, path string) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if token, err := dec.Token(); err != nil || token != json.Delim('{') {
		if err != nil {
			return nil, syntaxFault(path, err)
		}
		return nil, fault.Invalid(orRequest(path), "want a JSON object such as {%q: …}, not %s", firstField(desc),
			fault.Quote(data))
	}
	out := []byte{'{'}
	chosen := map[protoreflect.Name]string{} // the given field of each oneof
	for dec.More() {
		name, value, err := nextMember(dec)
		if err != nil {
			return nil, syntaxFault(path, err)
		}
		field := fieldByName(desc, name)
		if field == nil {
			return nil, unknownField(desc, path, name)
		}
		if one := field.ContainingOneof(); one != nil && !one.IsSynthetic() && string(value) != "null" {
			if other := chosen[one.Name()]; other != "" && other != field.JSONName() {
				return nil, fault.Invalid(fault.Join(path, field.JSONName()), "not together with %s", other)
			}
			chosen[one.Name()] = field.JSONName()
		}
		if value, err = relaxField(field, value, fault.Join(path, field.JSONName())); err != nil {
			return nil, err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(strconv.AppendQuote(out, field.JSONName()), ':')
		out = append(out, value...)
	}
	if _, err := dec.Token(); err != nil {
		return nil, syntaxFault(path, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fault.Invalid(orRequest(path), "more than one JSON value")
	}
	return append(out, '}'), nil
}

// nextMember reads the name and the value of a member.
func nextMember(dec *json.Decoder) (string, json.RawMessage, error) {
	token, err := dec.Token()
	if err != nil {
		return "", nil, err
	}
	name, ok := token.(string)
	if !ok {
		return "", nil, errors.New("a member without a name")
	}
	var value json.RawMessage
	if err := dec.Decode(&value); err != nil {
		return "", nil, err
	}
	return name, value, nil
}

// relaxField rewrites the value of a field.
func relaxField(field protoreflect.FieldDescriptor, value json.RawMessage, path string) (json.RawMessage, error) {
	switch {
	case string(value) == "null":
		return value, nil
	case field.IsMap():
		return value, checkStringMap(value, path)
	case field.IsList():
		return relaxList(field, value, path)
	default:
		return relaxValue(field, value, path)
	}
}

// relaxList rewrites the elements of a repeated field.
func relaxList(field protoreflect.FieldDescriptor, value json.RawMessage, path string) (json.RawMessage, error) {
	var elements []json.RawMessage
	if value[0] != '[' || json.Unmarshal(value, &elements) != nil {
		return nil, fault.Invalid(path, "want a JSON array, not %s", fault.Quote(value))
	}
	out := []byte{'['}
	for i, element := range elements {
		if string(element) == "null" {
			return nil, fault.Invalid(fault.Indexed(path, i), "null is not allowed here")
		}
		relaxed, err := relaxValue(field, element, fault.Indexed(path, i))
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, relaxed...)
	}
	return append(out, ']'), nil
}

// checkStringMap checks that a value is an object of strings. It checks only the form.
func checkStringMap(value json.RawMessage, path string) error {
	var members map[string]json.RawMessage
	if value[0] != '{' || json.Unmarshal(value, &members) != nil {
		return fault.Invalid(path, "want a JSON object of strings, not %s", fault.Quote(value))
	}
	for name, member := range members {
		if member[0] != '"' {
			return fault.Invalid(path+"["+strconv.Quote(fault.Clip(name, fault.QuotedBytesMax))+"]", "want a string, not %s",
				fault.Quote(member))
		}
	}
	return nil
}

// relaxValue rewrites one value that is neither a map nor a list.
func relaxValue(field protoreflect.FieldDescriptor, value json.RawMessage, path string) (json.RawMessage, error) {
	switch field.Kind() {
	case protoreflect.MessageKind:
		switch field.Message().FullName() {
		case durationType:
			return relaxDuration(value, path)
		case timestampType:
			return value, checkTime(value, path)
		default:
			return relax(field.Message(), value, path)
		}
	case protoreflect.EnumKind:
		return relaxEnum(field.Enum(), value, path)
	case protoreflect.StringKind, protoreflect.BytesKind:
		if value[0] != '"' {
			return nil, fault.Invalid(path, "want a string, not %s", fault.Quote(value))
		}
		if field.Kind() == protoreflect.BytesKind {
			return value, checkBase64(field, value, path)
		}
	case protoreflect.BoolKind:
		if string(value) != "true" && string(value) != "false" {
			return nil, fault.Invalid(path, "want true or false, not %s", fault.Quote(value))
		}
	case protoreflect.Int32Kind:
		return value, checkInteger(value, path, math.MinInt32, math.MaxInt32)
	case protoreflect.Int64Kind:
		return value, checkInteger(value, path, -1<<53, 1<<53)
	case protoreflect.Uint32Kind:
		return value, checkInteger(value, path, 0, math.MaxUint32)
	case protoreflect.Uint64Kind:
		return value, checkInteger(value, path, 0, math.MaxUint64)
	default: // The contract has no other kinds in requests; the strict parser judges them.
	}
	return value, nil
}

// relaxDuration rewrites a duration in the form of protojson.
func relaxDuration(value json.RawMessage, path string) (json.RawMessage, error) {
	text := string(value)
	if value[0] == '"' {
		if err := json.Unmarshal(value, &text); err != nil {
			return nil, syntaxFault(path, err)
		}
	} else if value[0] != '-' && (value[0] < '0' || value[0] > '9') {
		return nil, fault.Invalid(path, "%v; not %s", wire.ErrDuration, fault.Quote(value))
	}
	d, err := wire.ParseDuration(text)
	if err != nil {
		return nil, fault.Invalid(path, "%v; not %s", err, fault.Quote(value))
	}
	return appendDuration(nil, int64(d/time.Second), int32(d%time.Second)), nil
}

// checkBase64 checks that a value is base64, in one of the forms that protojson accepts. If the
// type also has a field for text, the error names that field: plain text in data is the usual
// mistake.
func checkBase64(field protoreflect.FieldDescriptor, value json.RawMessage, path string) error {
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		return syntaxFault(path, err)
	}
	encoding := base64.StdEncoding
	if strings.ContainsAny(text, "-_") {
		encoding = base64.URLEncoding
	}
	if len(text)%4 != 0 {
		encoding = encoding.WithPadding(base64.NoPadding)
	}
	if _, err := encoding.DecodeString(text); err == nil {
		return nil
	}
	if other := fieldByName(field.ContainingMessage(), "text"); other != nil {
		return fault.Invalid(path, "want base64, not %s; plain text goes into %q as it is", fault.Quote(value),
			other.JSONName())
	}
	return fault.Invalid(path, "want base64, not %s", fault.Quote(value))
}

// checkTime checks that a value is a time.
func checkTime(value json.RawMessage, path string) error {
	var text string
	if value[0] != '"' || json.Unmarshal(value, &text) != nil {
		return fault.Invalid(path, `want a time such as "2026-11-21T09:30:00Z", not %s`, fault.Quote(value))
	}
	if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
		return fault.Invalid(path, `want a time such as "2026-11-21T09:30:00Z", not %s`, fault.Quote(value))
	}
	return nil
}

// relaxEnum adds the prefix to an enum value, and accepts it in any case and with hyphens, as the
// command line has it. It leaves numbers to the strict parser.
func relaxEnum(enum protoreflect.EnumDescriptor, value json.RawMessage, path string) (json.RawMessage, error) {
	if value[0] != '"' {
		if _, err := strconv.ParseInt(string(value), 10, 32); err == nil {
			return value, nil
		}
		return nil, fault.Invalid(path, "want one of %s, not %s", enumNames(enum), fault.Quote(value))
	}
	var name string
	if err := json.Unmarshal(value, &name); err != nil {
		return nil, syntaxFault(path, err)
	}
	full := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	if enum.Values().ByName(protoreflect.Name(full)) == nil {
		full = naming.EnumPrefix(enum) + full
	}
	if enum.Values().ByName(protoreflect.Name(full)) == nil {
		return nil, fault.Invalid(path, "want one of %s, not %s", enumNames(enum), fault.Quote(value))
	}
	return strconv.AppendQuote(nil, full), nil
}

// enumNames lists the values that a caller may choose. For a job's state, it lists those of a job
// in a queue.
func enumNames(enum protoreflect.EnumDescriptor) string {
	var names []string
	for i := 1; i < enum.Values().Len(); i++ {
		if enum == belfryv1.JobState(0).Descriptor() {
			if _, held := wire.HeldState(belfryv1.JobState(enum.Values().Get(i).Number())); !held {
				continue
			}
		}
		names = append(names, strings.TrimPrefix(string(enum.Values().Get(i).Name()), naming.EnumPrefix(enum)))
	}
	return strings.Join(names, ", ")
}

// checkInteger checks that a value is a whole number in a range. The number may be in a string.
func checkInteger(value json.RawMessage, path string, least, most float64) error {
	n, err := strconv.ParseFloat(strings.Trim(string(value), `"`), 64)
	if err != nil || n != math.Trunc(n) || n < least || n > most {
		return fault.Invalid(path, "want a whole number from %.0f to %.0f, not %s", least, most, fault.Quote(value))
	}
	return nil
}

// fieldByName finds a field by either of its names, as protojson does.
func fieldByName(desc protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if field := desc.Fields().ByJSONName(name); field != nil {
		return field
	}
	return desc.Fields().ByTextName(name)
}

// unknownField returns a fault with the unknown field and the one that was probably meant.
func unknownField(desc protoreflect.MessageDescriptor, path, name string) *fault.Error {
	names := make([]string, desc.Fields().Len())
	for i := range names {
		names[i] = desc.Fields().Get(i).JSONName()
	}
	field := fault.Join(path, fault.Clip(name, fault.QuotedBytesMax))
	if meant := spelling.Field(name); meant != "" && slices.Contains(names, meant) {
		return fault.Invalid(field, "unknown field; did you mean %q?", meant)
	}
	if near := spelling.Nearest(name, names); near != "" {
		return fault.Invalid(field, "unknown field; did you mean %q?", near)
	}
	return fault.Invalid(field, "unknown field; the fields here are %s", strings.Join(names, ", "))
}

// syntaxFault returns the fault of input that is not JSON.
func syntaxFault(path string, err error) *fault.Error {
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fault.Invalid(orRequest(path), "not valid JSON: it ends too early")
	case errors.As(err, &syntax):
		return fault.Invalid(orRequest(path), "not valid JSON: %v at byte %d", syntax, syntax.Offset)
	default:
		return fault.Invalid(orRequest(path), "not valid JSON: %v", err)
	}
}

// firstField returns the name of a field for an example.
func firstField(desc protoreflect.MessageDescriptor) string {
	if desc.Fields().Len() == 0 {
		return ""
	}
	return desc.Fields().Get(0).JSONName()
}

// orRequest returns path, or a name for the whole request if path is empty.
func orRequest(path string) string {
	if path == "" {
		return "request"
	}
	return path
}
