package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// bufConfig is buf.yaml as far as it is used here; any other key is an error.
type bufConfig struct {
	Version        string
	Modules        []struct{ Path string }
	Lint, Breaking struct{ Use []string }
}

// TestBufModule reads buf.yaml as Buf does: one module with every proto file, all standard rules
// and no exception.
func TestBufModule(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "buf.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var config bufConfig
	strict := yaml.NewDecoder(bytes.NewReader(text))
	strict.KnownFields(true)
	if err := strict.Decode(&config); err != nil {
		t.Fatal(err)
	}
	want := bufConfig{Version: "v2", Modules: []struct{ Path string }{{"rpc/proto"}}}
	want.Lint.Use, want.Breaking.Use = []string{"STANDARD"}, []string{"WIRE_JSON"}
	if diff := cmp.Diff(want, config); diff != "" {
		t.Errorf("buf.yaml (-want +got):\n%s", diff)
	}
	all, err := filepath.Glob(filepath.Join(root, config.Modules[0].Path, "belfry", "v1", "*.proto"))
	if err != nil || len(all) != 4 {
		t.Errorf("the module has %v, %v; want the four files of the contract", all, err)
	}
}
