package gossip

import "errors"

// noncesMax is how many packets are remembered at least; at most it is twice as many, in 3.6 MB. A node gets one or two a second while nothing changes,
// in clusters of any size: nine hours' worth.
const noncesMax = 1 << 16

// errAgain is no reason for alarm: networks deliver a packet twice now and then.
var errAgain = errors.New("opened before: the network delivered it twice, or somebody who recorded it sent it again")

// nonces remembers which packets were opened lately, so that each is opened once. Only what could be opened gets here: a stranger cannot have it
// forget anything. It is for one goroutine.
type nonces struct {
	most int
	// older takes no more; it goes when newer is full.
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
