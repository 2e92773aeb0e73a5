package admin

import (
	"crypto/sha256"
	"encoding/hex"

	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/rpc/backend"
)

// forRequest returns the catalog for a call with a request id. remembers is false without an id: a
// repeat is then another call.
func (s *Service) forRequest(id string, req proto.Message) (catalog backend.Catalog, remembers bool) {
	if id == "" {
		return s.router.Catalog, false
	}
	return s.router.Catalog.ForRequest(id, contentOf(req)), true
}

// contentOf returns a hash of all that a request says. It is compared with hashes of other nodes,
// but not for longer than requests are remembered, so that the encoding of a message need not be
// the same in all versions.
func contentOf(req proto.Message) string {
	// A message that was decoded can be encoded.
	data, _ := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	sum := sha256.Sum256(append([]byte(req.ProtoReflect().Descriptor().FullName()+"\x00"), data...))
	return hex.EncodeToString(sum[:16])
}
