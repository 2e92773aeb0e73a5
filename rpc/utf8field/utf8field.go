// Package utf8field refuses calls with a text that is not UTF-8, and names the field. A protobuf string is
// UTF-8, but a Go string and an argument of a shell may have any bytes.
package utf8field

import (
	"context"
	"strings"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
)

// Interceptor returns an interceptor for clients that does not send a request with a text that is not UTF-8.
// The caller gets the error that refused makes of its field. Without it Connect calls the server with an
// empty request, and then says that a string field is invalid.
func Interceptor(refused func(field string) error) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
			if m, ok := request.Any().(proto.Message); ok {
				if _, err := proto.Marshal(m); err != nil { // far cheaper than to look for a field each time
					if field := Find(m); field != "" {
						return nil, refused(field)
					}
				}
			}
			return next(ctx, request)
		}
	}
}

// Find returns the path of a field of m whose text is not valid UTF-8, by the names that fields have in JSON:
// "job.key". A list and a map have the path of their field. Without such a text it is empty.
func Find(m proto.Message) (field string) {
	_ = protorange.Range(m.ProtoReflect(), func(p protopath.Values) error { // it fails only with what this returns
		last := p.Index(-1)
		text, _ := last.Value.Interface().(string)
		if last.Step.Kind() == protopath.MapIndexStep {
			text += " " + last.Step.MapIndex().String()
		}
		if utf8.ValidString(text) {
			return nil
		}
		var names []string
		for _, step := range p.Path {
			if step.Kind() == protopath.FieldAccessStep {
				names = append(names, step.FieldDescriptor().JSONName())
			}
		}
		field = strings.Join(names, ".")
		return protorange.Terminate
	})
	return field
}
