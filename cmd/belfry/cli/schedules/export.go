package schedules

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a verbs) exportCommand() *cobra.Command {
	var prefix string
	c := &cobra.Command{
		Use:   "export QUEUE...",
		Short: "Write the schedules of queues as a file for 'belfry schedule apply'",
		Long: `
Export writes the schedules of queues to standard output, in YAML, as 'belfry schedule apply' reads
them: to apply the file changes nothing. Counts, last firings and pauses are not in it.`,
		Example: `  belfry schedule export reports sync > schedules.yaml
  belfry schedule export sync --prefix shop- > shops.yaml`,
		Args:              cli.Arguments(1, cli.Unlimited, "QUEUE"),
		ValidArgsFunction: a.CompleteQueue,
	}
	c.Flags().StringVar(&prefix, flag.Prefix, "", "only schedules whose names begin with this")
	c.RunE = func(c *cobra.Command, args []string) error {
		conn, err := a.Connect()
		if err != nil {
			return err
		}
		var groups []*yaml.Node
		for _, queue := range args {
			all, err := (planner{a.App, conn}).export(c.Context(), queue, prefix)
			if err == nil && len(all) == 0 {
				err = a.Within(c.Context(), func(ctx context.Context) error { return queueThere(ctx, conn, queue) })
			}
			if err != nil {
				return err
			}
			groups = append(groups, groupNode(scope{queue: queue, prefix: prefix}, all))
		}
		return a.writeGroups(groups)
	}
	return a.ClientFlags(c)
}

// export reads the schedules of a queue in full.
func (p planner) export(ctx context.Context, queue, prefix string) ([]*belfryv1.Schedule, error) {
	all, err := p.list(ctx, queue, prefix)
	if err != nil {
		return nil, err
	}
	group, reading := errgroup.WithContext(ctx)
	group.SetLimit(readAtOnce)
	for i, listed := range all {
		group.Go(func() (err error) {
			all[i], err = p.get(reading, queue, listed.Name)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(s *belfryv1.Schedule) bool { return s == nil }), nil // deleted since
}

// writeGroups writes groups: a document each, or as a list in JSON.
func (a verbs) writeGroups(groups []*yaml.Node) error {
	if a.Output == "json" {
		list := make([]any, len(groups))
		for i, group := range groups {
			if err := group.Decode(&list[i]); err != nil {
				return fmt.Errorf("writing JSON: %w", err)
			}
		}
		text, err := escapedJSON(list)
		if err != nil {
			return fmt.Errorf("writing JSON: %w", err)
		}
		return a.Flush(func(w io.Writer) { fmt.Fprintf(w, "%s\n", text) })
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	for _, group := range groups {
		if err := encoder.Encode(group); err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
	}
	return a.Flush(func(w io.Writer) { w.Write(text.Bytes()) }) //nolint:errcheck // w is memory
}

// escapedJSON writes a value as JSON that is YAML, too. YAML takes some characters only if they are
// escaped, such as DEL. It does not know how JSON escapes those above U+FFFF, and takes them as they are.
func escapedJSON(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, r := range string(text) {
		if unicode.IsPrint(r) || r > 0xffff {
			out = utf8.AppendRune(out, r)
		} else {
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out, nil
}

// groupNode writes the schedules of a scope as a group.
func groupNode(within scope, all []*belfryv1.Schedule) *yaml.Node {
	group := mappingNode()
	group.put(keyQueue, textNode(within.queue))
	if within.prefix != "" {
		group.put(keyPrefix, textNode(within.prefix))
	}
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, s := range all {
		item := mappingNode()
		item.put(keyName, textNode(s.Name))
		keys, parts := content{s.Spec, s.Policy, s.Job}.trimmed().parts()
		for i, part := range parts {
			if fields := messageNode(part); len(fields.Content) > 0 {
				item.put(keys[i], fields.Node)
			}
		}
		list.Content = append(list.Content, item.Node)
	}
	group.put(keySchedules, list)
	return group.Node
}

// mapping is a node of a mapping that is being written.
type mapping struct{ *yaml.Node }

func mappingNode() mapping { return mapping{&yaml.Node{Kind: yaml.MappingNode}} }

// put appends a pair.
func (m mapping) put(key string, value *yaml.Node) {
	m.Content = append(m.Content, textNode(key), value)
}

// messageNode writes the fields of a message that are set.
func messageNode(m protoreflect.Message) mapping {
	out := mappingNode()
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if !m.Has(field) {
			continue
		}
		value := m.Get(field)
		var node *yaml.Node
		switch {
		case field.IsMap():
			texts := mappingNode()
			for _, p := range propertiesOf(field, value, property{}) {
				texts.put(strings.TrimPrefix(p.path, "."), textNode(p.exact))
			}
			node = texts.Node
		case field.IsList():
			node = &yaml.Node{Kind: yaml.SequenceNode}
			for i := range value.List().Len() {
				node.Content = append(node.Content, valueNode(field, value.List().Get(i)))
			}
		default:
			node = valueNode(field, value)
		}
		out.put(field.JSONName(), node)
	}
	return out
}

// valueNode writes a value.
func valueNode(field protoreflect.FieldDescriptor, value protoreflect.Value) *yaml.Node {
	switch field.Kind() {
	case protoreflect.BytesKind:
		return textNode(base64.StdEncoding.EncodeToString(value.Bytes()))
	case protoreflect.BoolKind:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: value.String()}
	case protoreflect.Int64Kind, protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: value.String()}
	default:
		return textNode(textOf(field, value))
	}
}

// textNode writes a text: as it is, over several lines, or quoted if YAML would read it as something
// else.
func textNode(text string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if text == "<<" { // a key that merges
		node.Style = yaml.DoubleQuotedStyle
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if line != strings.TrimSpace(line) || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) ||
			line == "" && strings.Contains(text, "\n") {
			node.Style = yaml.DoubleQuotedStyle
		}
	}
	return node
}
