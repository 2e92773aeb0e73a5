package rpc

import (
	"crypto/sha256"
	"encoding/hex"

	"google.golang.org/protobuf/proto"
)

// RequestCatalog is a Catalog that remembers requests.
type RequestCatalog interface {
	Catalog
	// ForRequest returns the catalog as one request sees it: CreateQueue and UpdateQueue that have succeeded before under the
	// same id answer as they did then, for 5 minutes, and fail with an error that has a method OtherContent() string if the
	// content is not the same.
	ForRequest(id, content string) Catalog
}

// forRequest returns the catalog for a call with a request id; remembers is false if there is none, or if the catalog keeps
// no requests: a repeat is then another call.
func (s *adminService) forRequest(id string, req proto.Message) (catalog Catalog, remembers bool) {
	remembering, ok := s.catalog.(RequestCatalog)
	if !ok || id == "" {
		return s.catalog, false
	}
	return remembering.ForRequest(id, contentOf(req)), true
}

// contentOf returns a hash of all that a request says. It is compared with hashes of other nodes, but not for longer than
// requests are remembered, so that the encoding of a message need not be the same in all versions.
func contentOf(req proto.Message) string {
	// A message that was decoded can be encoded.
	data, _ := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	sum := sha256.Sum256(append([]byte(req.ProtoReflect().Descriptor().FullName()+"\x00"), data...))
	return hex.EncodeToString(sum[:16])
}
