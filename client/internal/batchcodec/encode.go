// Package batchcodec encodes the entries of PutBatch and AckBatch, and decodes the results of both,
// by hand. At 100,000 calls a second the messages of the generated code would be most of a client's
// garbage.
package batchcodec

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/protofield"
)

// The fields of PutBatchRequest and AckBatchRequest.
const (
	fieldEntries   protowire.Number = 1
	fieldRequestID protowire.Number = 2
)

// The fields of PutRequest that are encoded by hand.
const (
	fieldPutQueue protowire.Number = 1
	fieldPutID    protowire.Number = 2
	fieldPutDelay protowire.Number = 3
	fieldPutDueAt protowire.Number = 4
	fieldPutData  protowire.Number = 8
	fieldPutKey   protowire.Number = 15
)

// HeaderBytes is the most bytes that a header takes besides its name and value.
const HeaderBytes = 16

// PutBytesMax returns an upper bound of the bytes that a put adds to a batch. ok is false if a text
// is not UTF-8, and so cannot be encoded.
func PutBytesMax(req *belfryv1.PutRequest) (bytes int, ok bool) {
	bytes = 160 + len(req.GetQueue()) + len(req.GetId()) + len(req.GetKey()) + len(req.GetData())
	bytes += 16 * len(req.GetRetryDelays())
	ok = utf8.ValidString(req.GetQueue()) && utf8.ValidString(req.GetId()) && utf8.ValidString(req.GetKey())
	for name, value := range req.GetHeaders() {
		bytes += HeaderBytes + len(name) + len(value)
		ok = ok && utf8.ValidString(name) && utf8.ValidString(value)
	}
	return bytes, ok
}

// AppendEntry appends an entry to a batch: the lease of an ack, or a put that AppendPut encoded.
func AppendEntry[E ~string | ~[]byte](dst []byte, entry E) []byte {
	dst = protowire.AppendTag(dst, fieldEntries, protowire.BytesType)
	return append(protowire.AppendVarint(dst, uint64(len(entry))), entry...)
}

// AppendRequestID appends the request id to a batch, unless it is empty.
func AppendRequestID(dst []byte, id string) []byte {
	return protofield.AppendText(dst, fieldRequestID, id)
}

// AppendPut encodes a put: one with the usual fields by hand, any other by the generated code. The
// texts of the put must be valid UTF-8. It keeps nothing of req.
func AppendPut(dst []byte, req *belfryv1.PutRequest) ([]byte, error) {
	usual := req.Ttr == nil && req.Priority == nil && len(req.Headers) == 0 && req.MaxAttempts == nil &&
		len(req.RetryDelays) == 0 &&
		req.Ttl == nil && req.RequestId == "" && !req.Again && req.OnExisting == 0 && req.MaxWait == nil &&
		req.IfVersion == 0
	data, ok := req.Body.(*belfryv1.PutRequest_Data)
	if !usual || !ok {
		return proto.MarshalOptions{}.MarshalAppend(dst, req)
	}
	dst = protofield.AppendText(dst, fieldPutQueue, req.Queue)
	dst = protofield.AppendText(dst, fieldPutID, req.Id)
	switch when := req.When.(type) {
	case *belfryv1.PutRequest_Delay:
		dst = protofield.AppendSeconds(dst, fieldPutDelay, when.Delay.GetSeconds(), when.Delay.GetNanos())
	case *belfryv1.PutRequest_DueAt:
		dst = protofield.AppendSeconds(dst, fieldPutDueAt, when.DueAt.GetSeconds(), when.DueAt.GetNanos())
	}
	dst = protowire.AppendTag(dst, fieldPutData, protowire.BytesType)
	return protofield.AppendText(protowire.AppendBytes(dst, data.Data), fieldPutKey, req.Key), nil
}
