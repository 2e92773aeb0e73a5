// Package naming tells how the contract's names are written outside protobuf: methods in paths and
// enum values in JSON. The server and the OpenAPI description take them from here.
package naming

import (
	"strings"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// PathPrefix starts the short paths: /v1/put stands for /belfry.v1.QueueService/Put.
const PathPrefix = "/v1/"

// Path returns the short path of a method: that of PutBatch is "/v1/put-batch".
func Path(method protoreflect.Name) string {
	var b strings.Builder
	b.WriteString(PathPrefix)
	for i, r := range string(method) {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// EnumPrefix returns the prefix of the names of an enum's values, which JSON does not write: the
// part of the first name before UNSPECIFIED, or "" if the first name is not of that form.
func EnumPrefix(enum protoreflect.EnumDescriptor) string {
	prefix, ok := strings.CutSuffix(string(enum.Values().Get(0).Name()), "UNSPECIFIED")
	if !ok {
		return ""
	}
	return prefix
}
