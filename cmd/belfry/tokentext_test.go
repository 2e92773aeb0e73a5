package main

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestTokenTexts: a token that is in a file is shown by its path, and one that ends later as that.
func TestTokenTexts(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		if _, ok := r.(*belfryv1.DeleteTokenRequest); ok {
			return &belfryv1.DeleteTokenResponse{Found: true}, nil
		}
		return &belfryv1.CreateTokenResponse{Token: "secret", Record: &belfryv1.Token{Id: "a", Scopes: []string{"put:x"}}}, nil
	})
	out := filepath.Join(t.TempDir(), "f")
	if got := h.run("token", "create", "--scope", "put:x", "--out", out, "-o", "json"); got.code != 0 || !strings.Contains(got.out, `"out":"`+out+`"`) || strings.Contains(got.out, `"token"`) {
		t.Errorf("in a file: %+v", got)
	}
	if got := h.run("token", "delete", "a", "--after", "5s"); got.out != "a ends in 5s\n" {
		t.Errorf("later: %+v", got)
	}
}
