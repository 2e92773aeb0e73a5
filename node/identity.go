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
)

const (
	// dataFormat is the version of the layout of a data directory. A directory of another one is refused.
	dataFormat   = 1
	identityFile = "node.json"
	shardsDir    = "shards"
	groupsDir    = "groups"

	incarnationBytes = 8
	clusterIDBytes   = 16
)

// identity is what a data directory is: written and synced before anything else in it, and never changed but for Groups.
type identity struct {
	Format    int    `json:"format"`
	ClusterID string `json:"clusterId"`
	Name      string `json:"name"`
	// Incarnation is 64 random bits in hexadecimal, made with the directory. A directory made anew under the same name is another
	// server to Raft: it must not vote again in a term in which its predecessor may have voted.
	Incarnation string `json:"incarnation"`
	Shards      int    `json:"shards"`
	Store       string `json:"store"`
	// Founder is set on the one node that founded the cluster: it bootstraps each group with itself as only voter.
	Founder bool `json:"founder"`
	// Groups are those that were founded or joined. One of them without files has lost them, and is refused rather than founded again.
	Groups []string `json:"groups"`
}

// serverID returns the id of this node for Raft.
func (id *identity) serverID() string { return id.Name + "." + id.Incarnation }

// loadIdentity reads the identity of the data directory, or makes one if the directory is new.
func loadIdentity(cfg Config) (*identity, error) {
	path := filepath.Join(cfg.Dir, identityFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newIdentity(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the node's identity: %w", err)
	}
	id, err := parseIdentity(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if cfg.Name != "" && cfg.Name != id.Name {
		return nil, fmt.Errorf("%s belongs to node %q, not %q: use the right data directory, or leave out the node's name", cfg.Dir, id.Name, cfg.Name)
	}
	if cfg.Join != "" && cfg.Join != id.ClusterID {
		return nil, fmt.Errorf("%s belongs to cluster %s, not %s: use the right data directory", cfg.Dir, id.ClusterID, cfg.Join)
	}
	return id, nil
}

// newIdentity makes the identity of a new data directory and makes it durable.
func newIdentity(cfg Config) (*identity, error) {
	for _, name := range []string{shardsDir, groupsDir} {
		if _, err := os.Stat(filepath.Join(cfg.Dir, name)); err == nil {
			return nil, fmt.Errorf("%s holds %s but no %s: restore that file; without it the node would forget who it is", cfg.Dir, name, identityFile)
		}
	}
	id := &identity{
		Format: dataFormat, ClusterID: cfg.Join, Name: cfg.Name, Incarnation: randomHex(incarnationBytes),
		Shards: cfg.Shards, Store: cfg.Store, Founder: cfg.Join == "",
	}
	setDefault(&id.Name, defaultName)
	if id.Founder {
		id.ClusterID = randomHex(clusterIDBytes)
	}
	return id, id.save(cfg.Dir)
}

// founded records that the named groups exist, unless they are recorded already.
func (id *identity) founded(dir string, groups ...string) error {
	before := len(id.Groups)
	for _, group := range groups {
		if !slices.Contains(id.Groups, group) {
			id.Groups = append(id.Groups, group)
		}
	}
	if len(id.Groups) == before {
		return nil
	}
	return id.save(dir)
}

// save replaces the identity file such that a crash leaves either the old one or the new one.
func (id *identity) save(dir string) error {
	path := filepath.Join(dir, identityFile)
	if err := writeFileSynced(path, id.format()); err != nil {
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

// parseIdentity reads the content of an identity file.
func parseIdentity(data []byte) (*identity, error) {
	document, last, ok := bytes.Cut(data, []byte("\ncrc32c "))
	if !ok {
		return nil, errors.New("the checksum is missing: the file is damaged; restore it")
	}
	if got, want := fmt.Sprintf("%08x", identitySum(document)), strings.TrimSpace(string(last)); got != want {
		return nil, fmt.Errorf("the checksum is %s, the file says %s: the file is damaged; restore it", got, want)
	}
	id := &identity{}
	if err := json.Unmarshal(document, id); err != nil {
		return nil, fmt.Errorf("the file is damaged; restore it: %w", err)
	}
	if id.Format != dataFormat {
		return nil, fmt.Errorf("the data directory has format %d, this program reads %d: use the version of belfry that wrote it", id.Format, dataFormat)
	}
	if !validName(id.Name) || id.Incarnation == "" || id.ClusterID == "" || id.Shards < 1 || id.Shards > shardsMax {
		return nil, errors.New("a field is missing or out of range: the file is damaged; restore it")
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

// writeFileSynced replaces a file: a new one is written beside it, synced and renamed, and the directory synced.
func writeFileSynced(path string, data []byte) (err error) {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	return err
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
