package node

// turn lets one goroutine at a time go on. It stands where a mutex would be held while its holder waits for Raft, hence for the
// disk: in the virtual time of the tests, no time passes while a goroutine waits for a mutex, and a disk that hangs would hang the test.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take() { t <- struct{}{} }

func (t turn) give() { <-t }
