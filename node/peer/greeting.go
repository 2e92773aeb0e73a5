package peer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// A greeting opens each connection between nodes, and answers the one that opened it:
//
//	4 bytes  "BLFY"
//	byte     protocol version
//	byte     verdict; 0 in an opening greeting
//	then cluster, group, sender, receiver, each: byte length, bytes
//	4 bytes  CRC-32C of all that, big-endian
//
// The layout up to the texts is the same in all versions, so that a later version can be told from
// garbage. A greeting has at most 6 + 4×256 + 4 bytes, whatever a stranger sends.
type greeting struct {
	version byte
	verdict verdict
	cluster string
	group   string
	// sender and receiver are server ids.
	sender   string
	receiver string
}

const (
	greetingMagic   = "BLFY"
	protocolVersion = 2
	greetingText    = 255
)

// verdict is the answer to a greeting.
type verdict byte

// The verdicts. Their numbers are part of the protocol.
const (
	accepted        verdict = 0
	refusedVersion  verdict = 1
	refusedCluster  verdict = 2
	refusedReceiver verdict = 3
	refusedSender   verdict = 4
	refusedGroup    verdict = 5
	refusedCrowd    verdict = 6
	refusedProof    verdict = 7
)

// String says what is wrong.
func (v verdict) String() string {
	switch v {
	case accepted:
		return "accepted"
	case refusedVersion:
		return "another protocol version"
	case refusedCluster:
		return "another cluster"
	case refusedReceiver:
		return "meant for another server"
	case refusedSender:
		return "from an impossible sender"
	case refusedGroup:
		return "no such group here"
	case refusedCrowd:
		return "too many connections already"
	case refusedProof:
		return "the certificate is another node's"
	default:
		return fmt.Sprintf("refused for reason %d", byte(v))
	}
}

// isStranger reports whether the greeting is that of Hello. A stranger names no cluster and no
// receiver, so the greetings of strangers and of members cannot be confused.
func (g greeting) isStranger() bool {
	return g.version == protocolVersion && g.cluster == "" && g.group == helloGroup && g.receiver == ""
}

// String describes the greeting for logs. Its texts come from a stranger, so they are quoted.
func (g greeting) String() string {
	if g.version != protocolVersion { // no other field was read
		return fmt.Sprintf("version %d, this program speaks %d", g.version, protocolVersion)
	}
	return fmt.Sprintf("version %d, cluster %q, group %q, sender %q, receiver %q", g.version, g.cluster, g.group,
		g.sender, g.receiver)
}

// writeGreeting sends g in one write.
func writeGreeting(w io.Writer, g greeting) error {
	buf := append([]byte(greetingMagic), g.version, byte(g.verdict))
	for _, text := range []string{g.cluster, g.group, g.sender, g.receiver} {
		if len(text) > greetingText {
			return fmt.Errorf("a greeting with a name of %d bytes cannot be sent; %d are the most", len(text), greetingText)
		}
		buf = append(buf, byte(len(text)))
		buf = append(buf, text...)
	}
	buf = binary.BigEndian.AppendUint32(buf, frameSum(0, buf))
	if _, err := w.Write(buf); err != nil {
		return fmt.Errorf("sending a greeting: %w", err)
	}
	return nil
}

// readGreeting reads exactly one greeting. Of a greeting in another version, it returns only the
// version and the verdict.
func readGreeting(from io.Reader) (greeting, error) {
	var whole bytes.Buffer
	r := io.TeeReader(from, &whole)
	head := make([]byte, len(greetingMagic)+2)
	if _, err := io.ReadFull(r, head); err != nil {
		return greeting{}, fmt.Errorf("reading a greeting: %w", err)
	}
	if string(head[:len(greetingMagic)]) != greetingMagic {
		return greeting{}, fmt.Errorf("reading a greeting: it begins with %q, this is no peer", head)
	}
	g := greeting{version: head[len(greetingMagic)], verdict: verdict(head[len(greetingMagic)+1])}
	if g.version != protocolVersion {
		return g, nil
	}
	for _, text := range []*string{&g.cluster, &g.group, &g.sender, &g.receiver} {
		var length [1]byte
		if _, err := io.ReadFull(r, length[:]); err != nil {
			return greeting{}, fmt.Errorf("reading a greeting: %w", err)
		}
		buf := make([]byte, length[0])
		if _, err := io.ReadFull(r, buf); err != nil {
			return greeting{}, fmt.Errorf("reading a greeting: %w", err)
		}
		*text = string(buf)
	}
	want := frameSum(0, whole.Bytes())
	var sum [4]byte
	if _, err := io.ReadFull(from, sum[:]); err != nil {
		return greeting{}, fmt.Errorf("reading a greeting: %w", err)
	}
	if err := compareSums("the sum of a greeting", 0, binary.BigEndian.Uint32(sum[:]), want); err != nil {
		return greeting{}, fmt.Errorf("reading a greeting: %w", err)
	}
	return g, nil
}
