package keys

import (
	"context"
	"net/url"
	"strings"
	"testing"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/inputs"
)

// manyKeys has more keys than a call looks at.
type manyKeys struct{ API }

func (manyKeys) GetQueue(context.Context, *belfryv1.GetQueueRequest) (*belfryv1.GetQueueResponse, error) {
	return &belfryv1.GetQueueResponse{Queue: &belfryv1.Queue{}}, nil
}

func (manyKeys) ListKeys(context.Context, *belfryv1.ListKeysRequest) (*belfryv1.ListKeysResponse, error) {
	return &belfryv1.ListKeysResponse{StoppedEarly: true, Searched: 1_000_000}, nil
}

// TestStoppedEarly: pages say that keys may be missing, rather than that there are none.
func TestStoppedEarly(t *testing.T) {
	v := &Visit{Forms: &inputs.Forms{}, API: manyKeys{}, In: url.Values{"queue": {"q"}, "key": {"k"}}.Get}
	list, err := v.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	one, err := v.Show(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const want = "Only 1\u202f000\u202f000 keys were looked at, as many as a call may. Others may be missing."
	var out strings.Builder
	if err := list.Body.Render(&out); err != nil || !strings.Contains(out.String(), want) {
		t.Errorf("the list: %s, %v", out.String(), err)
	}
	out.Reset()
	if err := one.Body.Render(&out); err != nil || !strings.Contains(out.String(), want) ||
		strings.Contains(out.String(), "It has no jobs") {
		t.Errorf("a key: %s, %v", out.String(), err)
	}
}
