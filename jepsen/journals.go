package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/belfrydb/belfry/jepsen/checker"
	"github.com/belfrydb/belfry/jepsen/report"
	"github.com/belfrydb/belfry/node/journal"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// replica is how far a node had applied a shard when all replicas were equal, after the last call.
type replica struct {
	Node    string `json:"node"`
	Shard   uint32 `json:"shard"`
	Applied uint64 `json:"applied"`
}

// replicasOf takes them from the state of a cluster.
func replicasOf(status *belfryv1.GetClusterResponse) (all []replica) {
	for _, s := range status.GetShards() {
		for _, r := range s.GetReplicas() {
			all = append(all, replica{Node: r.GetNode(), Shard: s.GetShard(), Applied: r.GetAppliedIndex()})
		}
	}
	return all
}

// sizeJournals returns how long the journals in a directory are, by their names.
func sizeJournals(dir string) (map[string]int64, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil {
		return nil, fmt.Errorf("looking for journals: %w", err)
	}
	sizes := make(map[string]int64, len(files))
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("looking at a journal: %w", err)
		}
		sizes[filepath.Base(path)] = info.Size()
	}
	return sizes, nil
}

// readJournals reads what the nodes applied, each life of a process in a file of its own, named
// after the node and its start. They must be those of the run, as long as they were when it ended.
func readJournals(dir string, sizes map[string]int64) ([]checker.Journal, error) {
	have, err := sizeJournals(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for name, size := range sizes {
		if have[name] != size {
			return nil, fmt.Errorf("%s has %d bytes, not %d as when the run ended", filepath.Join(dir, name), have[name], size)
		}
		names = append(names, name)
	}
	if len(have) != len(sizes) {
		return nil, fmt.Errorf("%s has %d journals, the run had %d", dir, len(have), len(sizes))
	}
	slices.Sort(names)
	var journals []checker.Journal
	for _, file := range names {
		node, _, _ := strings.Cut(file, "-")
		j, err := readJournal(filepath.Join(dir, file), node)
		if err != nil {
			return nil, err
		}
		journals = append(journals, j)
	}
	return journals, nil
}

func readJournal(path, node string) (checker.Journal, error) {
	j := checker.Journal{Node: node}
	file, err := os.Open(path)
	if err != nil {
		return j, fmt.Errorf("opening a journal: %w", err)
	}
	err = journal.Read(file, func(entry journal.Entry) error {
		j.Entries = append(j.Entries, entry)
		return nil
	})
	if err := errors.Join(err, file.Close()); err != nil {
		return j, fmt.Errorf("%s: %w", path, err)
	}
	return j, nil
}

// cutShort reports the replicas whose journals end before the index that they had applied. A node
// without a journal would agree with every other node.
func cutShort(replicas []replica, journals []checker.Journal) (missing []report.Violation) {
	for _, r := range replicas {
		var last, own uint64 // of the shard's entries up to r.Applied; Raft's own are in no journal
		for _, j := range journals {
			for i := range j.Entries {
				if e := &j.Entries[i]; e.Shard == r.Shard && e.Index <= r.Applied {
					last = max(last, e.Index)
					if j.Node == r.Node {
						own = max(own, e.Index)
					}
				}
			}
		}
		if own < last || last == 0 {
			missing = append(missing, report.Violation{
				Invariant: itself, Text: fmt.Sprintf("%s had applied shard %d up to entry %d; its journals end at entry %d, "+
					"those of all nodes at %d", r.Node, r.Shard, r.Applied, own, last),
			})
		}
	}
	return missing
}
