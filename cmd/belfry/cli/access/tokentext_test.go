package access

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestTokenTexts: a token that is in a file is shown by its path, and one that ends later as that.
func TestTokenTexts(t *testing.T) {
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		if _, ok := r.(*belfryv1.DeleteTokenRequest); ok {
			return &belfryv1.DeleteTokenResponse{Found: true}, nil
		}
		return &belfryv1.CreateTokenResponse{
			Token: "secret", Record: &belfryv1.Token{Id: "a", Scopes: []string{"put:x"}},
		}, nil
	})
	out := filepath.Join(t.TempDir(), "f")
	if got := h.Run("token", "create", "--scope", "put:x", "--out", out, "-o", "json"); got.Code != 0 ||
		!strings.Contains(got.Out, `"out":"`+out+`"`) || strings.Contains(got.Out, `"token"`) {
		t.Errorf("in a file: %+v", got)
	}
	if got := h.Run("token", "delete", "a", "--after", "5s"); got.Out != "a ends in 5s\n" {
		t.Errorf("later: %+v", got)
	}
}

// TestTokenFlagsAreRefusedByName: what a token cannot be is said with the flag and its limits,
// before anything is sent.
func TestTokenFlagsAreRefusedByName(t *testing.T) {
	h := newHarness(t, nil)
	for _, test := range []struct{ args, says string }{
		{"create --scope put:a --ttl 1ms", `--ttl: have "1ms", which is out of range: want 1s to 87660h, which is 10 years`},
		{"create --scope put:a --ttl 4000d", `--ttl: have "4000d", which is out of range: want 1s to 87660h`},
		{"create --scope put:a --ttl 999999d",
			`--ttl: have "999999d", the duration is longer than 292 years, of 1s to 87660h`},
		{"create --scope put:a --ttl 11y", `a number of seconds, of 1s to 87660h`},
		{"rotate a --ttl 0s", `--ttl: have "0s", which is out of range: want 1s to`},
		{"rotate a --overlap -1s", `--overlap: have "-1s", which is out of range: want 0s to 87660h`},
		{"delete a --after 4000d", `--after: have "4000d", which is out of range: want 0s to`},
		{"create --scope put:a/b/c", `--scope: no queue can be meant by "a/b/c" in scope "put:a/b/c"`},
		{"create --scope view:a --scope put:\u00a0a", `--scope: there is a blank in the queues`},
	} {
		got := h.Run(append([]string{"token"}, strings.Split(test.args, " ")...)...)
		if got.Code != cli.CodeUsage || !strings.Contains(got.Err, test.says) || len(h.Requests) != 0 {
			t.Errorf("%s: %+v, want %s", test.args, got, test.says)
		}
	}
}

// TestNoTokens: where there is none that is said, as of queues and quotas.
func TestNoTokens(t *testing.T) {
	h := newHarness(t, clitest.Always(&belfryv1.ListTokensResponse{}))
	if got := h.Run("token", "list"); got != (clitest.Left(0, "no tokens but the root tokens\n", "")) {
		t.Errorf("%+v", got)
	}
}
