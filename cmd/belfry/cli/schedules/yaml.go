package schedules

import (
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
)

// pair is a key of a mapping with its value.
type pair struct {
	key   string
	line  int
	value *yaml.Node
}

// resolved returns what a node stands for: itself, or what it refers to.
func resolved(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// kindOf says what a node is.
func kindOf(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "a mapping"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case node.Value == "":
		return "nothing"
	default:
		return fmt.Sprintf("%q", node.Value)
	}
}

// mapping returns the pairs of a mapping, those of the mappings that it merges last. ok is false if the
// node is something else than what is wanted.
func (r *reader) mapping(node *yaml.Node, want string) (pairs []pair, ok bool) {
	if node.Kind != yaml.MappingNode {
		r.fail(node.Line, "want %s, not %s", want, kindOf(node))
		return nil, false
	}
	return r.pairs(nil, node, 0), true
}

// mergesMax is how many mappings may merge one another.
const mergesMax = 8

// pairs appends the pairs of a mapping whose keys are not there yet.
func (r *reader) pairs(before []pair, node *yaml.Node, merges int) []pair {
	lines, all := map[string]int{}, before
	for _, p := range before {
		lines[p.key] = 0 // that one wins
	}
	var merged []*yaml.Node
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], resolved(node.Content[i+1])
		line, twice := lines[key.Value]
		switch {
		case key.Tag == "!!merge" && value.Kind == yaml.SequenceNode:
			merged = append(merged, value.Content...)
		case key.Tag == "!!merge":
			merged = append(merged, value)
		case key.Kind != yaml.ScalarNode:
			r.fail(key.Line, "a key is a text, not %s", kindOf(key))
		case twice && line > 0:
			r.fail(key.Line, "%s: is also at line %d", key.Value, line)
		case !twice:
			lines[key.Value] = key.Line
			all = append(all, pair{key.Value, key.Line, value})
		}
	}
	for _, other := range merged {
		if other = resolved(other); other.Kind != yaml.MappingNode || merges == mergesMax {
			r.fail(node.Line, "<<: want a mapping, and at most %d that merge one another", mergesMax)
			return all
		}
		all = r.pairs(all, other, merges+1)
	}
	return all
}

// message reads a part of a schedule. Its values are read as the server reads JSON.
func (r *reader) message(e *entry, part pair, m proto.Message) {
	text := r.object(m.ProtoReflect().Descriptor(), part.value, part.key, e.lines)
	if text == nil {
		return
	}
	err := cli.DecodeJSON(text, m)
	if field, problem, ok := cli.WrongField(err); ok {
		r.problems = append(r.problems, fmt.Errorf("%s: %s.%s: %s", e.place(part.key+"."+field), part.key, field, problem))
	} else if err != nil {
		r.fail(part.line, "%s: %s", part.key, err)
	}
}

// object writes a mapping as JSON for a message; nil after a problem. The lines of its fields go to
// lines.
func (r *reader) object(desc protoreflect.MessageDescriptor, node *yaml.Node, path string,
	lines map[string]int) json.RawMessage {
	before := len(r.problems)
	pairs, ok := r.mapping(node, "a mapping of the fields of "+path)
	members := map[string]json.RawMessage{}
	for _, p := range pairs {
		at := path + "." + p.key
		field := desc.Fields().ByJSONName(p.key)
		if field == nil { // as the server does
			field = desc.Fields().ByName(protoreflect.Name(p.key))
		}
		if field != nil {
			at = path + "." + field.JSONName()
		}
		lines[at] = p.line
		switch {
		case field == nil:
			members[p.key] = json.RawMessage("0") // it is refused by its name
		case field.IsMap():
			members[p.key] = r.texts(p, at, lines)
		case field.IsList():
			members[p.key] = r.list(field, p, at, lines)
		default:
			members[p.key] = r.scalar(field, p.value, at)
		}
	}
	text, err := json.Marshal(members)
	if !ok || err != nil || len(r.problems) > before {
		return nil
	}
	return text
}

// texts writes a mapping of texts as JSON.
func (r *reader) texts(field pair, path string, lines map[string]int) json.RawMessage {
	pairs, _ := r.mapping(field.value, "a mapping of texts for "+path)
	members := map[string]string{}
	for _, p := range pairs {
		lines[path+"."+p.key] = p.line
		if p.value.Kind != yaml.ScalarNode || p.value.Tag == "!!null" {
			r.fail(p.line, "%s.%s: want a text, not %s", path, p.key, kindOf(p.value))
		}
		members[p.key] = p.value.Value
	}
	return encoded(members)
}

// list writes a list as JSON.
func (r *reader) list(field protoreflect.FieldDescriptor, p pair, path string, lines map[string]int) json.RawMessage {
	if p.value.Kind != yaml.SequenceNode {
		r.fail(p.line, "%s: want a list, not %s", path, kindOf(p.value))
		return nil
	}
	list := []json.RawMessage{}
	for i, item := range p.value.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		lines[at] = item.Line
		list = append(list, r.scalar(field, resolved(item), at))
	}
	return encoded(list)
}

// scalar writes a value as JSON. Numbers and words such as true stay as they are written, unless the
// field has a text: then they are one.
func (r *reader) scalar(field protoreflect.FieldDescriptor, node *yaml.Node, path string) json.RawMessage {
	if node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
		r.fail(node.Line, "%s: want a value, not %s; leave out what is not set", path, kindOf(node))
		return nil
	}
	switch field.Kind() {
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.EnumKind, protoreflect.MessageKind:
	default:
		if raw := json.RawMessage(node.Value); node.Tag != "!!str" && json.Valid(raw) {
			return raw
		}
	}
	return encoded(node.Value)
}

// encoded returns a value of texts as JSON.
func encoded(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil {
		return nil // there are no texts that cannot be written
	}
	return text
}
