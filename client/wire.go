package client

import (
	"github.com/belfrydb/belfry/client/internal/batchcodec"
	"github.com/belfrydb/belfry/client/internal/coalesce"
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
	a.replies, err = batchcodec.DecodeReplies(data, d.decode)
	return err
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
	a.replies, err = batchcodec.DecodeReplies(data, func(*struct{}, []byte, int) error { return nil })
	return err
}
