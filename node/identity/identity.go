// Package identity keeps the identity of a data directory: which node of which cluster it belongs
// to, and which groups it holds, in the file node.json. A node reads it before all other files and
// records in it what the next start must know. The package also has the names of the directories of
// the groups. It knows no group and no node.
package identity

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/founding"
	"github.com/belfrydb/belfry/node/storage/disk"
)

const (
	// formatFirst is the version of the layout of a data directory. formatLeft is the version of a
	// directory that a group has left; a program that knows only formatFirst would found the group
	// anew. formatQuarantined is the version of a directory in which a replica was set aside; a
	// program that knows only the older versions would serve it. A directory of any other version
	// is refused.
	formatFirst       = 1
	formatLeft        = 2
	formatQuarantined = 3

	shardsDir = "shards"
	groupsDir = "groups"

	incarnationBytes = 8
	clusterIDBytes   = 16
)

// NameBytesMax bounds the length of a node's name.
const NameBytesMax = 64

// File is the name of the file of the identity in a data directory.
const File = "node.json"

// The values of a new data directory whose Config names none.
const (
	DefaultName   = "node"
	DefaultShards = 6
)

// Config says which data directory to load, and what its identity is expected to be.
type Config struct {
	// Dir is the data directory, which exists, on FS. Both are required.
	Dir string
	FS  disk.FS
	// Name and Shards are those of a new directory; zero values mean the defaults. Load refuses a
	// directory that has others, unless they are zero. Name must be a ValidName, and Shards at most
	// founding.ShardsMax.
	Name   string
	Shards int
	// Join is the id of the cluster that a new directory joins. If it is empty, the directory gets
	// the id of a new cluster. Load refuses a directory of another cluster, unless Join is empty.
	Join string
	// Incarnation, Store and Founding are those of a new directory. An existing one keeps its own.
	// Load makes an incarnation if it is empty. Founding is nil unless several nodes found the
	// cluster.
	Incarnation string
	Store       string
	Founding    *founding.Plan
}

// Record is the content of the file of the identity. It is written and synced before all other
// files. It never changes, except for Format, Groups, Left, Quarantined, Speaks, MinVoters and
// NoAutoCreate: methods write these to the disk, then change them. The caller's lock guards them.
// The other fields may be read at any time.
//
// If such a method fails, the Record is unchanged. After a *disk.UnsettledError either version may
// be on the disk; after another error the old one is.
type Record struct {
	Format    int    `json:"format"`
	ClusterID string `json:"clusterId"`
	Name      string `json:"name"`
	// Incarnation is 64 random bits in hexadecimal, made with the directory. A directory made anew
	// under the same name is another server to Raft: it must not vote again in a term in which its
	// predecessor may have voted.
	Incarnation string `json:"incarnation"`
	Shards      int    `json:"shards"`
	Store       string `json:"store"`
	// Founder is set on the one node that founded the cluster alone: it bootstraps each group with
	// itself as only voter.
	Founder bool `json:"founder"`
	// Founding is set on each node that founded the cluster together with others.
	Founding *founding.Plan `json:"founding,omitempty"`
	// Groups are the groups that were founded or joined. If the files of one are missing, they were
	// lost: the node refuses the group rather than found it again.
	Groups []string `json:"groups"`
	// Left are the groups that were here and left. Their files hold only term and vote, or are
	// about to be reduced to these.
	Left []string `json:"left,omitempty"`
	// Quarantined are the groups whose replica here was set aside, because its state differs from
	// the others' or cannot be restored.
	Quarantined []string `json:"quarantined,omitempty"`

	// Dir is the data directory, on FS.
	Dir string  `json:"-"`
	FS  disk.FS `json:"-"`
	// Speaks is the format in which the node was told to write its logs; other nodes may have used
	// it for longer. 0 is the first format. A program that cannot read the format refuses the
	// directory.
	Speaks fsm.Format `json:"speaks,omitempty"`
	// MinVoters is the value that the node received last; 0 stands for 1. See RequireVoters.
	MinVoters int `json:"minVoters,omitempty"`
	// NoAutoCreate is the value that the node received last. See RefuseNewQueues.
	NoAutoCreate bool `json:"noAutoCreate,omitempty"`
}

