// Package openapi holds the description of the HTTP calls with JSON in the form of OpenAPI 3.1. The
// program in generate writes it from the protobuf sources; `make generate` runs that.
package openapi

import (
	_ "embed"
	"net/http"
)

//go:embed openapi.json
var document []byte

// Path is where a server answers with the document.
const Path = "/openapi.json"

// Handler returns a handler that answers with the document.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		// What fails here is the caller's connection, which net/http closes.
		_, _ = w.Write(document)
	})
}
