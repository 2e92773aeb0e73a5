package http1

import "sync"

// bufferBytes is the size of a new buffer, and of the head of a request at most.
const bufferBytes = headBytesMax

// buffers is a pool of buffers of at most kept bytes.
type buffers struct {
	pool sync.Pool
	kept int
}

// get returns an empty buffer.
func (b *buffers) get() *[]byte {
	if buffer, ok := b.pool.Get().(*[]byte); ok {
		*buffer = (*buffer)[:0]
		return buffer
	}
	buffer := make([]byte, 0, bufferBytes)
	return &buffer
}

// put returns a buffer. Its last user must be done with it.
func (b *buffers) put(buffer *[]byte) {
	if cap(*buffer) <= b.kept {
		b.pool.Put(buffer)
	}
}
