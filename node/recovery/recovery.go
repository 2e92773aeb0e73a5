// Package recovery lets the data directory of one node go on alone when too few of the other nodes
// are left.
package recovery

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/founding"
	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/raftgroup"
	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// File is the name of the file that holds the id of the new cluster while a recovery is in progress. It is removed when
// the recovery is complete.
const File = "recovering"

// Config names the data directory to recover. Without a Logger nothing is logged; the other fields
// are required.
type Config struct {
	Dir string
	// Machine returns the machine of a group in its first state. The state must suit a cluster with
	// the given id of which this server is the only node.
	Machine func(group, clusterID string) (raftgroup.Machine, error)
	Logger  *slog.Logger
}

// Recovery is the data directory of a stopped node that goes on without the other nodes of its
// cluster, because too few of them are left. The node becomes the only voter of all its groups, in
// a cluster with a new id. Entries that the other nodes had acknowledged and this node had not
// received are lost. Entries in its log that were not acknowledged then count as acknowledged. The
// directory stays locked until Close.
type Recovery struct {
	cfg    Config
	lock   *disk.DirLock
	id     *identity.Record
	next   string // the id of the new cluster
	groups []Group
}

// Group is one group in the directory.
type Group struct {
	Group string
	// LastIndex and LastTerm are the end of its log. Of several survivors, the one with the higher
	// term, then the higher index, has more entries.
	LastIndex, LastTerm uint64
	// Voters are the voting members as this server last heard of them.
	Voters []string
	// Done tells that an earlier attempt at this recovery has completed this group.
	Done bool
}

// Open locks a data directory and inspects its groups. It makes no changes but the repairs
// of every start.
func Open(cfg Config) (_ *Recovery, err error) {
	if _, ok, err := identity.Identify(cfg.Dir); err != nil || !ok {
		return nil, errors.Join(err, notThere(cfg.Dir, ok))
	}
	r := &Recovery{cfg: cfg}
	if r.lock, err = disk.Lock(cfg.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.lock.Close())
		}
	}()
	if r.id, err = identity.Read(disk.OSFS{}, cfg.Dir); err != nil {
		return nil, err
	}
	if r.next, err = pendingRecovery(cfg.Dir, r.id.ClusterID); err != nil {
		return nil, err
	}
	for _, name := range r.id.Groups {
		g, err := r.inspect(name)
		if err != nil {
			return nil, fmt.Errorf("looking at %s: %w", name, err)
		}
		r.groups = append(r.groups, g)
	}
	return r, nil
}

func notThere(dir string, there bool) error {
	if there {
		return nil
	}
	return fmt.Errorf("%s is no data directory: there is no %s in it", dir, identity.File)
}

// pendingRecovery returns the id of the cluster that an earlier attempt began to make, or a new id.
// An attempt that has made the present cluster is complete.
func pendingRecovery(dir, present string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, File))
	if errors.Is(err, fs.ErrNotExist) {
		return identity.NewClusterID(), nil
	}
	if err != nil {
		return "", fmt.Errorf("reading how far an earlier recovery has come: %w", err)
	}
	id := strings.TrimSpace(string(data))
	if id == present {
		return identity.NewClusterID(), nil
	}
	if !identity.ValidClusterID(id) {
		return "", fmt.Errorf("%s holds no cluster id; remove it if no recovery was begun", filepath.Join(dir, File))
	}
	return id, nil
}

// Identity returns the identity of the directory's node.
func (r *Recovery) Identity() identity.Identity { return r.id.Identity() }

// NextCluster returns the id of the cluster that Run makes.
func (r *Recovery) NextCluster() string { return r.next }

// Groups returns the groups of the directory.
func (r *Recovery) Groups() []Group { return r.groups }

// Missing returns the shards without data here. After Run they begin empty.
func (r *Recovery) Missing() (shards []uint32) {
	for i := range uint32(r.id.Shards) { //nolint:gosec // bounded by ShardsMax
		has := func(g Group) bool { return g.Group == founding.ShardGroup(i) && (g.LastIndex > 0 || g.Done) }
		if !slices.ContainsFunc(r.groups, has) {
			shards = append(shards, i)
		}
	}
	return shards
}

