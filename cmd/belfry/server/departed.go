package server

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/belfrydb/belfry/cluster"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/storage"
)

// departedFile is in the data directory of a node that was told that it left its cluster for good. It spares a node that starts again to open its
// replicas before it hears the same once more.
const departedFile = "departed.json"

// departedRecord is its content. It counts for the node and the cluster that it names only: a recovery makes another cluster of the same directory.
type departedRecord struct {
	ClusterID string `json:"clusterId"`
	ServerID  string `json:"serverId"`
	Heir      string `json:"heir,omitempty"`
}

// DepartedError says that the node left its cluster for good, and what an operator can do.
type DepartedError struct {
	// Dir is the data directory that is of no use any more.
	Dir string
	Err *cluster.DepartedError
}

// Error says both.
func (e *DepartedError) Error() string {
	return fmt.Sprintf("%s; what is in %s is of no use to the cluster: to join it as a new node, give it an empty data directory", e.Err, e.Dir)
}

// Unwrap returns the cluster's word.
func (e *DepartedError) Unwrap() error { return e.Err }

// checkDeparted returns a *DepartedError if a data directory is that of a node that left for good. A record that cannot be read does not count: the
// cluster says it again.
func checkDeparted(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, departedFile))
	if err != nil {
		return nil //nolint:nilerr // there is none as a rule
	}
	var r departedRecord
	if json.Unmarshal(data, &r) != nil {
		return nil
	}
	who, _, err := node.Identify(dir)
	if err != nil {
		return nil //nolint:nilerr // whoever opens the directory says what is wrong with it
	}
	if who.ClusterID != r.ClusterID || who.ServerID != r.ServerID {
		return nil
	}
	return &DepartedError{dir, &cluster.DepartedError{ServerID: r.ServerID, ClusterID: r.ClusterID, Heir: r.Heir}}
}

// farewell is what a server was told of its end by its cluster.
type farewell struct {
	dir  string
	once sync.Once
	said chan struct{} // closed when err is set
	err  error
}

func newFarewell(dir string) *farewell { return &farewell{dir: dir, said: make(chan struct{})} }

// say takes what the cluster says, and keeps it in the data directory.
func (f *farewell) say(left *cluster.DepartedError) {
	f.once.Do(func() {
		f.err = &DepartedError{f.dir, left}
		if err := f.keep(left); err != nil {
			f.err = fmt.Errorf("%w (and this could not be written down: %w)", f.err, err)
		}
		close(f.said)
	})
}

func (f *farewell) keep(left *cluster.DepartedError) error {
	data, err := json.Marshal(departedRecord{ClusterID: left.ClusterID, ServerID: left.ServerID, Heir: left.Heir})
	if err != nil {
		return fmt.Errorf("encoding %s: %w", departedFile, err)
	}
	return storage.ReplaceFile(storage.OSFS{}, filepath.Join(f.dir, departedFile), append(data, '\n'))
}

// text returns what was said, nil if nothing was.
func (f *farewell) text() error {
	select {
	case <-f.said:
		return f.err
	default:
		return nil
	}
}
