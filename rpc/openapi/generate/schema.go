package main

import (
	"math"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/belfrydb/belfry/rpc/naming"
)

// schema is a JSON Schema, of which it has the keywords that we need.
type schema struct {
	Ref                  string             `json:"$ref,omitempty"`
	Type                 any                `json:"type,omitempty"` // a name or a list of names
	Format               string             `json:"format,omitempty"`
	ContentEncoding      string             `json:"contentEncoding,omitempty"`
	Description          string             `json:"description,omitempty"`
	Enum                 []string           `json:"enum,omitempty"`
	Minimum              *int64             `json:"minimum,omitempty"`
	Maximum              *int64             `json:"maximum,omitempty"`
	Items                *schema            `json:"items,omitempty"`
	Properties           map[string]*schema `json:"properties,omitempty"`
	Required             []string           `json:"required,omitempty"`
	AdditionalProperties any                `json:"additionalProperties,omitempty"` // a schema or false
	Not                  *schema            `json:"not,omitempty"`
	AllOf                []schema           `json:"allOf,omitempty"`
}

func ref(name string) schema { return schema{Ref: "#/components/schemas/" + name} }

// schemas collects the schemas of messages and enums by name.
type schemas struct {
	byName map[string]*schema
	// answered has the messages that answers contain. A later version may add fields to these; the
	// others are closed, because a server refuses a field that it does not know.
	answered map[string]bool
}

func newSchemas() *schemas {
	return &schemas{answered: map[string]bool{}, byName: map[string]*schema{
		"Duration": {
			Type: []string{"string", "number"},
			Description: `Written as seconds, such as "300s" or "0.250s"; read also as "5m", "1h30m" or ` +
				`a number of seconds.`,
		},
		"Error": errorSchema(),
	}}
}

// errorSchema describes the body of a call that failed, which the protocol and not our contract
// declares. Its details are google.rpc.ErrorInfo and google.rpc.RetryInfo.
func errorSchema() *schema {
	text := &schema{Type: "string"}
	reason := &schema{Type: "string", Description: "The reason, one of Reason. Programs decide by it."}
	debug := &schema{Type: "object", Properties: map[string]*schema{
		"reason": reason, "domain": text,
		"metadata": {
			Type: "object", AdditionalProperties: text,
			Description: "The field concerned, the outcome (NOT_APPLIED or UNKNOWN), and what else the reason calls for.",
		},
		"retryDelay": {Type: "string", Description: "How long to wait before a repeat."},
	}}
	return &schema{
		Type: "object", Required: []string{"code"}, Properties: map[string]*schema{
			"code":    {Type: "string", Description: "The code of the Connect protocol."},
			"message": {Type: "string", Description: "For people; it may change."},
			"details": {Type: "array", Items: &schema{Type: "object", Properties: map[string]*schema{
				"type": text, "debug": debug,
				"value": {Type: "string", Description: "The detail in protobuf, as base64 without padding."},
			}}},
		},
	}
}

// answer returns the schema of a message that a server sends.
func (s *schemas) answer(m protoreflect.MessageDescriptor) schema {
	out := s.message(m)
	s.markAnswered(m)
	return out
}

func (s *schemas) markAnswered(m protoreflect.MessageDescriptor) {
	if s.answered[string(m.Name())] {
		return
	}
	s.answered[string(m.Name())] = true
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if f.IsMap() {
			f = f.MapValue()
		}
		if f.Message() != nil {
			s.markAnswered(f.Message())
		}
	}
}

// all returns every schema by name.
func (s *schemas) all() map[string]*schema {
	for name, described := range s.byName {
		if described.Type == "object" && name != "Error" && !s.answered[name] {
			described.AdditionalProperties = false
		}
	}
	return s.byName
}

// message returns a reference to the schema of a message, which it adds if it is new.
func (s *schemas) message(m protoreflect.MessageDescriptor) schema {
	switch m.FullName() {
	case "google.protobuf.Timestamp":
		return schema{Type: "string", Format: "date-time"}
	case "google.protobuf.Duration":
		return ref("Duration")
	}
	name := string(m.Name())
	if _, ok := s.byName[name]; ok {
		return ref(name)
	}
	out := &schema{Type: "object", Description: comment(m), Properties: map[string]*schema{}}
	s.byName[name] = out
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		described := s.field(f)
		described.Description = comment(f)
		out.Properties[f.JSONName()] = &described
	}
	for i := range m.Oneofs().Len() {
		if choice := m.Oneofs().Get(i); !choice.IsSynthetic() {
			out.AllOf = append(out.AllOf, atMostOne(choice)...)
		}
	}
	return ref(name)
}

// atMostOne returns the schemas that forbid each pair of a choice's fields.
func atMostOne(choice protoreflect.OneofDescriptor) []schema {
	var pairs []schema
	for i := range choice.Fields().Len() {
		for k := range i {
			pairs = append(pairs, schema{Not: &schema{Required: []string{
				choice.Fields().Get(k).JSONName(), choice.Fields().Get(i).JSONName(),
			}}})
		}
	}
	return pairs
}

func (s *schemas) field(f protoreflect.FieldDescriptor) schema {
	switch {
	case f.IsMap():
		value := s.value(f.MapValue())
		return schema{Type: "object", AdditionalProperties: &value}
	case f.IsList():
		item := s.value(f)
		return schema{Type: "array", Items: &item}
	default:
		return s.value(f)
	}
}

// value returns the schema of one value of a field.
func (s *schemas) value(f protoreflect.FieldDescriptor) schema {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return s.message(f.Message())
	case protoreflect.EnumKind:
		return s.enum(f.Enum())
	case protoreflect.BoolKind:
		return schema{Type: "boolean"}
	case protoreflect.StringKind:
		return schema{Type: "string"}
	case protoreflect.BytesKind:
		return schema{Type: "string", ContentEncoding: "base64"}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return schema{Type: "number"}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return schema{Type: "integer", Minimum: pointer(math.MinInt32), Maximum: pointer(math.MaxInt32)}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return schema{Type: "integer", Minimum: pointer(0), Maximum: pointer(math.MaxUint32)}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		// package codec writes them as numbers: those of the contract fit into a float64
		return schema{Type: "integer", Format: "int64"}
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return schema{Type: []string{"string", "integer"}, Format: "uint64"}
	default:
		panic("no schema for the kind " + f.Kind().String())
	}
}

func pointer(n int64) *int64 { return &n }

// enum returns a reference to the schema of an enum, which it adds if it is new.
func (s *schemas) enum(e protoreflect.EnumDescriptor) schema {
	name := string(e.Name())
	if _, ok := s.byName[name]; ok {
		return ref(name)
	}
	out := &schema{Type: "string"}
	text := []string{comment(e)}
	for i := range e.Values().Len() {
		value := e.Values().Get(i)
		short := strings.TrimPrefix(string(value.Name()), naming.EnumPrefix(e))
		out.Enum = append(out.Enum, short)
		text = append(text, short+": "+comment(value))
	}
	out.Description = strings.Join(text, "\n")
	s.byName[name] = out
	return ref(name)
}
