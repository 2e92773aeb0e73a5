package main

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/belfrydb/belfry/rpc/naming"
)

// document is an OpenAPI document, of which it has the parts that we need.
type document struct {
	OpenAPI    string                `json:"openapi"`
	Info       info                  `json:"info"`
	Security   []map[string][]string `json:"security"`
	Tags       []tag                 `json:"tags"`
	Paths      map[string]pathItem   `json:"paths"`
	Components components            `json:"components"`
}

type info struct {
	Title       string `json:"title"`
	Version     string `json:"version"`
	Description string `json:"description"`
}

type tag struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

type pathItem struct {
	Post operation `json:"post"`
}

type operation struct {
	Tags        []string           `json:"tags"`
	OperationID string             `json:"operationId"`
	Description string             `json:"description"`
	RequestBody content            `json:"requestBody"`
	Responses   map[string]content `json:"responses"`
}

type content struct {
	Description string               `json:"description,omitempty"`
	Required    bool                 `json:"required,omitempty"`
	Content     map[string]mediaType `json:"content"`
}

type mediaType struct {
	Schema schema `json:"schema"`
}

type components struct {
	SecuritySchemes map[string]map[string]string `json:"securitySchemes"`
	Schemas         map[string]*schema           `json:"schemas"`
}

const about = `Calls are a POST with JSON. In JSON, 64-bit integers are strings, durations are seconds ("300s") ` +
	`and are also read as "5m", "1h30m" or a number of seconds, times are RFC 3339, and enum values have no ` +
	`prefix. An unknown field is refused. A field with its default value may be missing from an answer. ` +
	`A later version may add fields to answers. Methods that stream are not described here: they need Connect or gRPC.`

// describe returns the document of the services' calls.
func describe(services []protoreflect.ServiceDescriptor) (*document, error) {
	d := &document{
		OpenAPI: "3.1.0",
		Info:    info{Title: "Belfry", Version: "v1", Description: about},
		// Whether a cluster wants tokens is its configuration.
		Security: []map[string][]string{{}, {"token": {}}},
		Paths:    map[string]pathItem{},
		Components: components{
			SecuritySchemes: map[string]map[string]string{"token": {"type": "http", "scheme": "bearer"}},
		},
	}
	s := newSchemas()
	for _, service := range services {
		d.Tags = append(d.Tags, tag{Name: string(service.Name()), Description: comment(service)})
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			if m.IsStreamingClient() || m.IsStreamingServer() {
				continue
			}
			path := naming.Path(m.Name())
			if _, ok := d.Paths[path]; ok {
				return nil, fmt.Errorf("two methods have the path %s", path)
			}
			d.Paths[path] = pathItem{Post: describeMethod(s, m)}
		}
	}
	if len(d.Paths) == 0 {
		return nil, errors.New("the descriptors have no service")
	}
	d.Components.Schemas = s.all()
	return d, nil
}

// describeMethod describes a method and collects the schemas that it needs.
func describeMethod(s *schemas, m protoreflect.MethodDescriptor) operation {
	text := comment(m)
	options, _ := m.Options().(*descriptorpb.MethodOptions)
	switch options.GetIdempotencyLevel() {
	case descriptorpb.MethodOptions_NO_SIDE_EFFECTS:
		text += " It changes nothing, so a repeat is safe."
	case descriptorpb.MethodOptions_IDEMPOTENT:
		text += " A repeat is safe."
	case descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN:
	}
	return operation{
		Tags:        []string{string(m.Parent().Name())},
		OperationID: string(m.Name()),
		Description: text,
		RequestBody: content{Required: true, Content: asJSON(s.message(m.Input()))},
		Responses: map[string]content{
			"200": {Description: "The call was carried out.", Content: asJSON(s.answer(m.Output()))},
			"default": {
				Description: "The call was refused, failed, or has an unknown outcome.", Content: asJSON(ref("Error")),
			},
		},
	}
}

func asJSON(s schema) map[string]mediaType {
	return map[string]mediaType{"application/json": {Schema: s}}
}

// comment returns the comment above a declaration, its paragraphs as lines.
func comment(d protoreflect.Descriptor) string {
	var paragraphs []string
	text := d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		paragraphs = append(paragraphs, strings.Join(strings.Fields(paragraph), " "))
	}
	return strings.Join(paragraphs, "\n")
}
