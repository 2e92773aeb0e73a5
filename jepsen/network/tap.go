package network

import "sync"

// Passage is bytes on the way between a client and a node.
type Passage struct {
	Client, Node string
	// Answer says that they go from the node to the client.
	Answer bool
	// Passed is false before they pass, and true after they were handed to the receiver's side.
	Passed bool
	// Bytes are what passes: a piece of the stream, which need not begin or end where a message does.
	// They are neither to be kept nor changed.
	Bytes []byte
}

// Verdict is what a tap says of bytes that have not passed yet.
type Verdict int

const (
	// Pass lets them pass.
	Pass Verdict = iota
	// Break ends the connection by RST on both sides, and the bytes are lost.
	Break
)

// taps are the listeners, by client and node.
type taps struct {
	mu  sync.Mutex
	all map[[2]string]func(Passage) Verdict
}

// Tap calls f before and after each piece of data that passes between a client and a node, until
// stop is called; a nil f removes the tap. The goroutine that carries the bytes calls f, and the
// bytes wait meanwhile. So if f kills a node before it returns, the node is dead before the answer
// passes. The result of f counts only before bytes pass. A tap replaces the one before it.
func (n *Network) Tap(client, node string, f func(Passage) Verdict) (stop func()) {
	key := [2]string{client, node}
	n.taps.mu.Lock()
	defer n.taps.mu.Unlock()
	if n.taps.all == nil {
		n.taps.all = map[[2]string]func(Passage) Verdict{}
	}
	n.taps.all[key] = f
	return func() {
		n.taps.mu.Lock()
		defer n.taps.mu.Unlock()
		delete(n.taps.all, key)
	}
}

// ask asks the tap of a link, if there is one.
func (t *taps) ask(w way, b []byte, passed bool) Verdict {
	if w.service != Client {
		return Pass
	}
	t.mu.Lock()
	forth, back := t.all[[2]string{w.from, w.to}], t.all[[2]string{w.to, w.from}]
	t.mu.Unlock()
	switch {
	case forth != nil:
		return forth(Passage{Client: w.from, Node: w.to, Passed: passed, Bytes: b})
	case back != nil:
		return back(Passage{Client: w.to, Node: w.from, Answer: true, Passed: passed, Bytes: b})
	default:
		return Pass
	}
}
