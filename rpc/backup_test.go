package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/backup"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
)

// exportingNode is a node in memory whose shards hold some queues without jobs, and whose leaders
// are missing for some calls.
type exportingNode struct {
	backend.Node
	queues []fsm.QueueRecord
	// format is the one of the entries that made them, 0 for the first.
	format fsm.Format
	// leased says that a job of the first queue is leased, in an entry of the latest format.
	leased bool
	// slow is how long a shard takes to be captured.
	slow time.Duration
	// broken is what Export returns.
	broken error
	// fail is what the next calls of Do return.
	fail []error
}

func (n *exportingNode) Export(ctx context.Context, shard uint32, keep func(*fsm.QueueRecord) bool,
	emit func(fsm.BackupRecord) error) error {
	timer := time.NewTimer(n.slow)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return fmt.Errorf("the call ended: %w", context.Cause(ctx))
	}
	if n.broken != nil {
		return n.broken
	}
	m := machine.New(fsm.Config{})
	var commands []fsm.Command
	for _, q := range n.queues {
		commands = append(commands, &fsm.Open{Queue: q.Name, Partition: q.Partition, Partitions: q.Partitions})
	}
	format := max(fsm.FirstFormat, n.format)
	request := codec.AppendRequestIn(nil, format, &fsm.Request{Commands: commands})
	if _, err := m.Apply(1, codec.AppendEntryIn(nil, format, 1e18, [][]byte{request})); err != nil {
		return err
	}
	if n.leased {
		take := codec.AppendRequestIn(nil, fsm.LatestFormat, &fsm.Request{Commands: []fsm.Command{
			&fsm.Put{Queue: n.queues[0].Name, Partitions: 1}, &fsm.Reserve{Queues: []string{n.queues[0].Name}, Max: 1},
		}})
		if _, err := m.Apply(2, codec.AppendEntryIn(nil, fsm.LatestFormat, 1e18, [][]byte{take})); err != nil {
			return err
		}
	}
	s := m.Snapshot()
	defer m.Release(s)
	return s.Export(shard, keep, emit)
}

func (n *exportingNode) Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error) {
	if len(n.fail) > 0 {
		err := n.fail[0]
		n.fail = n.fail[1:]
		return node.Reply{}, err
	}
	return n.Node.Do(ctx, shard, req)
}

// listingCatalog is a catalog in memory with some queues.
type listingCatalog struct {
	backend.Catalog
	queues   []backend.QueueConfig
	restored []backend.QueueConfig
}

func (c *listingCatalog) SetNode(n backend.Node) { c.Catalog.(*backendtest.Catalog).SetNode(n) }

func (c *listingCatalog) Queues() []backend.QueueConfig { return c.queues }

func (c *listingCatalog) RestoreQueue(_ context.Context, q backend.QueueConfig) error {
	c.restored = append(c.restored, q)
	return nil
}

// serveBackups serves a node and a catalog of which backups can be made.
func serveBackups(t *testing.T, n *exportingNode, c *listingCatalog,
	change ...func(*Config)) belfryv1connect.AdminServiceClient {
	t.Helper()
	s := serve(t, append(change, func(cfg *Config) {
		n.Node, c.Catalog = cfg.Node, cfg.Catalog
		cfg.Node, cfg.Catalog = n, c
	})...)
	return belfryv1connect.NewAdminServiceClient(http.DefaultClient, s.url)
}

func receiveBackup(t *testing.T, client belfryv1connect.AdminServiceClient) ([]byte, error) {
	t.Helper()
	stream, err := client.Backup(t.Context(), &belfryv1.BackupRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var raw []byte
	for stream.Receive() {
		raw = append(raw, stream.Msg().Data...)
	}
	return raw, errors.Join(stream.Err(), stream.Close())
}

func sendBackup(t *testing.T, client belfryv1connect.AdminServiceClient, raw []byte,
	overdue *belfryv1.OverduePolicy) error {
	t.Helper()
	stream, err := client.Restore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&belfryv1.RestoreRequest{Data: raw, Overdue: overdue}) // the answer says why
	_, err = stream.CloseAndReceive()
	return err
}

