package admin

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/access/tokens"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
)

// CreateToken implements AdminService.
func (s *Service) CreateToken(ctx context.Context,
	req *belfryv1.CreateTokenRequest) (*belfryv1.CreateTokenResponse, error) {
	open, f := s.rules.Authorizer.OpenAccess()
	switch {
	case f != nil:
		return nil, f
	case open:
		f = fault.New(belfryv1.Reason_REASON_FORBIDDEN)
		f.Message = "this server lets everybody do everything, so that anybody could make a token that is good for ever: " +
			"start it with --root-tokens"
		return nil, f
	}
	c := s.rules.Request(ctx, tokens.Admin)
	record := tokens.Record{About: req.GetAbout(), Created: c.Now.UnixNano(), Scopes: c.Scopes("scopes", req.GetScopes())}
	if len(record.About) > tokens.AboutMax {
		c.Fail(fault.TooLarge("about", len(record.About), tokens.AboutMax))
	}
	if ttl, given := c.Span("ttl", req.GetTtl(), check.TokenTTLMin, check.TokenTTLMax); given {
		record.NotAfter, record.TTL = c.Now.Add(ttl).UnixNano(), int64(ttl)
	}
	if c.Err != nil {
		return nil, c.Err
	}
	if c.Permissions != nil {
		record.CreatedBy = c.Permissions.Caller
	}
	var text string
	text, record.ID, record.Hash = tokens.New()
	if err := s.router.Catalog.AddToken(ctx, record); err != nil {
		return nil, err
	}
	return &belfryv1.CreateTokenResponse{Token: text, Record: wireToken(&record)}, nil
}

// ListTokens implements AdminService.
func (s *Service) ListTokens(ctx context.Context,
	req *belfryv1.ListTokensRequest) (*belfryv1.ListTokensResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	most := c.Page("pageSize", req.GetPageSize())
	if after := req.GetPageToken(); after != "" && !tokens.ValidID(after) {
		c.Fail(fault.Invalid("pageToken", "not a token of this list: pass on nextPageToken"))
	}
	if c.Err != nil {
		return nil, c.Err
	}
	out := &belfryv1.ListTokensResponse{}
	for _, record := range s.router.Catalog.Tokens() {
		if record.ID <= req.GetPageToken() {
			continue
		}
		if len(out.Tokens) == most {
			out.NextPageToken = out.Tokens[most-1].GetId()
			break
		}
		out.Tokens = append(out.Tokens, wireToken(record))
	}
	return out, nil
}

// DeleteToken implements AdminService. It needs no request id: a repeat finds the token gone, as
// the caller wants.
func (s *Service) DeleteToken(ctx context.Context,
	req *belfryv1.DeleteTokenRequest) (*belfryv1.DeleteTokenResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	if !tokens.ValidID(req.GetId()) {
		c.Fail(fault.Invalid("id", "want the id of a token, the 16 letters and digits between its first two underscores"))
	}
	var end time.Time
	if after, _ := c.Span("after", req.GetAfter(), 0, check.TokenTTLMax); after > 0 {
		end = c.Now.Add(after)
	}
	if c.Err != nil {
		return nil, c.Err
	}
	found, err := s.router.Catalog.EndToken(ctx, req.GetId(), end)
	if err != nil {
		return nil, fmt.Errorf("ending a token: %w", err)
	}
	return &belfryv1.DeleteTokenResponse{Found: found}, nil
}

// wireToken converts the record of a token, without its hash.
func wireToken(r *tokens.Record) *belfryv1.Token {
	out := &belfryv1.Token{
		Id: r.ID, About: r.About, CreatedAt: timestamppb.New(time.Unix(0, r.Created)), CreatedBy: r.CreatedBy,
	}
	for i := range r.Scopes {
		out.Scopes = append(out.Scopes, r.Scopes[i].String())
	}
	if r.NotAfter != 0 {
		out.NotAfter = timestamppb.New(time.Unix(0, r.NotAfter))
	}
	if r.TTL != 0 {
		out.Ttl = durationpb.New(time.Duration(r.TTL))
	}
	return out
}
