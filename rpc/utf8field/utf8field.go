// Package utf8field refuses unary calls with a text that is not UTF-8, and names the field. A protobuf string is
// UTF-8, but a Go string and an argument of a shell may have any bytes.
package utf8field

import (
	"context"
	"strconv"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
)

// Interceptor returns an interceptor for clients that makes no unary call whose request cannot be encoded.
// If a text of it is not UTF-8, the caller gets the error that refused makes of its field. Without the
// interceptor Connect (1.21) calls the server with an empty request, and then says that a string field is
// invalid.
func Interceptor(refused func(field string) error) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
			if m, ok := request.Any().(proto.Message); ok {
				if _, err := proto.Marshal(m); err != nil { // far cheaper than to look for a field each time
					if field := Find(m); field != "" {
						err = refused(field)
					}
					return nil, err
				}
			}
			return next(ctx, request)
		}
	}
}

// Find returns the path of a field of m whose text is not valid UTF-8, by the names that fields have in JSON:
// "job.key", "names[3]". All of a map has the path of its field. Without such a text it is empty.
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
		for _, step := range p.Path {
			switch step.Kind() {
			case protopath.FieldAccessStep:
				field += "." + step.FieldDescriptor().JSONName()
			case protopath.ListIndexStep:
				field += "[" + strconv.Itoa(step.ListIndex()) + "]"
			}
		}
		field = field[1:]
		return protorange.Terminate
	})
	return field
}
