package naming_test

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/naming"
)

func TestPath(t *testing.T) {
	for name, want := range map[protoreflect.Name]string{
		"Put": "/v1/put", "PutBatch": "/v1/put-batch", "GetClusterSettings": "/v1/get-cluster-settings",
	} {
		if got := naming.Path(name); got != want {
			t.Errorf("Path(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestEnumPrefix(t *testing.T) {
	if got := naming.EnumPrefix(belfryv1.JobState(0).Descriptor()); got != "JOB_STATE_" {
		t.Errorf("the prefix of JobState is %q", got)
	}
	if got := naming.EnumPrefix(structpb.NullValue(0).Descriptor()); got != "" {
		t.Errorf("the prefix of NullValue, whose first name is NULL_VALUE, is %q", got)
	}
}
