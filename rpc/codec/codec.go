package codec

import (
	"fmt"

	"connectrpc.com/connect"
)

// The names of the JSON codec. Connect looks up a content type together with its charset.
const (
	NameJSON     = "json"
	NameJSONUTF8 = "json; charset=utf-8"
)

// jsonCodec is JSON that is lenient in form and strict in meaning. It accepts what protojson
// accepts, but an unknown field is an error. It reads what protojson refuses a second time with the
// schema, see relax. If that fails too, the error has the path of the field. Output includes zero
// values, has no whitespace, and ends in a newline.
type jsonCodec struct {
	name string
	// bounds, if set, refuse requests with too many elements.
	bounds Bounds
}

// NewJSON returns the JSON codec for one of its names. bounds, if set, refuses requests with too
// many elements.
func NewJSON(name string, b Bounds) connect.Codec { return jsonCodec{name: name, bounds: b} }

// Name returns the name under which the codec is registered.
func (c jsonCodec) Name() string { return c.name }

// Marshal returns the message as JSON.
func (c jsonCodec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend appends the message as JSON to dst.
func (c jsonCodec) MarshalAppend(dst []byte, message any) ([]byte, error) {
	m, ok := generatedOf(message)
	if !ok {
		return nil, fmt.Errorf("marshalling JSON: %T is no protobuf message", message)
	}
	dst, err := AppendJSON(dst, m.ProtoReflect())
	if err != nil {
		return nil, fmt.Errorf("marshalling %T as JSON: %w", message, err)
	}
	return append(dst, '\n'), nil
}

// MarshalStable is Marshal: the output depends on the message only.
func (c jsonCodec) MarshalStable(message any) ([]byte, error) { return c.Marshal(message) }

// IsBinary returns false: JSON is text.
func (c jsonCodec) IsBinary() bool { return false }

// Unmarshal reads JSON into the message. An input of only whitespace stands for {}.
func (c jsonCodec) Unmarshal(data []byte, message any) error {
	m, ok := generatedOf(message)
	if !ok {
		return fmt.Errorf("unmarshalling JSON: %T is no protobuf message", message)
	}
	if err := c.bounds.json(data, m); err != nil {
		return err
	}
	return decodeJSON(data, m)
}
