package server

import "syscall"

// connectionsMost bounds the connections of clients on a system that allows any number. Each takes
// about ten kilobytes of memory.
const connectionsMost = 16384

// connectionsMax returns how many connections clients may have: half of the files that the process
// may open. The other half is for the logs of shards and for other nodes: a node that cannot open a
// file stops.
func connectionsMax(files uint64) int { return int(min(files/2, connectionsMost)) } //nolint:gosec // it is small

// openFilesMax returns how many files the process may have open.
func openFilesMax() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // the usual minimum of systems
	}
	return uint64(limit.Cur)
}
