package main

import (
	"context"
	"io"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestPutFromATerminal says that it waits, or a person would take it for stuck.
func TestPutFromATerminal(t *testing.T) {
	for _, test := range []struct {
		typed string
		args  []string
		says  string
	}{
		{"close order 42\n", []string{"put", "orders", "-"}, "belfry: reading the body from the terminal; Ctrl-D on a line of its own ends it\n"},
		{`{"text":"x"}`, []string{"put", "orders", "--file", "-"}, "belfry: reading jobs, one line of JSON each, from the terminal; Ctrl-D on a line of its own ends it\n"},
	} {
		h := newHarness(t, func(request proto.Message) (proto.Message, error) {
			if _, ok := request.(*belfryv1.PutRequest); ok {
				return &belfryv1.PutResponse{Id: "0-1", Created: true, DueAt: at(0)}, nil
			}
			return &belfryv1.PutBatchResponse{Results: []*belfryv1.PutBatchResult{{Result: &belfryv1.PutBatchResult_Put{Put: &belfryv1.PutResponse{Id: "0-1"}}}}}, nil
		})
		h.system.in, h.system.inTerminal = strings.NewReader(test.typed), true
		if got := h.run(test.args...); got.code != 0 || !strings.HasPrefix(got.err, test.says) {
			t.Errorf("%v: %+v, want %q", test.args, got, test.says)
		}
	}
}

// TestPutWaitsForABodyAsLongAsItTakes: the time limit is for the server's answer. A signal ends the wait, although a read cannot be ended.
func TestPutWaitsForABodyAsLongAsItTakes(t *testing.T) {
	h := newHarness(t, nil)
	reader, writer := io.Pipe()
	defer writer.Close()
	h.system.in = &signallingReader{Reader: reader, reads: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	ended := make(chan outcome, 1)
	go func() { ended <- h.runContext(ctx, "put", "orders", "-", "--timeout", "1ns") }()
	<-h.system.in.(*signallingReader).reads
	cancel(interruption{syscall.SIGINT})
	if got := <-ended; got.code != 130 || got.out != "" || got.err != "" || len(h.requests) > 0 {
		t.Errorf("%+v after requests %v, want exit code 130 and silence", got, h.requests)
	}
}

// signallingReader tells of its first read.
type signallingReader struct {
	io.Reader
	reads chan struct{}
}

func (r *signallingReader) Read(p []byte) (int, error) {
	close(r.reads)
	return r.Reader.Read(p)
}