// Close unlocks the directory.
func (r *Recovery) Close() error { return r.lock.Close() }

// dirOf returns the directory of a group.
func (r *Recovery) dirOf(name string) string {
	for i := range uint32(r.id.Shards) { //nolint:gosec // bounded by ShardsMax
		if founding.ShardGroup(i) == name {
			return identity.ShardDir(r.cfg.Dir, i)
		}
	}
	return identity.GroupDir(r.cfg.Dir, name)
}

// tag returns the mark of a group's files in a cluster.
func (r *Recovery) tag(clusterID, name string) string {
	return clusterID + "/" + r.id.ServerID() + "/" + name
}

func (r *Recovery) open(name string) (*storage.Stores, error) {
	return storage.Open(r.dirOf(name), storage.Config{
		Group: r.tag(r.id.ClusterID, name), Mode: storage.MustExist, Engine: storage.Engine(r.id.Store), Logger: r.cfg.Logger,
	})
}

// inspect reads the end and the members of a group.
func (r *Recovery) inspect(name string) (g Group, err error) {
	g.Group = name
	tag, err := storage.Named(r.dirOf(name), disk.OSFS{})
	if err != nil {
		return g, err
	}
	if g.Done = tag == r.tag(r.next, name); g.Done {
		return g, nil
	}
	stores, err := r.open(name)
	if err != nil {
		return g, err
	}
	defer func() { err = errors.Join(err, stores.Close()) }()
	return g, replay(stores, &g, func(*raft.Log) error { return nil })
}

// replay applies the log after the newest snapshot, and records its end and the voters in g.
func replay(stores *storage.Stores, g *Group, apply func(*raft.Log) error) error {
	var members raft.Configuration
	newest, ok := stores.Snapshots.Newest()
	if ok {
		g.LastIndex, g.LastTerm, members = newest.Index, newest.Term, newest.Configuration
	}
	last, err := stores.Log.LastIndex()
	if err != nil {
		return fmt.Errorf("reading the end of the log: %w", err)
	}
	for index := newest.Index + 1; index <= last; index++ {
		var entry raft.Log
		if err := stores.Log.GetLog(index, &entry); err != nil {
			return fmt.Errorf("reading entry %d: %w", index, err)
		}
		if entry.Type == raft.LogConfiguration {
			members = raft.DecodeConfiguration(entry.Data)
		}
		if err := apply(&entry); err != nil {
			return err
		}
		g.LastIndex, g.LastTerm = entry.Index, entry.Term
	}
	g.Voters = nil
	for _, s := range members.Servers {
		if s.Suffrage == raft.Voter {
			g.Voters = append(g.Voters, string(s.ID))
		}
	}
	return nil
}

// Run carries out the recovery. It writes the id of the new cluster to the disk before all other
// changes, and the identity last. After a crash in between, the node does not start, and Run
// continues where it was.
func (r *Recovery) Run() error {
	if err := disk.ReplaceFile(disk.OSFS{}, filepath.Join(r.cfg.Dir, File),
		[]byte(r.next+"\n")); err != nil {
		return fmt.Errorf("noting that a recovery begins: %w", err)
	}
	next := *r.id
	next.ClusterID, next.Founder, next.Founding = r.next, true, nil
	next.MinVoters = 0
	next.Groups, next.Left, next.Quarantined = nil, nil, nil
	for i := range r.groups {
		g := &r.groups[i]
		if !g.Done && g.LastIndex > 0 {
			if err := r.recover(g); err != nil {
				return fmt.Errorf("recovering %s: %w", g.Group, err)
			}
		}
		if g.Done || g.LastIndex > 0 {
			next.Groups = append(next.Groups, g.Group)
		}
	}
	for _, shard := range r.Missing() {
		if err := r.clear(shard); err != nil {
			return fmt.Errorf("making room for shard %d: %w", shard, err)
		}
	}
	if err := next.Save(); err != nil {
		return err
	}
	r.id = &next
	if err := os.Remove(filepath.Join(r.cfg.Dir, File)); err != nil {
		return fmt.Errorf("noting that the recovery is complete: %w", err)
	}
	return disk.OSFS{}.SyncDir(r.cfg.Dir)
}