// ServerID returns the server id of this node in Raft: name.incarnation.
func (id *Record) ServerID() string { return id.Name + "." + id.Incarnation }

// Load reads the identity of a data directory, or makes one if the directory is new. What it
// returns is durable. Damage is a *disk.CorruptError.
func Load(cfg Config) (*Record, error) {
	id, err := Read(cfg.FS, cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return create(cfg)
	}
	if err != nil {
		return nil, err
	}
	// A killed process may have renamed the file and not synced the directory. The node acts on the
	// identity, so a power failure must not undo the rename.
	if err := cfg.FS.SyncDir(cfg.Dir); err != nil {
		return nil, fmt.Errorf("syncing the directory of the node's identity: %w", err)
	}
	if cfg.Name != "" && cfg.Name != id.Name {
		return nil, fmt.Errorf("%s belongs to node %q, not %q: use the right data directory, or leave out the node's name",
			cfg.Dir, id.Name, cfg.Name)
	}
	if cfg.Join != "" && cfg.Join != id.ClusterID {
		return nil, fmt.Errorf("%s belongs to cluster %s, not %s: use the right data directory", cfg.Dir,
			id.ClusterID, cfg.Join)
	}
	if cfg.Shards != 0 && cfg.Shards != id.Shards {
		return nil, fmt.Errorf("%s has %d shards, not %d, and keeps that number: leave out the number of shards, or use "+
			"another data directory",
			cfg.Dir, id.Shards, cfg.Shards)
	}
	return id, nil
}

// Read reads the identity of a data directory without a sync, so that a power failure may undo the
// last change. The error is fs.ErrNotExist if the directory is new, and a *disk.CorruptError for
// damage.
func Read(fsys disk.FS, dir string) (*Record, error) {
	path := filepath.Join(dir, File)
	data, err := disk.ReadFile(fsys, path)
	if err != nil {
		return nil, fmt.Errorf("reading the node's identity: %w", err)
	}
	id, err := parse(path, data)
	if err != nil {
		return nil, err
	}
	id.Dir, id.FS = dir, fsys
	return id, nil
}

// Identity says which node of which cluster a data directory belongs to.
type Identity struct {
	ClusterID, Name, ServerID string
	Shards                    int
}

// Identity returns the part of the record that other packages need.
func (id *Record) Identity() Identity {
	return Identity{ClusterID: id.ClusterID, Name: id.Name, ServerID: id.ServerID(), Shards: id.Shards}
}

// Identify returns the identity of a data directory; ok is false if the directory is new. It
// changes nothing, and the directory may be in use.
func Identify(dir string) (who Identity, ok bool, err error) {
	id, err := Read(disk.OSFS{}, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, false, nil
	}
	if err != nil {
		return Identity{}, false, err
	}
	return id.Identity(), true, nil
}

// NewIncarnation returns 64 random bits for Config.Incarnation, in hexadecimal.
func NewIncarnation() string { return randomHex(incarnationBytes) }

// ValidIncarnation reports whether text is an incarnation.
func ValidIncarnation(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == incarnationBytes
}

// NewClusterID returns 128 random bits for the id of a new cluster, in hexadecimal.
func NewClusterID() string { return randomHex(clusterIDBytes) }

// ValidClusterID reports whether text is the id of a cluster.
func ValidClusterID(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == clusterIDBytes
}

