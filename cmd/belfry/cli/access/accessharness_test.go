package access

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
)

// newHarness returns a harness for the commands of access.
func newHarness(t *testing.T, answer func(proto.Message) (proto.Message, error)) *clitest.Harness {
	t.Helper()
	return clitest.New(t, clitest.Commands(Commands), answer)
}