// TestSlowBackup: a backup may take longer than a request may take to arrive, and an answer to be
// read.
func TestSlowBackup(t *testing.T) {
	t.Parallel()
	n := &exportingNode{slow: 800 * time.Millisecond}
	client := serveBackups(t, n, &listingCatalog{}, func(cfg *Config) {
		cfg.Limits = check.DefaultLimits()
		cfg.Limits.BodyWait, cfg.Limits.ResponseWait = time.Second, 2*time.Second
	})
	if _, err := receiveBackup(t, client); err != nil {
		t.Errorf("a backup of three shards that take 800 ms each: %v", err)
	}
}

// TestBackupLeavesOut: what the catalog knows otherwise is not in a backup.
func TestBackupLeavesOut(t *testing.T) {
	t.Parallel()
	n := &exportingNode{queues: []fsm.QueueRecord{
		{
			Name: "auto-created", Partitions: 1,
		}, {Name: "configured", Partitions: 1}, {Name: "parts", Partition: 1, Partitions: 3},
		{Name: "going", Partitions: 1}, {Name: "gone", Partition: 1, Partitions: 3}, {Name: "other", Partitions: 1},
	}}
	client := serveBackups(t, n, &listingCatalog{queues: []backend.QueueConfig{
		{Name: "configured", Version: 1, Settings: fsm.Settings{TTR: time.Hour}}, {Name: "parts", Partitions: 3, Version: 2},
		{Name: "going", Partitions: 1}, {Name: "other", Partitions: 2, Version: 3},
	}})
	raw, err := receiveBackup(t, client)
	if err != nil {
		t.Fatal(err)
	}
	in, err := backup.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	var catalog, held []string
	for {
		r, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name, _ := backup.OwnerOf(&r)
		switch {
		case r.Kind == fsm.BackupCatalog:
			catalog = append(catalog, name)
		case r.Kind == fsm.BackupQueue && in.Totals().Shards == 1:
			held = append(held, name)
		}
	}
	if diff := cmp.Diff([]string{"configured", "parts", "other"}, catalog); diff != "" {
		t.Errorf("the catalog (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"auto-created", "configured", "parts"}, held); diff != "" {
		t.Errorf("the first shard (-want +got):\n%s", diff)
	}
}

// TestRestoreInsists: a shard that takes nothing for a while, and one whose answer was lost, are
// asked again; other errors end the restore.
func TestRestoreInsists(t *testing.T) {
	t.Parallel()
	source := serveBackups(t, &exportingNode{}, &listingCatalog{queues: []backend.QueueConfig{{
		Name: "q", Partitions: 1, Version: 1,
	}}})
	raw, err := receiveBackup(t, source)
	if err != nil {
		t.Fatal(err)
	}
	n, c := &exportingNode{fail: []error{
		node.ErrNoLeader, node.ErrUnknownOutcome, node.ErrNotLeader, node.ErrClockAhead, node.ErrOverloaded,
		node.ErrShuttingDown,
	}}, &listingCatalog{}
	client := serveBackups(t, n, c)
	if err := sendBackup(t, client, raw, nil); err != nil || len(c.restored) != 1 || c.restored[0].Name != "q" {
		t.Errorf("restored %v: %v", c.restored, err)
	}
	n = &exportingNode{fail: []error{node.ErrDiskFull}}
	err = sendBackup(t, serveBackups(t, n, &listingCatalog{}), raw, nil)
	if f, ok := fault.FromConnect(err); !ok || f.Reason != belfryv1.Reason_REASON_DISK_FULL {
		t.Errorf("on a full disk: %v", err)
	}
}

// TestRestoreOfQueuesThatAreTooWide is refused with the queues, their partitions and the shards,
// before anything begins: another backup can be restored right after.
func TestRestoreOfQueuesThatAreTooWide(t *testing.T) {
	t.Parallel()
	fits := backend.QueueConfig{Name: "fits", Partitions: 3, Version: 1}
	backupOf := func(queues ...backend.QueueConfig) []byte {
		raw, err := receiveBackup(t, serveBackups(t, &exportingNode{}, &listingCatalog{queues: queues}))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	c := &listingCatalog{}
	client := serveBackups(t, &exportingNode{}, c)
	err := sendBackup(t, client, backupOf(backend.QueueConfig{
		Name: "wide", Partitions: 4, Version: 1,
	}, fits, backend.QueueConfig{Name: "wider", Partitions: 12, Version: 2}), nil)
	f, ok := fault.FromConnect(err)
	if !ok || f.Reason != belfryv1.Reason_REASON_INVALID {
		t.Fatalf("the restore ended with %v", err)
	}
	for _, want := range []string{"this cluster has 3 shards", "wide has 4, wider has 12", "--shards 12 or more",
		"Nothing was restored"} {
		if !strings.Contains(f.Message, want) {
			t.Errorf("%q does not say %q", f.Message, want)
		}
	}
	if strings.Contains(f.Message, "fits") || strings.Contains(f.Message, "has begun") || len(c.restored) > 0 {
		t.Errorf("restored %v: %s", c.restored, f.Message)
	}
	if err := sendBackup(t, client, backupOf(fits), nil); err != nil || len(c.restored) != 1 {
		t.Errorf("another backup right after: %v, %v", c.restored, err)
	}
}

// TestBackupOfALaterQueue: a backup ends with an error if a queue has a later format than the
// header says, because the cluster's was raised meanwhile.
func TestBackupOfALaterQueue(t *testing.T) {
	t.Parallel()
	n := &exportingNode{queues: []fsm.QueueRecord{{Name: "later", Partitions: 1}}, format: 2}
	_, err := receiveBackup(t, serveBackups(t, n, &listingCatalog{}))
	want := `the format of the cluster was raised from 1 to 2 while the backup was made (queue "later"): make it again`
	if f, ok := fault.FromConnect(err); !ok || f.Reason != belfryv1.Reason_REASON_OVERLOADED || f.Message != want {
		t.Errorf("the backup ended with %v, want %q", err, want)
	}
	if _, err := receiveBackup(t, serveBackups(t, n, &listingCatalog{}, func(c *Config) {
		c.Cluster = &fakeCluster{}
	})); err != nil {
		t.Errorf("once all speak it: %v", err)
	}
}

// TestBackupOfALaterJob: a backup ends with an error, too, if only a job has what its header's format
// cannot express.
func TestBackupOfALaterJob(t *testing.T) {
	t.Parallel()
	n := &exportingNode{queues: []fsm.QueueRecord{{Name: "early", Partitions: 1}}, leased: true}
	_, err := receiveBackup(t, serveBackups(t, n, &listingCatalog{}))
	want := `the format of the cluster was raised from 1 to 3 while the backup was made (queue "early"): make it again`
	if f, ok := fault.FromConnect(err); !ok || f.Reason != belfryv1.Reason_REASON_OVERLOADED || f.Message != want {
		t.Errorf("the backup ended with %v, want %q", err, want)
	}
	if _, err := receiveBackup(t, serveBackups(t, n, &listingCatalog{}, func(c *Config) {
		c.Cluster = &fakeCluster{format: 3}
	})); err != nil {
		t.Errorf("once all speak it: %v", err)
	}
}

// TestRestoreOfALaterFormat is refused before anything of the backup is placed, with both formats.
func TestRestoreOfALaterFormat(t *testing.T) {
	t.Parallel()
	raw, err := receiveBackup(t, serveBackups(t, &exportingNode{}, &listingCatalog{}, func(c *Config) {
		c.Cluster = &fakeCluster{}
	}))
	if err != nil {
		t.Fatal(err)
	}
	n := &exportingNode{}
	f, ok := fault.FromConnect(sendBackup(t, serveBackups(t, n, &listingCatalog{}), raw, nil))
	want := "data: the backup has format 2 and this cluster speaks 1: have all nodes run the version that made the " +
		"backup, or a later one"
	if !ok || f.Reason != belfryv1.Reason_REASON_INVALID || f.Message != want {
		t.Errorf("got %+v, want %q", f, want)
	}
}

// TestRestoreOfQuotas: a backup has the quotas of namespaces and a restore sets them. One that
// cannot be, or is none, is refused before anything begins.
func TestRestoreOfQuotas(t *testing.T) {
	t.Parallel()
	backupOf := func(quotas ...backend.Namespace) []byte {
		raw, err := receiveBackup(t, serveBackups(t, &exportingNode{}, &listingCatalog{queues: []backend.QueueConfig{{
			Name: "shop/orders", Partitions: 1, Version: 1,
		}}}, func(c *Config) {
			c.Cluster = &fakeQuotas{fakeCluster: &fakeCluster{}, all: quotas}
		}))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	amounts := node.Amounts{node.JobsLimit: 10, node.BytesLimit: 20, node.LeasesLimit: 30, node.PutRate: 40_000}
	shop := backend.Namespace{Name: "shop", Quota: amounts}
	f, c := &fakeQuotas{fakeCluster: &fakeCluster{}}, &listingCatalog{}
	client := serveBackups(t, &exportingNode{}, c, func(c *Config) { c.Cluster = f })
	for _, tt := range []struct {
		name   string
		limit  node.Limit
		amount uint64
		want   string
	}{
		{"a/b", 0, 1, "data: want the part of a queue's name that is before the slash"},
		{"", 0, 1, "data: a namespace is required"},
		{"mine", node.BytesLimit, 1<<60 + 1,
			"data: the quota of namespace mine has 1152921504606846977 bytes, at most 1152921504606846976"},
		{"mine", node.PutRate, 1e12 + 1,
			"data: the quota of namespace mine has 1000000000001 thousandths of puts per second, at most 1000000000000"},
	} {
		var quota node.Amounts
		quota[tt.limit] = tt.amount
		err := sendBackup(t, client, backupOf(shop, backend.Namespace{Name: tt.name, Quota: quota}), nil)
		if f, ok := fault.FromConnect(err); !ok || f.Reason != belfryv1.Reason_REASON_INVALID ||
			!strings.HasPrefix(f.Message, tt.want) || strings.Contains(f.Message, "has begun") {
			t.Errorf("%q, %v: %v, want %s", tt.name, quota, err, tt.want)
		}
	}
	if len(f.asked)+len(c.restored) > 0 {
		t.Errorf("of what was refused came %q and %v", f.asked, c.restored)
	}
	err := sendBackup(t, client, backupOf(shop, backend.Namespace{Name: "none"}), nil)
	if diff := cmp.Diff([]string{"restore shop [10 20 30 40000]", "restore none [0 0 0 0]"}, f.asked); diff != "" ||
		err != nil || len(c.restored) != 1 {
		t.Errorf("restored %v: %v (-want +got):\n%s", c.restored, err, diff)
	}
}

func TestRestoreChecksItsOptions(t *testing.T) {
	t.Parallel()
	client := serveBackups(t, &exportingNode{}, &listingCatalog{})
	const spread, fire = belfryv1.OverdueMode_OVERDUE_MODE_SPREAD, belfryv1.OverdueMode_OVERDUE_MODE_FIRE
	for words, overdue := range map[string]*belfryv1.OverduePolicy{
		"overdue.mode: want one of":                 {},
		"overdue.period: it goes with SPREAD":       {Mode: spread},
		"overdue.overdueAfter: it does not go with": {Mode: fire, OverdueAfter: durationpb.New(time.Minute)},
		// what is left is the data
		"data: fsm: reading a backup, at byte 0: dam": {Mode: spread, Period: durationpb.New(time.Minute)},
	} {
		err := sendBackup(t, client, []byte("no backup"), overdue)
		if f, ok := fault.FromConnect(err); !ok || f.Reason != belfryv1.Reason_REASON_INVALID ||
			!strings.HasPrefix(f.Message, words) {
			t.Errorf("%v: %v, want %s", overdue, err, words)
		}
	}
}

// TestStreamsAreAudited: the audit has with what options a restore began, and none of the bytes
// that it brought.
func TestStreamsAreAudited(t *testing.T) {
	t.Parallel()
	s := serve(t, func(cfg *Config) {
		cfg.Node, cfg.Catalog = &exportingNode{Node: cfg.Node}, &listingCatalog{Catalog: cfg.Catalog}
	})
	client := belfryv1connect.NewAdminServiceClient(http.DefaultClient, s.url)
	raw, err := receiveBackup(t, client)
	if err != nil {
		t.Fatal(err)
	}
	if err := sendBackup(t, client, raw,
		&belfryv1.OverduePolicy{Mode: belfryv1.OverdueMode_OVERDUE_MODE_DROP}); err != nil {
		t.Fatal(err)
	}
	log := strings.NewReplacer(" ", "", `\`, "").Replace(s.log.String()) // how JSON is spaced is left to chance
	for _, want := range []string{
		`AdminService/Backuprequest={}outcome=ok`,
		`AdminService/Restorerequest="{"overdue":{"mode":"OVERDUE_MODE_DROP"}}"outcome=ok`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has\n%swant %s", log, want)
		}
	}
}
