package batchcodec

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/client/internal/coalesce"
	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/wire"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The fields of PutBatchResponse and AckBatchResponse, and of their entries.
const (
	fieldResults protowire.Number = 1

	fieldSuccess protowire.Number = 1
	fieldError   protowire.Number = 2
)

// DecodeReplies decodes the answer to a batch. It calls set for each entry that succeeded, with the
// bytes of the success, which are a part of data, and with the number of entries that are still to
// be decoded, including this one. An entry without a known result gets [failure.MissingResult].
//
// An error wraps [wire.ErrTruncated], comes from the generated code, or is that of set.
func DecodeReplies[R any](data []byte, set func(r *R, data []byte, left int) error) ([]coalesce.Reply[R], error) {
	n, err := wire.Count(data, fieldResults)
	if err != nil {
		return nil, err
	}
	replies := make([]coalesce.Reply[R], 0, n)
	for len(data) > 0 {
		var f wire.Field
		if f, data, err = wire.Next(data); err != nil {
			return replies, err
		}
		if f.Number != fieldResults {
			continue
		}
		replies = append(replies, coalesce.Reply[R]{})
		last := len(replies) - 1
		if err := decodeReply(&replies[last], f.Bytes, set, n-last); err != nil {
			return replies, err
		}
	}
	return replies, nil
}

// decodeReply decodes an entry of such an answer. If it has several results, the last counts, as in
// the generated code.
func decodeReply[R any](r *coalesce.Reply[R], data []byte, set func(r *R, data []byte, left int) error,
	left int) (err error) {
	known := false
	for len(data) > 0 {
		var f wire.Field
		if f, data, err = wire.Next(data); err != nil {
			return err
		}
		switch f.Number {
		case fieldSuccess:
			*r, known = coalesce.Reply[R]{}, true
			err = set(&r.Result, f.Bytes, left)
		case fieldError:
			known = true
			r.Err, err = entryError(f.Bytes)
		}
		if err != nil {
			return err
		}
	}
	if !known {
		r.Err = failure.MissingResult()
	}
	return nil
}

// entryError decodes an EntryError. Errors are rare, so the generated code does it.
func entryError(data []byte) (*failure.Error, error) {
	var m belfryv1.EntryError
	if err := proto.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("decoding the error of an entry: %w", err)
	}
	return failure.OfEntry(&m), nil
}
