package server

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// departedFile is in the data directory of a node that its cluster has removed. A node that starts
// again with it need not open its replicas to learn the same.
const departedFile = "departed.json"

// departedRecord is the content of departedFile. It is valid only for the node and the cluster that
// it names: a recovery makes another cluster from the same directory.
type departedRecord struct {
	ClusterID   string `json:"clusterId"`
	ServerID    string `json:"serverId"`
	Replacement string `json:"heir,omitempty"`
}

// DepartedError says that the cluster removed this node, and what an operator can do.
type DepartedError struct {
	// Dir is the data directory, which is no longer of use.
	Dir string
	Err *catalog.DepartedError
}

// Error returns the cluster's error and the advice for the directory.
func (e *DepartedError) Error() string {
	return fmt.Sprintf("%s; what is in %s is of no use to the cluster: to join it as a new node, give it an empty data "+
		"directory", e.Err, e.Dir)
}

// Unwrap returns the cluster's error.
func (e *DepartedError) Unwrap() error { return e.Err }

// checkDeparted returns a *DepartedError if dir belongs to a node that its cluster removed. It
// ignores a record that cannot be read: the cluster sends the notice again.
func checkDeparted(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, departedFile))
	if err != nil {
		return nil //nolint:nilerr // there is usually none
	}
	var r departedRecord
	if json.Unmarshal(data, &r) != nil {
		return nil
	}
	who, _, err := identity.Identify(dir)
	if err != nil {
		return nil //nolint:nilerr // the open of the directory reports what is wrong with it
	}
	if who.ClusterID != r.ClusterID || who.ServerID != r.ServerID {
		return nil
	}
	return &DepartedError{dir,
		&catalog.DepartedError{ServerID: r.ServerID, ClusterID: r.ClusterID, Replacement: r.Replacement}}
}

// removalNotice is the cluster's notice that it removed this node.
type removalNotice struct {
	dir      string
	once     sync.Once
	received chan struct{} // closed when err is set
	err      error
}

func newRemovalNotice(dir string) *removalNotice {
	return &removalNotice{dir: dir, received: make(chan struct{})}
}

// receive stores the notice here and in the data directory.
func (f *removalNotice) receive(left *catalog.DepartedError) {
	f.once.Do(func() {
		f.err = &DepartedError{f.dir, left}
		if err := f.save(left); err != nil {
			f.err = fmt.Errorf("%w (and this could not be written down: %w)", f.err, err)
		}
		close(f.received)
	})
}

func (f *removalNotice) save(left *catalog.DepartedError) error {
	data, err := json.Marshal(
		departedRecord{ClusterID: left.ClusterID, ServerID: left.ServerID, Replacement: left.Replacement})
	if err != nil {
		return fmt.Errorf("encoding %s: %w", departedFile, err)
	}
	return disk.ReplaceFile(disk.OSFS{}, filepath.Join(f.dir, departedFile), append(data, '\n'))
}

// cause returns the notice as an error, nil if there is none.
func (f *removalNotice) cause() error {
	select {
	case <-f.received:
		return f.err
	default:
		return nil
	}
}
