package rpc

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
)

// endlessNode is a node in memory of which an export does not end by itself.
type endlessNode struct {
	backend.Node
	began chan struct{} // closed when an export has begun
	ended chan error    // gets what it ended with
	// record is what the export is made of, over and over; nil for nothing at all.
	record []byte
}

func (n *endlessNode) Export(ctx context.Context, _ uint32, _ func(*fsm.QueueRecord) bool,
	emit func(fsm.BackupRecord) error) (err error) {
	defer func() { n.ended <- err }()
	close(n.began)
	for n.record != nil && ctx.Err() == nil {
		if err := emit(fsm.BackupRecord{Kind: fsm.BackupTombstone, Data: n.record}); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return fmt.Errorf("the call ended: %w", context.Cause(ctx))
}

// largeTombstone is a record of a MiB: the tombstone of a job with a long id.
func largeTombstone() []byte {
	record := append(codec.AppendText(nil, "a"), 1, 0, 0, byte(fsm.Acked))
	return append(codec.AppendText(record, strings.Repeat("i", 1<<20)), make([]byte, 16)...)
}

// serveEndless serves such a node, whose clients have an hour to read an answer.
func serveEndless(t *testing.T, record []byte) (*served, *endlessNode) {
	t.Helper()
	n := &endlessNode{began: make(chan struct{}), ended: make(chan error, 1), record: record}
	return serve(t, func(cfg *Config) {
		n.Node = cfg.Node
		cfg.Node, cfg.Catalog = n, &listingCatalog{Catalog: cfg.Catalog}
		cfg.Limits = check.DefaultLimits()
		cfg.Limits.ResponseWait = time.Hour
	}), n
}

// TestBackupEndsWithTheServer: a server that stops ends a backup that is under way, and says why.
func TestBackupEndsWithTheServer(t *testing.T) {
	t.Parallel()
	s, n := serveEndless(t, nil)
	client := belfryv1connect.NewAdminServiceClient(http.DefaultClient, s.url)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stream, err := client.Backup(ctx, &belfryv1.BackupRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	<-n.began
	s.server.Drain()
	for stream.Receive() {
	}
	if f, ok := fault.FromConnect(stream.Err()); !ok || f.Reason != belfryv1.Reason_REASON_SHUTTING_DOWN {
		t.Errorf("the backup ended with %v", stream.Err())
	}
}

// TestServerStopsThoughNobodyReads: a backup whose client has ceased to read does not keep the
// server from stopping.
func TestServerStopsThoughNobodyReads(t *testing.T) {
	t.Parallel()
	s, n := serveEndless(t, largeTombstone())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+belfryv1connect.AdminServiceBackupProcedure,
		strings.NewReader("\x00\x00\x00\x00\x00"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/connect+proto")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	<-n.began
	stopped := make(chan error, 1)
	go func() { stopped <- s.server.Shutdown(ctx) }()
	select {
	case err = <-n.ended:
	case <-ctx.Done():
		t.Fatal("the backup goes on")
	}
	if err == nil {
		t.Error("the backup seems to be whole")
	}
	if err := <-stopped; err != nil {
		t.Errorf("the stop: %v", err)
	}
}
