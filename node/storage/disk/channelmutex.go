// Package disk is the file system of a node: the interface that storage writes through, files with
// checksums, the lock of a data directory, the watchdog over writes, and the guard of free space.
// It knows nothing of Raft.
package disk

// ChannelMutex is a mutex for holders that wait for the disk. In the virtual time of the tests no
// time passes while a goroutine waits for a sync.Mutex, so a disk that hangs would hang the test.
type ChannelMutex chan struct{}

// NewChannelMutex returns an unlocked mutex.
func NewChannelMutex() ChannelMutex { return make(ChannelMutex, 1) }

// Lock waits until the mutex is unlocked and locks it.
func (m ChannelMutex) Lock() { m <- struct{}{} }

// Unlock unlocks the mutex.
func (m ChannelMutex) Unlock() { <-m }
