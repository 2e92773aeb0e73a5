package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Info is what a node says of itself.
type Info struct {
	// Cluster is the id of the cluster that the node belongs to, empty as long as it belongs to none.
	Cluster string
	// Name is the node's name. ServerID is name.incarnation, and says which life of that name it is.
	Name, ServerID string
	// PeerAddr is where Raft and forwarding listen, ClientAddr where clients are served: host:port as
	// others dial them, or empty if the node does not listen.
	PeerAddr, ClientAddr string
	// Zone is the label by which replicas are spread; it may be empty.
	Zone string
	// Shards is the number of shards that the node has, or would found a cluster with.
	Shards uint32
	// Format is the latest fsm.Format that the node reads.
	Format uint32
}

const (
	// infoVersion is the version of the encoding. Another version is refused: a node that knows a
	// newer one writes the lowest version that the cluster speaks, as it does with the log.
	infoVersion = 1
	// infoBytesMax is what the library carries of a node.
	infoBytesMax = 512
	// nameBytesMax bounds names, ids and zones.
	nameBytesMax = 64
)

var errInfo = errors.New("not the description of a node")

// encode returns the form in which gossip carries the description: a version byte, six strings with
// their lengths, two numbers.
func (i Info) encode() ([]byte, error) {
	if err := i.check(); err != nil {
		return nil, err
	}
	b := []byte{infoVersion}
	for _, s := range []string{i.Cluster, i.Name, strings.TrimPrefix(i.ServerID, i.Name+"."), i.PeerAddr, i.ClientAddr,
		i.Zone} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	b = binary.AppendUvarint(b, uint64(i.Shards))
	b = binary.AppendUvarint(b, uint64(i.Format))
	if len(b) > infoBytesMax {
		return nil, fmt.Errorf("the node's ids, addresses and zone take %d bytes together, at most %d: use shorter ones",
			len(b), infoBytesMax)
	}
	return b, nil
}

// decodeInfo is the inverse of encode. It takes nothing that encode would not have written.
func decodeInfo(b []byte) (Info, error) {
	if len(b) == 0 || len(b) > infoBytesMax {
		return Info{}, fmt.Errorf("%w: %d bytes", errInfo, len(b))
	}
	if b[0] != infoVersion {
		return Info{}, fmt.Errorf("%w: version %d, this node reads %d", errInfo, b[0], infoVersion)
	}
	r := infoReader{rest: b[1:]}
	var i Info
	i.Cluster, i.Name = r.text(), r.text()
	i.ServerID = i.Name + "." + r.text()
	i.PeerAddr, i.ClientAddr, i.Zone = r.text(), r.text(), r.text()
	i.Shards, i.Format = r.number(), r.number()
	if r.broken || len(r.rest) != 0 {
		return Info{}, fmt.Errorf("%w: cut short or too long", errInfo)
	}
	if err := i.check(); err != nil {
		return Info{}, fmt.Errorf("%w: %w", errInfo, err)
	}
	return i, nil
}

// check reports what no node may say of itself.
func (i Info) check() error {
	incarnation, ok := strings.CutPrefix(i.ServerID, i.Name+".")
	switch {
	case !word(i.Name) || strings.Contains(i.Name, "."):
		return fmt.Errorf("%q cannot be a node's name", i.Name)
	case !ok || !word(incarnation):
		return fmt.Errorf("server id %q is not the name %q, a dot and an incarnation", i.ServerID, i.Name)
	case i.Cluster != "" && !word(i.Cluster):
		return fmt.Errorf("%q cannot be a cluster's id", i.Cluster)
	case !ValidZone(i.Zone):
		return fmt.Errorf("%q cannot be a zone", i.Zone)
	}
	for _, addr := range []string{i.PeerAddr, i.ClientAddr} {
		if addr != "" && !Dialable(addr) {
			return fmt.Errorf("%q is not host:port", addr)
		}
	}
	return nil
}

// ValidZone reports whether a node may say that it is in a zone: up to 64 visible letters of ASCII,
// or none.
func ValidZone(zone string) bool { return zone == "" || word(zone) }

// word reports whether s may be a name or an id: short, visible ASCII.
func word(s string) bool {
	return s != "" && len(s) <= nameBytesMax && visible(s)
}

func visible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// Dialable reports whether addr is host:port with a port that can be dialled.
func Dialable(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || !visible(addr) {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// infoReader reads the parts of an encoded description. After the first broken one all others are
// empty.
type infoReader struct {
	rest   []byte
	broken bool
}

func (r *infoReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	// A longer form of the same number is refused, so that each description has one encoding.
	if r.broken || n <= 0 || n > 1 && r.rest[n-1] == 0 {
		r.broken = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *infoReader) text() string {
	n := r.uvarint()
	if r.broken || n > uint64(len(r.rest)) {
		r.broken = true
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

func (r *infoReader) number() uint32 {
	v := r.uvarint()
	if v > 1<<32-1 {
		r.broken = true
		return 0
	}
	return uint32(v)
}