// ValidName reports whether name may be a node's name: 1 to 64 characters of [A-Za-z0-9_-]. A dot
// is not allowed, because a server id is name.incarnation.
func ValidName(name string) bool {
	if name == "" || len(name) > NameBytesMax {
		return false
	}
	for _, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// create makes the identity of a new data directory and writes it durably.
func create(cfg Config) (*Record, error) {
	for _, name := range []string{shardsDir, groupsDir} {
		if _, err := cfg.FS.ReadDir(filepath.Join(cfg.Dir, name)); err == nil {
			return nil, fmt.Errorf("%s holds %s but no %s: restore that file, of which any copy made after the first start "+
				"will do if nothing else is missing; without it the node would forget who it is", cfg.Dir, name, File)
		}
	}
	id := &Record{
		Format: formatFirst, ClusterID: cmp.Or(cfg.Join, NewClusterID()), Name: cmp.Or(cfg.Name, DefaultName),
		Incarnation: cmp.Or(cfg.Incarnation, NewIncarnation()), Shards: cmp.Or(cfg.Shards, DefaultShards),
		Store: cfg.Store, Founder: cfg.Join == "" && cfg.Founding == nil,
		Founding: cfg.Founding, Dir: cfg.Dir, FS: cfg.FS,
	}
	if id.Founding != nil {
		if err := id.Founding.Check(id.Shards); err != nil {
			return nil, err
		}
		if !slices.Contains(id.Founding.Servers, id.ServerID()) {
			return nil, fmt.Errorf("%s is none of the nodes that found the cluster: %s", id.ServerID(),
				strings.Join(id.Founding.Servers, ", "))
		}
		id.Speaks = id.Founding.Format
	}
	return id, id.Save()
}

// FirstVoters returns the first voters of a group that this node founds, alone or with others. It
// returns nil if this node does not found the group.
func (id *Record) FirstVoters(group string) []string {
	switch {
	case id.Founder:
		return []string{id.ServerID()}
	case id.Founding == nil:
		return nil
	}
	voters := id.Founding.Voters(group)
	if !slices.Contains(voters, id.ServerID()) {
		return nil
	}
	return voters
}

// Found records that the named groups exist, unless that is already recorded.
func (id *Record) Found(groups ...string) error {
	next := *id
	next.Groups = slices.Clone(id.Groups)
	for _, group := range groups {
		if !slices.Contains(next.Groups, group) {
			next.Groups = append(next.Groups, group)
		}
	}
	if len(next.Groups) == len(id.Groups) {
		return nil
	}
	return id.become(next)
}

// Enter records that a group is about to be here, for the first time or again. Its files must
// exist: from now on the group is refused without them.
func (id *Record) Enter(group string) error {
	next := *id
	next.Groups = append(without(id.Groups, group), group)
	next.Left = without(id.Left, group)
	return id.become(next)
}

// Leave records that a group is about to leave.
func (id *Record) Leave(group string) error {
	next := *id
	next.Format = max(id.Format, formatLeft)
	next.Groups = without(id.Groups, group)
	next.Quarantined = without(id.Quarantined, group)
	next.Left = append(without(id.Left, group), group)
	return id.become(next)
}

// Quarantine records that a group's replica must not be served again.
func (id *Record) Quarantine(group string) error {
	next := *id
	next.Format = formatQuarantined
	next.Groups = without(id.Groups, group)
	next.Quarantined = append(without(id.Quarantined, group), group)
	return id.become(next)
}

// Speak records the format in which logs are written from now on.
func (id *Record) Speak(format fsm.Format) error {
	next := *id
	next.Speaks = format
	return id.become(next)
}

// RequireVoters records the number of voters below which shards refuse mutations from now on.
func (id *Record) RequireVoters(least int) error {
	next := *id
	next.MinVoters = least
	return id.become(next)
}

// RefuseNewQueues records that puts into queues that do not exist are refused from now on.
func (id *Record) RefuseNewQueues() error { return id.setNoAutoCreate(true) }

// MakeNewQueues undoes RefuseNewQueues.
func (id *Record) MakeNewQueues() error { return id.setNoAutoCreate(false) }

func (id *Record) setNoAutoCreate(refuse bool) error {
	next := *id
	next.NoAutoCreate = refuse
	return id.become(next)
}

// become saves next and adopts it.
func (id *Record) become(next Record) error {
	if err := next.Save(); err != nil {
		return err
	}
	// The other fields are read without a lock.
	id.Format, id.Groups, id.Left, id.Quarantined = next.Format, next.Groups, next.Left, next.Quarantined
	id.Speaks, id.MinVoters, id.NoAutoCreate = next.Speaks, next.MinVoters, next.NoAutoCreate
	return nil
}

// without returns a copy of groups without group.
func without(groups []string, group string) []string {
	return slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return g == group })
}

