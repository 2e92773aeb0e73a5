package queue

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/wire"
)

// PutBatch, AckBatch and Reserve are most of the work of a server of many small jobs. In binary
// they take the fast path: from the bytes of a request to the bytes of an answer, without a message
// in between. A request with a rare field takes the slow path, with generated messages. The types
// here carry the bytes through Connect.

// FastPathHandlers returns the handlers of the methods that have a fast path, by their procedures.
func (s *Service) FastPathHandlers(options []connect.HandlerOption) map[string]http.Handler {
	const put, ack, reserve = belfryv1connect.QueueServicePutBatchProcedure, belfryv1connect.QueueServiceAckBatchProcedure,
		belfryv1connect.QueueServiceReserveProcedure
	memory := s.codec.Buffers
	return map[string]http.Handler{
		put:     codec.Handler(put, s.PutBatch, s.PutBatchBytes, options, memory),
		ack:     codec.Handler(ack, s.AckBatch, s.AckBatchBytes, options, memory),
		reserve: codec.Handler(reserve, s.Reserve, s.ReserveBytes, options, memory),
	}
}

// ReserveBytes is the fast path of Reserve. It appends the bytes of the answer to dst, and keeps no
// part of the request. Its errors are faults.
func (s *Service) ReserveBytes(ctx context.Context, request, dst []byte) ([]byte, error) {
	var req belfryv1.ReserveRequest
	if err := codec.Unreadable(s.codec.Unmarshal(request, &req)); err != nil {
		return nil, err
	}
	err := s.Reserved(ctx, &req, func(write func([]byte) ([]byte, error)) (err error) {
		dst, err = write(dst)
		return err
	})
	return dst, err
}

// Reserved is Reserve with the bytes of the answer: once the poll has ended, it calls to with the
// function that appends them.
func (s *Service) Reserved(ctx context.Context, req *belfryv1.ReserveRequest,
	to func(write func(dst []byte) ([]byte, error)) error) error {
	p, err := s.reserve(ctx, req)
	if err != nil {
		return err
	}
	return to(func(dst []byte) ([]byte, error) { return wire.AppendReserve(dst, p.jobs, p.witnesses) })
}
