package disk

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// inodesFew is the number of free inodes below which a file system counts as out of them.
const inodesFew = 8

// ExplainFull tells an operator what the file system of dir lacks, and what to do, if DiskFull
// reports err. It is empty for any other error.
func ExplainFull(dir string, err error) string {
	if !Full(err) {
		return ""
	}
	free, _ := freeBytes(dir) // 0 if it is not known, since the disk was full
	all, left, _ := inodes(dir)
	return explainFull(dir, free, all, left)
}

// inodes returns how many files the file system of dir may have, and how many more can be made. A
// file system without a fixed number has 0 of 0.
func inodes(dir string) (all, free uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return uint64(st.Files), uint64(st.Ffree), nil //nolint:gosec,unconvert // their types differ between systems
}

// explainFull explains a file system with so many free bytes, inodes and free inodes. A file system
// without a fixed number of inodes has 0 of 0.
func explainFull(dir string, free, inodes, inodesFree uint64) string {
	const then = "then start the node again; its data is not damaged"
	if inodes > 0 && inodesFree < inodesFew {
		return fmt.Sprintf("the file system of %s has %d MiB free, and %d of %d inodes: 'df -i %s' shows them; remove "+
			"files from it, or move the data directory to a file system with more inodes; %s",
			dir, free>>20, inodesFree, inodes, dir, then)
	}
	return fmt.Sprintf("the file system of %s is full, with %d MiB free, or a quota on it is used up: 'df %s' shows it; "+
		"remove files from it, or make it larger; %s", dir, free>>20, dir, then)
}
