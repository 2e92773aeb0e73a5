package top

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
)

// newHarness returns a harness for the commands of top.
func newHarness(t *testing.T, answer func(proto.Message) (proto.Message, error)) *clitest.Harness {
	t.Helper()
	return clitest.New(t, clitest.Commands(Commands), answer)
}
