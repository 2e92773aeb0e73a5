// Generate reads the contract as a FileDescriptorSet with comments from standard input and writes
// its OpenAPI description to standard output.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

func main() {
	if err := generate(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "generating the OpenAPI description:", err)
		os.Exit(1)
	}
}

func generate(in io.Reader, out io.Writer) error {
	encoded, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("reading the descriptors: %w", err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(encoded, &set); err != nil {
		return fmt.Errorf("decoding the descriptors: %w", err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return fmt.Errorf("linking the descriptors: %w", err)
	}
	var services []protoreflect.ServiceDescriptor
	for _, file := range set.File {
		linked, err := files.FindFileByPath(file.GetName())
		if err != nil {
			return fmt.Errorf("finding a file of the set: %w", err)
		}
		for i := range linked.Services().Len() {
			services = append(services, linked.Services().Get(i))
		}
	}
	described, err := describe(services)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(described, "", " ")
	if err != nil {
		return fmt.Errorf("writing the document: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s\n", text)
	return err
}
