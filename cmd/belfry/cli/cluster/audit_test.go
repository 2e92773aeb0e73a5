package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestAudit: the table has who did what, and which nodes are missing; what is hostile in it commands
// no terminal.
func TestAudit(t *testing.T) {
	h := newHarness(t, clitest.Always(&belfryv1.ListAuditResponse{
		Records: []*belfryv1.AuditRecord{
			{
				Node: "n1", EndedAt: timestamppb.New(time.Unix(1700000000, 5e6)), Token: "ke4h5nvsdg2fcu7a", MadeToken: "abc",
				Address: "10.0.0.7:9", Procedure: "/belfry.v1.AdminService/CreateToken", Request: `{"scopes":["put:a"]}`,
				Outcome: "ok",
			},
			{Node: "n2", EndedAt: timestamppb.New(time.Unix(1700000000, 0)), Procedure: "/\x1b[2J", Outcome: "no: x",
				Unrecorded: 7, RefusedEntries: 2, Queue: "q"},
		},
		Nodes: []*belfryv1.AuditNode{{Name: "n1"}, {Name: "n3", Error: "no route to host"}},
	}))
	h.Run("audit").Holds(t, 0, "2023-11-14 22:13:20.005 +00:00", "n1", "ke4h5nvsdg2fcu7a", "10.0.0.7:9", "CreateToken",
		"ok (made abc)", `{"scopes":["put:a"]}`, "nobody", "·[2J", "(2 refused jobs, the first of q)",
		"(7 refused calls before have no record)",
		"node n3 could not be asked, so its calls are missing: no route to host\n")
	if got := h.Run("audit", "-o", "json"); got.Code != 0 || !strings.Contains(got.Out, `"madeToken":"abc"`) ||
		!strings.Contains(got.Out, `"error":"no route to host"`) {
		t.Errorf("as JSON: %+v", got)
	}
}

// TestAuditPages: pages are read until there are enough calls, with all conditions. A token in place of
// its id is not sent.
func TestAuditPages(t *testing.T) {
	const kept = 1200
	h := newHarness(t, func(m proto.Message) (proto.Message, error) {
		r, ok := m.(*belfryv1.ListAuditRequest)
		if !ok {
			return nil, errors.New("another call")
		}
		from := 0
		if r.PageToken != "" {
			if _, err := fmt.Sscan(r.PageToken, &from); err != nil {
				return nil, err
			}
		}
		out := &belfryv1.ListAuditResponse{}
		for i := from; i < min(kept, from+int(r.PageSize)); i++ {
			out.Records = append(out.Records, &belfryv1.AuditRecord{Node: "n1", Outcome: "ok"})
		}
		if from+int(r.PageSize) < kept {
			out.NextPageToken = fmt.Sprint(from + int(r.PageSize))
		}
		return out, nil
	})
	text, id, _ := tokens.New()
	for args, want := range map[string]struct {
		calls, pages int
		more         bool
	}{
		"--max 0": {1200, 3, false}, "--max 600": {600, 2, true},
		"--failed --procedure PurgeQueue --by " + text: {50, 1, true},
	} {
		h.Requests = nil
		got := h.Run(append([]string{"audit"}, strings.Fields(args)...)...)
		if n := strings.Count(got.Out, "nobody"); got.Code != 0 || n != want.calls || len(h.Requests) != want.pages ||
			strings.Contains(got.Out, "there are older calls") != want.more {
			t.Errorf("%s: exit code %d, %d calls in %d pages, want %d in %d", args, got.Code, n, len(h.Requests), want.calls,
				want.pages)
		}
		if last := clitest.Sent[*belfryv1.ListAuditRequest](h)[0]; strings.HasPrefix(args, "--failed") &&
			(!last.FailedOnly || last.Procedure != "PurgeQueue" || last.Token != id) {
			t.Errorf("%s: %v", args, last)
		}
	}
	h.Requests = nil
	if got := h.Run("audit", "--max", "-1"); got.Code != cli.CodeUsage || !strings.Contains(got.Err, `--max: have "-1", want`) ||
		len(h.Requests) > 0 {
		t.Errorf("a negative number: %+v", got)
	}
}
