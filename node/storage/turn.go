package storage

// turn lets one goroutine at a time go on. It is a channel because whoever waits for a disk that hangs must be seen to wait:
// in the virtual time of the tests, no time passes while a goroutine waits for a mutex.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take() { t <- struct{}{} }

func (t turn) give() { <-t }
