package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

const (
	// netlinkDiag and diagByFamily are NETLINK_SOCK_DIAG and SOCK_DIAG_BY_FAMILY of the kernel's
	// linux/sock_diag.h.
	netlinkDiag  = 4
	diagByFamily = 20
	// diagRequestBytes is the size of inet_diag_req_v2 of linux/inet_diag.h, and diagInodeAt where in
	// an inet_diag_msg the number of the socket is.
	diagRequestBytes = 56
	diagInodeAt      = 68
)

// socketInode returns the number of the socket at the remote end of a connection of this machine.
// The kernel is asked for this one: /proc/net/tcp tells the same, but of every connection of the
// machine at once, which takes a core where connections come and go by the hundred.
func socketInode(remote, local netip.AddrPort) (uint32, error) {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, netlinkDiag)
	if err != nil {
		return 0, fmt.Errorf("asking the kernel for a connection: %w", err)
	}
	defer func() { _ = syscall.Close(fd) }() // it was only read
	if err := syscall.Sendto(fd, diagRequest(remote, local),
		0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("asking the kernel for a connection: %w", err)
	}
	buf := make([]byte, syscall.Getpagesize())
	count, _, err := syscall.Recvfrom(fd, buf, 0)
	if err != nil {
		return 0, fmt.Errorf("asking the kernel for a connection: %w", err)
	}
	return diagInode(buf[:count])
}

// diagRequest asks for one TCP socket by its two ends.
func diagRequest(own, other netip.AddrPort) []byte {
	b := make([]byte, 0, syscall.NLMSG_HDRLEN+diagRequestBytes)
	b = binary.NativeEndian.AppendUint32(b, syscall.NLMSG_HDRLEN+diagRequestBytes)
	b = binary.NativeEndian.AppendUint16(b, diagByFamily)
	b = binary.NativeEndian.AppendUint16(b, syscall.NLM_F_REQUEST)
	b = append(b, make([]byte, 8)...) // its number and ours: there is but one answer
	b = append(b, syscall.AF_INET, syscall.IPPROTO_TCP, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0)) // in any state
	b = binary.BigEndian.AppendUint16(b, own.Port())
	b = binary.BigEndian.AppendUint16(b, other.Port())
	for _, end := range []netip.AddrPort{own, other} {
		addr := end.Addr().As4()
		b = append(append(b, addr[:]...), make([]byte, 12)...) // there is room for an address of IPv6
	}
	b = append(b, 0, 0, 0, 0)                                // at any interface
	return append(b, 255, 255, 255, 255, 255, 255, 255, 255) // whatever its cookie
}

// diagInode reads the answer.
func diagInode(b []byte) (uint32, error) {
	messages, err := syscall.ParseNetlinkMessage(b)
	if err != nil || len(messages) == 0 {
		return 0, fmt.Errorf("the kernel's answer about a connection makes no sense: %w", errors.Join(err, syscall.EBADMSG))
	}
	data := messages[0].Data
	switch {
	case messages[0].Header.Type == syscall.NLMSG_ERROR && len(data) >= 4:
		//nolint:gosec // the kernel writes it as a negative number
		code := syscall.Errno(-int32(binary.NativeEndian.Uint32(data)))
		if code == syscall.ENOENT {
			return 0, errGone
		}
		return 0, fmt.Errorf("the kernel does not tell of connections, for which it needs inet_diag and tcp_diag: %w", code)
	case messages[0].Header.Type != diagByFamily || len(data) < diagInodeAt+4:
		return 0, fmt.Errorf("the kernel's answer about a connection makes no sense: %w", syscall.EBADMSG)
	}
	inode := binary.NativeEndian.Uint32(data[diagInodeAt:])
	if inode == 0 {
		return 0, errGone
	}
	return inode, nil
}
