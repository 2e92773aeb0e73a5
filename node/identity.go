package node

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/storage/disk"
)

const (
	// dataFormat is the version of the layout of a data directory. dataFormatLeft is the version of
	// a directory that a group has left; a program that knows only dataFormat would found the group
	// anew. dataFormatQuarantined is the version of a directory in which a replica was set aside; a
	// program that knows only the older versions would serve it. A directory of any other version
	// is refused.
	dataFormat            = 1
	dataFormatLeft        = 2
	dataFormatQuarantined = 3

	identityFile = "node.json"
	shardsDir    = "shards"
	groupsDir    = "groups"

	incarnationBytes = 8
	clusterIDBytes   = 16
)

// identity is the identity of a data directory. It is written and synced before all other files. It
// never changes, except for Format, Groups, Left, Quarantined, Speaks, MinVoters and NoAutoCreate.
type identity struct {
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
	Founding *Founding `json:"founding,omitempty"`
	// Groups are the groups that were founded or joined. If the files of one are missing, they were
	// lost: the node refuses the group rather than found it again.
	Groups []string `json:"groups"`
	// Left are the groups that were here and left. Their files hold only term and vote, or are
	// about to be reduced to these.
	Left []string `json:"left,omitempty"`
	// Quarantined are the groups whose replica here was set aside, because its state differs from
	// the others' or cannot be restored.
	Quarantined []string `json:"quarantined,omitempty"`

	// FS is the file system of the data directory.
	FS disk.FS `json:"-"`
	// Speaks is the format in which the node was told to write its logs; other nodes may have used
	// it for longer. 0 is the first format. A program that cannot read the format refuses the
	// directory.
	Speaks fsm.Format `json:"speaks,omitempty"`
	// MinVoters is the value that the node received last; 0 stands for 1. See Node.RequireVoters.
	MinVoters int `json:"minVoters,omitempty"`
	// NoAutoCreate is the value that the node received last. See Node.RefuseNewQueues.
	NoAutoCreate bool `json:"noAutoCreate,omitempty"`
}

// serverID returns the server id of this node in Raft.
func (id *identity) serverID() string { return id.Name + "." + id.Incarnation }

