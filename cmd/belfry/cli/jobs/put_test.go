package jobs

import (
	"context"
	"io"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestPutFromATerminal says that it waits, or a person would take it for stuck.
func TestPutFromATerminal(t *testing.T) {
	for _, test := range []struct {
		typed string
		args  []string
		says  string
	}{
		{"close order 42\n", []string{"put", "orders", "-"},
			"belfry: reading the body from the terminal; Ctrl-D on a line of its own ends it\n"},
		{`{"text":"x"}`, []string{"put", "orders", "--file", "-"},
			"belfry: reading jobs, one line of JSON each, from the terminal; Ctrl-D on a line of its own ends it\n"},
	} {
		h := newHarness(t, func(request proto.Message) (proto.Message, error) {
			if _, ok := request.(*belfryv1.PutRequest); ok {
				return &belfryv1.PutResponse{Id: "0-1", Created: true, DueAt: clitest.At(0)}, nil
			}
			put := &belfryv1.PutBatchResult_Put{Put: &belfryv1.PutResponse{Id: "0-1"}}
			return &belfryv1.PutBatchResponse{Results: []*belfryv1.PutBatchResult{{Result: put}}}, nil
		})
		h.System.In, h.System.InTerminal = strings.NewReader(test.typed), true
		if got := h.Run(test.args...); got.Code != 0 || !strings.HasPrefix(got.Err, test.says) {
			t.Errorf("%v: %+v, want %q", test.args, got, test.says)
		}
	}
}

// TestPutWithoutABody: as in JSON, the body is empty then, unless something was handed in that
// should be it.
func TestPutWithoutABody(t *testing.T) {
	for _, test := range []struct {
		name  string
		piped bool
		args  []string
		code  int
		says  string
	}{
		{"at a terminal", false, []string{"put", "ticks"}, cli.CodeOK, ""},
		{"in a pipe", true, []string{"put", "ticks"}, cli.CodeUsage, "standard input is not read without - as BODY"},
		{"in a pipe, and meant", true, []string{"put", "ticks", ""}, cli.CodeOK, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t, clitest.Always(&belfryv1.PutResponse{Id: "0-1", Created: true, DueAt: clitest.At(0)}))
			h.System.InPiped = test.piped
			got := h.Run(test.args...)
			if got.Code != test.code || !strings.Contains(got.Err, test.says) {
				t.Fatalf("%+v, want code %d and %q", got, test.code, test.says)
			}
			if sent := len(h.Requests); (sent == 1) != (test.code == cli.CodeOK) {
				t.Errorf("%d requests were sent", sent)
			}
			for _, request := range h.Requests {
				if put, ok := request.(*belfryv1.PutRequest); !ok || len(put.GetData()) > 0 || put.GetText() != "" {
					t.Errorf("%v was sent", request)
				}
			}
		})
	}
}

// TestPutWaitsForABodyAsLongAsItTakes: the time limit is for the server's answer. A signal ends the
// wait, although a read cannot be ended.
func TestPutWaitsForABodyAsLongAsItTakes(t *testing.T) {
	h := newHarness(t, nil)
	reader, writer := io.Pipe()
	defer writer.Close()
	h.System.In = &signallingReader{Reader: reader, reads: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	ended := make(chan clitest.Outcome, 1)
	go func() { ended <- h.RunContext(ctx, "put", "orders", "-", "--timeout", "1ns") }()
	<-h.System.In.(*signallingReader).reads
	cancel(cli.Interruption{Signal: syscall.SIGINT})
	if got := <-ended; got.Code != 130 || got.Out != "" || got.Err != "" || len(h.Requests) > 0 {
		t.Errorf("%+v after requests %v, want exit code 130 and silence", got, h.Requests)
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
