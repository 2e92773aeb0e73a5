//go:build !linux

package network

import (
	"errors"
	"fmt"
	"net/netip"
)

// socketInode is for Linux, where the kernel tells whose a socket is.
func socketInode(remote, local netip.AddrPort) (uint32, error) {
	return 0, fmt.Errorf("the connection from %s to %s: whose it is can be told on Linux only: %w", remote, local,
		errors.ErrUnsupported)
}
