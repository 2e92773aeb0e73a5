package admin

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/rpc/auth"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/naming"
	"github.com/belfrydb/belfry/rpc/spelling"
)

const (
	// auditPageMax bounds a page of audited calls, which may have 4 KiB each.
	auditPageMax = 500
	// auditPathMax bounds the path of a call in a request, in bytes.
	auditPathMax = 256
	// nodeErrorMax bounds what an answer says about a node that did not answer, in bytes.
	nodeErrorMax = 256
)

// ListAudit implements AdminService. Nodes ask each other with the request itself, and answer with
// the response.
func (s *Service) ListAudit(ctx context.Context,
	req *belfryv1.ListAuditRequest) (*belfryv1.ListAuditResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	most := min(c.Page("pageSize", req.GetPageSize()), auditPageMax)
	query, f := auditQuery(req)
	if f != nil {
		c.Fail(f)
	}
	if c.Err != nil {
		return nil, c.Err
	}
	asked := proto.CloneOf(req)
	asked.PageSize = int32(most) + 1 //nolint:gosec // at most 501
	question, err := proto.Marshal(asked)
	if err != nil {
		return nil, fmt.Errorf("encoding a question about audited calls: %w", err)
	}
	out := &belfryv1.ListAuditResponse{}
	for _, a := range s.cluster.AskAudit(ctx, question) {
		answer := &belfryv1.ListAuditResponse{}
		if a.Err == nil {
			a.Err = proto.Unmarshal(a.Answer, answer)
		}
		if a.Err != nil {
			answer.Nodes = []*belfryv1.AuditNode{{Error: fault.Clip(a.Err.Error(), nodeErrorMax)}}
		}
		for _, n := range answer.Nodes {
			n.Name = a.Name
		}
		out.Nodes, out.Records = append(out.Nodes, answer.Nodes...), append(out.Records, answer.Records...)
	}
	slices.SortFunc(out.Nodes, func(a, b *belfryv1.AuditNode) int { return strings.Compare(a.Name, b.Name) })
	out.Records = slices.DeleteFunc(out.Records, func(r *belfryv1.AuditRecord) bool { return !query.Selects(r) })
	slices.SortFunc(out.Records, auth.NewerFirst)
	if len(out.Records) > most {
		out.Records = out.Records[:most]
		out.NextPageToken = auditToken(out.Records[most-1])
	}
	return out, nil
}

// answerAudit answers the question of ListAudit of any node with the calls of this node.
func (s *Service) answerAudit(question []byte) ([]byte, error) {
	req := &belfryv1.ListAuditRequest{}
	if err := proto.Unmarshal(question, req); err != nil {
		return nil, fmt.Errorf("reading a question about audited calls: %w", err)
	}
	query, f := auditQuery(req)
	if f != nil {
		return nil, f
	}
	page := s.trail.Page(query, min(max(int(req.PageSize), 0), auditPageMax+1))
	return proto.Marshal(&belfryv1.ListAuditResponse{
		Records: page.Records,
		Nodes:   []*belfryv1.AuditNode{{Since: timestamppb.New(page.Since), Kept: uint32(page.Kept)}}, //nolint:gosec // 1,000
	})
}

// auditQuery reads the conditions of a request.
func auditQuery(req *belfryv1.ListAuditRequest) (*auth.TrailQuery, *fault.Error) {
	q := &auth.TrailQuery{Token: req.GetToken(), FailedOnly: req.GetFailedOnly()}
	if q.Token != "" && q.Token != auth.Nobody && !tokens.ValidID(q.Token) {
		return nil, fault.Invalid("token", "want the id of a token, the 16 letters and digits between its first two "+
			"underscores, or %s for calls without one", auth.Nobody)
	}
	var f *fault.Error
	if q.Procedures, f = auditPaths(req.GetProcedure()); f != nil {
		return nil, f
	}
	if text := req.GetPageToken(); text != "" {
		if q.After = afterAuditToken(text); q.After == nil {
			return nil, fault.Invalid("pageToken", "not a token of this list: pass on nextPageToken")
		}
	}
	return q, nil
}

// auditPaths returns the paths that the records of a method can have; none if no method is named. A
// call that is refused before its method is looked up has the path of its request, which may be the
// short one.
func auditPaths(procedure string) ([]string, *fault.Error) {
	switch {
	case procedure == "":
		return nil, nil
	case len(procedure) > auditPathMax:
		return nil, fault.TooLarge("procedure", len(procedure), auditPathMax)
	case strings.HasPrefix(procedure, "/"):
		return []string{procedure}, nil
	}
	var names []string
	for _, m := range methods() {
		if strings.EqualFold(string(m.Name()), procedure) {
			return []string{"/" + string(m.Parent().FullName()) + "/" + string(m.Name()), naming.Path(m.Name())}, nil
		}
		names = append(names, string(m.Name()))
	}
	near := spelling.Nearest(procedure, names)
	if near != "" {
		near = "; did you mean " + near + "?"
	}
	return nil, fault.Invalid("procedure", "no method is named %s%s", fault.Quote([]byte(procedure)), near)
}

// methods returns the methods of all services.
func methods() (all []protoreflect.MethodDescriptor) {
	for _, file := range []protoreflect.FileDescriptor{
		belfryv1.File_belfry_v1_queue_proto, belfryv1.File_belfry_v1_admin_proto,
		belfryv1.File_belfry_v1_schedule_proto,
	} {
		for i := range file.Services().Len() {
			of := file.Services().Get(i).Methods()
			for k := range of.Len() {
				all = append(all, of.Get(k))
			}
		}
	}
	return all
}

// auditToken returns the token of the page that follows a record.
func auditToken(r *belfryv1.AuditRecord) string {
	at := r.EndedAt.AsTime()
	return base64.RawURLEncoding.EncodeToString(
		fmt.Appendf(nil, "%d %d %d %s", at.Unix(), at.Nanosecond(), r.Serial, r.Node))
}

// afterAuditToken returns a record at the position of a page token; nil if the token is none.
func afterAuditToken(token string) *belfryv1.AuditRecord {
	text, err := base64.RawURLEncoding.DecodeString(token)
	parts := strings.SplitN(string(text), " ", 4)
	if err != nil || len(parts) != 4 {
		return nil
	}
	var numbers [3]uint64
	for i := range numbers {
		if numbers[i], err = strconv.ParseUint(parts[i], 10, 63); err != nil {
			return nil
		}
	}
	return &belfryv1.AuditRecord{
		EndedAt: timestamppb.New(time.Unix(int64(numbers[0]), int64(numbers[1]))), //nolint:gosec // both have 63 bits
		Serial:  numbers[2], Node: parts[3],
	}
}