// loadIdentity reads the identity of the data directory, or makes one if the directory is new.
func loadIdentity(cfg Config) (*identity, error) {
	path := filepath.Join(cfg.Dir, identityFile)
	data, err := disk.ReadFile(cfg.FS, path)
	if errors.Is(err, fs.ErrNotExist) {
		return newIdentity(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the node's identity: %w", err)
	}
	id, err := parseIdentity(path, data)
	if err != nil {
		return nil, err
	}
	// A killed process may have renamed the file and not synced the directory. The node acts on the
	// identity, so a power failure must not undo the rename.
	if err := cfg.FS.SyncDir(cfg.Dir); err != nil {
		return nil, fmt.Errorf("syncing the directory of the node's identity: %w", err)
	}
	id.FS = cfg.FS
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

// Identity is the identity of the node of a data directory.
type Identity struct {
	ClusterID, Name, ServerID string
	Shards                    int
}

// Identify returns the identity of a data directory; ok is false if the directory is new.
func Identify(dir string) (who Identity, ok bool, err error) {
	path := filepath.Join(dir, identityFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, false, nil
	}
	if err != nil {
		return Identity{}, false, fmt.Errorf("reading the node's identity: %w", err)
	}
	id, err := parseIdentity(path, data)
	if err != nil {
		return Identity{}, false, err
	}
	return Identity{ClusterID: id.ClusterID, Name: id.Name, ServerID: id.serverID(), Shards: id.Shards}, true, nil
}

// NewIncarnation returns 64 random bits for Config.Incarnation.
func NewIncarnation() string { return randomHex(incarnationBytes) }

// ValidIncarnation reports whether text is an incarnation.
func ValidIncarnation(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == incarnationBytes
}

// newIdentity makes the identity of a new data directory and writes it durably.
func newIdentity(cfg Config) (*identity, error) {
	for _, name := range []string{shardsDir, groupsDir} {
		if _, err := cfg.FS.ReadDir(filepath.Join(cfg.Dir, name)); err == nil {
			return nil, fmt.Errorf("%s holds %s but no %s: restore that file, of which any copy made after the first start "+
				"will do if nothing else is missing; without it the node would forget who it is", cfg.Dir, name, identityFile)
		}
	}
	id := &identity{
		Format: dataFormat, ClusterID: cfg.Join, Name: cfg.Name, Incarnation: cfg.Incarnation,
		Shards: cfg.Shards, Store: cfg.Store, Founder: cfg.Join == "" && cfg.Founding == nil,
		Founding: cfg.Founding, FS: cfg.FS,
	}
	setDefault(&id.Name, DefaultName)
	setDefault(&id.Incarnation, NewIncarnation())
	setDefault(&id.Shards, DefaultShards)
	if id.ClusterID == "" {
		id.ClusterID = randomHex(clusterIDBytes)
	}
	if id.Founding != nil {
		if err := id.Founding.Check(id.Shards); err != nil {
			return nil, err
		}
		if !slices.Contains(id.Founding.Servers, id.serverID()) {
			return nil, fmt.Errorf("%s is none of the nodes that found the cluster: %s", id.serverID(),
				strings.Join(id.Founding.Servers, ", "))
		}
		id.Speaks = id.Founding.Format
	}
	return id, id.save(cfg.Dir)
}

// founded records that the named groups exist, unless that is already recorded.
func (id *identity) founded(dir string, groups ...string) error {
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
	return id.become(dir, next)
}

// enter records that a group is about to be here, for the first time or again. Its files must
// exist: from now on the group is refused without them.
func (id *identity) enter(dir, group string) error {
	next := *id
	next.Groups = append(without(id.Groups, group), group)
	next.Left = without(id.Left, group)
	return id.become(dir, next)
}

// leave records that a group is about to leave.
func (id *identity) leave(dir, group string) error {
	next := *id
	next.Format = max(id.Format, dataFormatLeft)
	next.Groups = without(id.Groups, group)
	next.Quarantined = without(id.Quarantined, group)
	next.Left = append(without(id.Left, group), group)
	return id.become(dir, next)
}

// quarantine records that a group's replica must not be served again.
func (id *identity) quarantine(dir, group string) error {
	next := *id
	next.Format = dataFormatQuarantined
	next.Groups = without(id.Groups, group)
	next.Quarantined = append(without(id.Quarantined, group), group)
	return id.become(dir, next)
}

// speak records the format in which logs are written from now on.
func (id *identity) speak(dir string, format fsm.Format) error {
	next := *id
	next.Speaks = format
	return id.become(dir, next)
}

// requireVoters records the number of voters below which shards refuse mutations from now on.
func (id *identity) requireVoters(dir string, least int) error {
	next := *id
	next.MinVoters = least
	return id.become(dir, next)
}

// setNoAutoCreate records whether puts into queues that do not exist are refused from now on.
func (id *identity) setNoAutoCreate(dir string, refuse bool) error {
	next := *id
	next.NoAutoCreate = refuse
	return id.become(dir, next)
}

// become saves next and adopts it. If that fails with a *storage.UnsettledError, either version may
// be on the disk.
func (id *identity) become(dir string, next identity) error {
	if err := next.save(dir); err != nil {
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

// save replaces the identity file such that a crash leaves either the old one or the new one.
func (id *identity) save(dir string) error {
	path := filepath.Join(dir, identityFile)
	if err := disk.ReplaceFile(id.FS, path, id.format()); err != nil {
		return fmt.Errorf("writing the node's identity: %w", err)
	}
	return nil
}

// format returns the content of the identity file: a JSON document and a line with its checksum.
func (id *identity) format() []byte {
	document, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("node: an identity cannot be encoded: %v", err)) // strings and integers only
	}
	return fmt.Appendf(nil, "%s\ncrc32c %08x\n", document, identitySum(document))
}

// parseIdentity reads the content of an identity file. A defect is a *storage.CorruptError, except
// for an unknown format version.
func parseIdentity(path string, data []byte) (*identity, error) {
	damaged := func(offset int64, err error, format string, args ...any) error {
		corrupt := &disk.CorruptError{File: path, Offset: offset, Detail: fmt.Sprintf(format, args...), Err: err}
		// Groups may be out of date in a copy; the next start completes them.
		return fmt.Errorf("%w. Of %s alone any copy made after the first start will do, if nothing else is missing", corrupt,
			identityFile)
	}
	document, last, ok := bytes.Cut(data, []byte("\ncrc32c "))
	if !ok {
		return nil, damaged(int64(len(data)), nil, "its last line, the checksum, is missing")
	}
	if got, want := fmt.Sprintf("%08x", identitySum(document)), strings.TrimSpace(string(last)); got != want {
		return nil, damaged(0, nil, "the checksum is %s, its last line says %s", got, want)
	}
	id := &identity{}
	if err := json.Unmarshal(document, id); err != nil {
		var offset int64
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			offset = syntax.Offset
		}
		return nil, damaged(offset, err, "it is no identity of a node")
	}
	if id.Format < dataFormat || id.Format > dataFormatQuarantined {
		return nil, fmt.Errorf("%s: the data directory has format %d, this program reads %d to %d: use the version of "+
			"belfry that wrote it",
			path, id.Format, dataFormat, dataFormatQuarantined)
	}
	if err := id.Speaks.Readable(); err != nil && id.Speaks != 0 {
		return nil, fmt.Errorf("%s: the data is %w: use the version of belfry that wrote it, or a later one; nothing was "+
			"changed", path, err)
	}
	if !ValidName(id.Name) || id.Incarnation == "" || id.ClusterID == "" || id.Shards < 1 || id.Shards > ShardsMax {
		return nil, damaged(0, nil, "a field is missing or out of range")
	}
	if id.Founding != nil {
		if err := id.Founding.Check(id.Shards); err != nil {
			return nil, damaged(0, err, "its founding makes no sense")
		}
	}
	return id, nil
}

func identitySum(document []byte) uint32 {
	return crc32.Checksum(document, crc32.MakeTable(crc32.Castagnoli))
}

// randomHex returns n random bytes in hexadecimal.
func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// shardDir returns the directory of a shard below the data directory.
func shardDir(dir string, shard uint32) string {
	return filepath.Join(dir, shardsDir, fmt.Sprintf("%04d", shard))
}

// groupDir returns the directory of a group that is not a shard.
func groupDir(dir, group string) string { return filepath.Join(dir, groupsDir, group) }
