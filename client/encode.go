package client

import (
	"github.com/belfrydb/belfry/client/internal/batchcodec"
	"github.com/belfrydb/belfry/client/internal/placement"
	"github.com/belfrydb/belfry/client/internal/session"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/utf8field"
)

// Puts and acks are encoded when they are made, not when their batch leaves. So only bytes are kept
// of them, and a repeat is the same bytes.

// An encodedPut is a put as an entry of a PutBatchRequest.
type encodedPut struct {
	wire  []byte // with its tag and length
	place placement.Place
}

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
	bytes, valid := batchcodec.PutBytesMax(req)
	if !valid {
		return nil, 0, invalidError("%s: not valid UTF-8", utf8field.Find(req))
	}
	return req, bytes, nil
}

// encode appends a put to dst as an entry of a batch.
func (s *putScratch) encode(dst []byte, req *belfryv1.PutRequest) ([]byte, error) {
	var err error
	if s.coded, err = batchcodec.AppendPut(s.coded[:0], req); err != nil {
		return dst, err
	}
	return batchcodec.AppendEntry(dst, s.coded), nil
}