// Save replaces the file such that a crash leaves either the old one or the new one.
func (id *Record) Save() error {
	path := filepath.Join(id.Dir, File)
	if err := disk.ReplaceFile(id.FS, path, id.format()); err != nil {
		return fmt.Errorf("writing the node's identity: %w", err)
	}
	return nil
}

// format returns the content of the file: a JSON document and a line with its checksum.
func (id *Record) format() []byte {
	document, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("identity: a record cannot be encoded: %v", err)) // strings and integers only
	}
	return fmt.Appendf(nil, "%s\ncrc32c %08x\n", document, sum(document))
}

// parse reads the content of the file at path. A defect is a *disk.CorruptError, except for an
// unknown format version.
func parse(path string, data []byte) (*Record, error) {
	damaged := func(offset int64, err error, format string, args ...any) error {
		corrupt := &disk.CorruptError{File: path, Offset: offset, Detail: fmt.Sprintf(format, args...), Err: err}
		// Groups may be out of date in a copy; the next start completes them.
		return fmt.Errorf("%w. Of %s alone any copy made after the first start will do, if nothing else is missing", corrupt,
			File)
	}
	document, last, ok := bytes.Cut(data, []byte("\ncrc32c "))
	if !ok {
		return nil, damaged(int64(len(data)), nil, "its last line, the checksum, is missing")
	}
	if got, want := fmt.Sprintf("%08x", sum(document)), strings.TrimSpace(string(last)); got != want {
		return nil, damaged(0, nil, "the checksum is %s, its last line says %s", got, want)
	}
	id := &Record{}
	if err := json.Unmarshal(document, id); err != nil {
		var offset int64
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			offset = syntax.Offset
		}
		return nil, damaged(offset, err, "it is no identity of a node")
	}
	if id.Format < formatFirst || id.Format > formatQuarantined {
		return nil, fmt.Errorf("%s: the data directory has format %d, this program reads %d to %d: use the version of "+
			"belfry that wrote it",
			path, id.Format, formatFirst, formatQuarantined)
	}
	if err := id.Speaks.Readable(); err != nil && id.Speaks != 0 {
		return nil, fmt.Errorf("%s: the data is %w: use the version of belfry that wrote it, or a later one; nothing was "+
			"changed", path, err)
	}
	if !ValidName(id.Name) || id.Incarnation == "" || id.ClusterID == "" || id.Shards < 1 ||
		id.Shards > founding.ShardsMax {
		return nil, damaged(0, nil, "a field is missing or out of range")
	}
	if id.Founding != nil {
		if err := id.Founding.Check(id.Shards); err != nil {
			return nil, damaged(0, err, "its founding makes no sense")
		}
	}
	return id, nil
}

func sum(document []byte) uint32 {
	return crc32.Checksum(document, crc32.MakeTable(crc32.Castagnoli))
}

// randomHex returns n random bytes in hexadecimal.
func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// ShardDir returns the directory of a shard below the data directory.
func ShardDir(dir string, shard uint32) string {
	return filepath.Join(dir, shardsDir, fmt.Sprintf("%04d", shard))
}

// GroupDir returns the directory of a group that is not a shard, below the data directory.
func GroupDir(dir, group string) string { return filepath.Join(dir, groupsDir, group) }
