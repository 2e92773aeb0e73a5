package server

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// incarnationFile has the server id of a node that is to found a cluster with others and has not
// done so yet. The founder writes that id into the first configuration of every group. If the
// process ends before it has heard of the cluster, its next start must use the same id. Otherwise,
// if all founders restarted at that moment, the cluster would consist of servers that never come
// back.
const incarnationFile = "incarnation"

// keepIncarnation returns the incarnation of a node without a cluster. It stores it, so that the
// next start in the directory gets the same one.
func keepIncarnation(dir, name string) (string, error) {
	path, fsys := filepath.Join(dir, incarnationFile), disk.OSFS{}
	data, err := disk.ReadFile(fsys, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the incarnation that an earlier start made: %w", err)
	}
	if kept, ok := strings.CutPrefix(strings.TrimSpace(string(data)), name+"."); ok && identity.ValidIncarnation(kept) {
		return kept, nil
	}
	made := identity.NewIncarnation()
	if err := disk.ReplaceFile(fsys, path, []byte(name+"."+made+"\n")); err != nil {
		return "", fmt.Errorf("keeping the incarnation for the next start: %w", err)
	}
	return made, nil
}

// forgetIncarnation removes the file of keepIncarnation. It is called once the node's identity is
// in the data directory.
func forgetIncarnation(dir string) error {
	disk := disk.OSFS{}
	err := disk.Remove(filepath.Join(dir, incarnationFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = disk.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("removing the incarnation that was kept for this start: %w", err)
	}
	return nil
}
