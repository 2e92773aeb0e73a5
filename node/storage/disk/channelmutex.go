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
