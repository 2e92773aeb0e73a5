package gossip

import "errors"

// noncesMax is the least number of packets remembered. The most is twice as many, in 3.6 MB. A
// node gets one or two packets a second while nothing changes, in clusters of any size: that lasts
// for nine hours.
const noncesMax = 1 << 16

// errReplayed is no reason for alarm: networks sometimes deliver a packet twice.
var errReplayed = errors.New("opened before: the network delivered it twice, or it was recorded and sent again")

// nonces remembers which packets were opened lately, so that each is opened once. Only opened
// packets count: a sender without the key cannot push entries out. It is for one goroutine.
type nonces struct {
	most int
	// older gets no more entries. It is dropped when newer is full.
	newer, older map[nonce]struct{}
}

func newNonces(most int) *nonces {
	return &nonces{most: most, newer: make(map[nonce]struct{}), older: make(map[nonce]struct{})}
}

// first remembers a nonce. It reports false if it was there before.
func (n *nonces) first(one nonce) bool {
	if _, known := n.older[one]; known {
		return false
	}
	if _, known := n.newer[one]; known {
		return false
	}
	if len(n.newer) >= n.most {
		n.newer, n.older = n.older, n.newer
		clear(n.newer)
	}
	n.newer[one] = struct{}{}
	return true
}