// clear makes room for a shard that begins empty. A shard that has left has only a term and a vote
// in a cluster that has ended. The files of a shard that was set aside are kept for people to
// inspect.
func (r *Recovery) clear(shard uint32) error {
	dir := identity.ShardDir(r.cfg.Dir, shard)
	if slices.Contains(r.id.Quarantined, founding.ShardGroup(shard)) {
		err := os.Rename(dir, dir+"."+r.id.ClusterID)
		if errors.Is(err, fs.ErrNotExist) { // an earlier attempt did it
			return nil
		}
		return err
	}
	return os.RemoveAll(dir)
}

// recover makes this server the only voter of a group. It writes a snapshot of the whole log that
// says so, then removes the log.
func (r *Recovery) recover(g *Group) (err error) {
	stores, err := r.open(g.Group)
	if err != nil {
		return err
	}
	closed := false
	defer func() {
		if !closed {
			err = errors.Join(err, stores.Close())
		}
	}()
	machine, err := r.rebuild(g, stores)
	if err != nil {
		return err
	}
	if err := r.persist(g, stores, machine); err != nil {
		return err
	}
	first, err := stores.Log.FirstIndex()
	if err == nil && first > 0 {
		err = stores.Log.DeleteRange(first, g.LastIndex)
	}
	if err != nil {
		return fmt.Errorf("emptying the log: %w", err)
	}
	stores.Tidy(nil) // else a possibly full disk would keep the log until the node starts
	closed = true
	if err := stores.Close(); err != nil {
		return err
	}
	g.Done = true
	return storage.Rename(r.dirOf(g.Group), disk.OSFS{}, r.tag(r.id.ClusterID, g.Group), r.tag(r.next, g.Group))
}

// rebuild returns the machine of a group after its whole log.
func (r *Recovery) rebuild(g *Group, stores *storage.Stores) (machine raftgroup.Machine, err error) {
	if machine, err = r.cfg.Machine(g.Group, r.next); err != nil {
		return nil, err
	}
	if newest, ok := stores.Snapshots.Newest(); ok {
		_, source, err := stores.Snapshots.Open(newest.ID)
		if err != nil {
			return nil, fmt.Errorf("opening the newest snapshot: %w", err)
		}
		machine, err = machine.Restore(source)
		if err == nil {
			_, err = io.Copy(io.Discard, source) // as in replica.Restore
		}
		if err = errors.Join(err, source.Close()); err != nil {
			return nil, fmt.Errorf("restoring the newest snapshot: %w", err)
		}
	}
	return machine, replay(stores, g, func(entry *raft.Log) error {
		if entry.Type != raft.LogCommand {
			return nil
		}
		_, err := machine.Apply(entry.Index, entry.Data)
		return err
	})
}

// persist stores the machine as a snapshot of which this server is the only member.
func (r *Recovery) persist(g *Group, stores *storage.Stores, machine raftgroup.Machine) error {
	self := raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(r.id.ServerID()),
		Address: raft.ServerAddress(r.id.ServerID())}
	sink, err := stores.Snapshots.Create(1, g.LastIndex, g.LastTerm,
		raft.Configuration{Servers: []raft.Server{self}}, 1, nil)
	if err != nil {
		return fmt.Errorf("storing a snapshot: %w", err)
	}
	snapshot := machine.Snapshot()
	defer snapshot.Release()
	if d, ok := sink.(storage.DigestSetter); ok {
		d.SetDigest(snapshot.Digest())
	}
	if _, err := snapshot.WriteTo(sink); err != nil {
		return fmt.Errorf("storing a snapshot: %w", errors.Join(err, sink.Cancel()))
	}
	if err := sink.Close(); err != nil {
		return fmt.Errorf("storing a snapshot: %w", err)
	}
	return nil
}
