package server

import "syscall"

// connectionsMost bounds the connections of clients where the system allows any number: each takes some ten kilobytes of memory.
const connectionsMost = 16384

// connectionsMax returns how many connections clients may have, given how many files the process may have open. The other half is for the logs of shards, and
// for other nodes: a node that cannot open a file stops.
func connectionsMax(files uint64) int { return int(min(files/2, connectionsMost)) } //nolint:gosec // it is small

// openFilesMax returns how many files the process may have open.
func openFilesMax() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // what systems give processes at least, as a rule
	}
	return uint64(limit.Cur)
}
