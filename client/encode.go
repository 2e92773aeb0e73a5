package client

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/client/internal/placement"
	"github.com/belfrydb/belfry/client/internal/session"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Puts and acks are encoded when they are made, not when their batch leaves. So only bytes are kept
// of them, and a repeat is the same bytes.

// An encodedPut is a put as an entry of a PutBatchRequest.
type encodedPut struct {
	wire  []byte // with its tag and length
	place placement.Place
}

// The fields of PutBatchRequest and AckBatchRequest.
const (
	fieldEntries   protowire.Number = 1
	fieldRequestID protowire.Number = 2
)

// A putScratch is the memory in which options are applied before a put is encoded.
type putScratch struct {
	req   belfryv1.PutRequest
	data  belfryv1.PutRequest_Data
	coded []byte
	chunk putChunk // of PutBatch
}

// scratch returns memory that no put uses.
func (c *Client) scratch() *putScratch {
	s, ok := c.scratches.Get().(*putScratch)
	if !ok {
		s = new(putScratch)
	}
	return s
}

// free lets another put use the memory. It drops what belongs to the caller, and large pieces.
func (c *Client) free(s *putScratch) {
	s.req.Reset()
	s.data.Data = nil
	s.chunk.clear()
	s.chunk.client, s.chunk.results = nil, nil
	if cap(s.coded) > session.RequestBytesKept {
		s.coded = nil
	}
	c.scratches.Put(s)
}

// headerSlack is the most bytes that a header takes besides its name and value.
const headerSlack = 16

// request applies the options of a put, and returns an upper bound of the bytes it adds to a batch.
// It refuses a put that would spoil the batch for others: text that is not UTF-8 cannot be encoded.
// The result is valid until the next call.
func (s *putScratch) request(p Put) (*belfryv1.PutRequest, int, error) {
	req := &s.req
	req.Reset()
	s.data.Data = p.Body
	req.Queue, req.Body = p.Queue, &s.data
	for _, opt := range p.Options {
		_, in := req.GetWhen().(*belfryv1.PutRequest_Delay)
		_, at := req.GetWhen().(*belfryv1.PutRequest_DueAt)
		opt.apply(req)
		if in && req.GetDueAt() != nil || at && req.GetDelay() != nil {
			return nil, 0, invalidError("In and At are both given: a put takes one of them")
		}
	}
	bytes := 128 + len(req.GetQueue()) + len(req.GetId()) + len(p.Body) + 16*len(req.GetRetryDelays())
	valid := utf8.ValidString(req.GetQueue()) && utf8.ValidString(req.GetId())
	for name, value := range req.GetHeaders() {
		bytes += headerSlack + len(name) + len(value)
		valid = valid && utf8.ValidString(name) && utf8.ValidString(value)
	}
	if !valid {
		return nil, 0, invalidError("queue, id and headers of a put must be valid UTF-8")
	}
	return req, bytes, nil
}

// encode appends a put to dst as an entry of a batch.
func (s *putScratch) encode(dst []byte, req *belfryv1.PutRequest) ([]byte, error) {
	var err error
	if s.coded, err = appendPut(s.coded[:0], req); err != nil {
		return dst, err
	}
	dst = protowire.AppendTag(dst, fieldEntries, protowire.BytesType)
	return protowire.AppendBytes(dst, s.coded), nil
}

// appendPut encodes a put: one with the usual fields by hand, any other by the generated code.
func appendPut(dst []byte, req *belfryv1.PutRequest) ([]byte, error) {
	usual := req.Ttr == nil && req.Priority == nil && len(req.Headers) == 0 && req.MaxAttempts == nil &&
		len(req.RetryDelays) == 0 &&
		req.Ttl == nil && req.RequestId == "" && !req.Again
	data, ok := req.Body.(*belfryv1.PutRequest_Data)
	if !usual || !ok {
		return proto.MarshalOptions{}.MarshalAppend(dst, req)
	}
	if req.Queue != "" {
		dst = protowire.AppendTag(dst, 1, protowire.BytesType)
		dst = protowire.AppendString(dst, req.Queue)
	}
	if req.Id != "" {
		dst = protowire.AppendTag(dst, 2, protowire.BytesType)
		dst = protowire.AppendString(dst, req.Id)
	}
	switch when := req.When.(type) {
	case *belfryv1.PutRequest_Delay:
		dst = appendSeconds(dst, 3, when.Delay.GetSeconds(), when.Delay.GetNanos())
	case *belfryv1.PutRequest_DueAt:
		dst = appendSeconds(dst, 4, when.DueAt.GetSeconds(), when.DueAt.GetNanos())
	}
	dst = protowire.AppendTag(dst, 8, protowire.BytesType)
	return protowire.AppendBytes(dst, data.Data), nil
}

// appendSeconds encodes a field that is a Duration or a Timestamp.
func appendSeconds(dst []byte, field protowire.Number, seconds int64, nanos int32) []byte {
	var b [2 * (1 + 10)]byte
	message := b[:0]
	if seconds != 0 {
		message = protowire.AppendTag(message, 1, protowire.VarintType)
		message = protowire.AppendVarint(message, uint64(seconds)) //nolint:gosec // the same bits
	}
	if nanos != 0 {
		message = protowire.AppendTag(message, 2, protowire.VarintType)
		message = protowire.AppendVarint(message, uint64(nanos)) //nolint:gosec // negative ones are extended to 64 bits
	}
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	return protowire.AppendBytes(dst, message)
}

// appendEntry encodes a text as an entry of a batch.
func appendEntry(dst []byte, text string) []byte {
	dst = protowire.AppendTag(dst, fieldEntries, protowire.BytesType)
	return protowire.AppendString(dst, text)
}
