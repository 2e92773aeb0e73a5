package client

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/client/internal/coalesce"
	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/wire"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The answers to PutBatch, AckBatch and Reserve are decoded here, directly into what callers get.
// The generated code would decode them into messages of which most are thrown away: at 100,000
// calls a second those are most of a client's garbage.

// A putBatchAnswer is the answer to PutBatch.
type putBatchAnswer struct{ replies []coalesce.Reply[PutResult] }

// DecodeWire implements [session.Answer].
func (a *putBatchAnswer) DecodeWire(data []byte) (err error) {
	var d putDecoder
	a.replies, err = decodeReplies(data, d.decode)
	return err
}

// decodeReplies decodes the answer to a batch. set decodes the result of an entry that succeeded.
func decodeReplies[R any](data []byte, set func(r *R, data []byte, left int) error) ([]coalesce.Reply[R], error) {
	n, err := wire.Count(data, 1)
	if err != nil {
		return nil, err
	}
	replies := make([]coalesce.Reply[R], 0, n)
	for len(data) > 0 {
		var f wire.Field
		if f, data, err = wire.Next(data); err != nil {
			return replies, err
		}
		if f.Number != 1 {
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
		case 1:
			*r, known = coalesce.Reply[R]{}, true
			err = set(&r.Result, f.Bytes, left)
		case 2:
			known = true
			r.Err, err = wireEntryError(f.Bytes)
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

// A putDecoder decodes the results of one answer.
type putDecoder struct {
	ids wire.Texts
	due wire.TimeDecoder
}

// decode decodes a PutResponse. left is how many are still to be decoded, including this one.
func (d *putDecoder) decode(r *PutResult, data []byte, left int) (err error) {
	for len(data) > 0 {
		var f wire.Field
		if f, data, err = wire.Next(data); err != nil {
			return err
		}
		switch f.Number {
		case 1:
			r.ID = d.ids.Add(f.Bytes, left)
		case 2:
			r.DueAt, err = d.due.Decode(f.Bytes)
		case 3:
			r.Created = f.Value != 0
		case 4:
			r.State = stateOf(belfryv1.JobState(f.Value))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// An ackBatchAnswer is the answer to AckBatch.
type ackBatchAnswer struct{ replies []coalesce.Reply[struct{}] }

// DecodeWire implements [session.Answer].
func (a *ackBatchAnswer) DecodeWire(data []byte) (err error) {
	a.replies, err = decodeReplies(data, func(*struct{}, []byte, int) error { return nil })
	return err
}

// wireEntryError decodes an EntryError. Errors are rare, so the generated code does it.
func wireEntryError(data []byte) (*failure.Error, error) {
	var m belfryv1.EntryError
	if err := proto.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("decoding the error of an entry: %w", err)
	}
	return failure.OfEntry(&m), nil
}
