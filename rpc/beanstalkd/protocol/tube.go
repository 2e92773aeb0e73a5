package protocol

import (
	"strings"
)

// TubeBytesMax bounds the name of a tube.
const TubeBytesMax = 200

// DefaultTube is the tube that a new connection uses and watches.
const DefaultTube = "default"

// ValidTube reports whether a name is one of a tube.
func ValidTube(name []byte) bool {
	if len(name) == 0 || len(name) > TubeBytesMax || name[0] == '-' {
		return false
	}
	for _, b := range name {
		if !queueByte(b) && strings.IndexByte("+/;$()", b) < 0 {
			return false
		}
	}
	return true
}

// queueByte reports whether a byte may be in names of tubes and in those of queues.
func queueByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '.' || b == '_'
}

// A queue's name is `name` or `namespace/name`, and has fewer characters than a tube's. So a byte of
// a tube that cannot stand there is escaped as a colon, which no tube has, and two hexadecimal
// digits. The first slash of a tube ends its namespace if there is something on both sides of it.

// QueueOf returns the queue of a valid tube.
func QueueOf(tube string) string {
	namespace, name, found := strings.Cut(tube, "/")
	if !found || namespace == "" || name == "" {
		return escape(tube)
	}
	return escape(namespace) + "/" + escape(name)
}

const hexDigits = "0123456789ABCDEF"

// escape returns the segment of a queue's name for a part of a tube's name.
func escape(part string) string {
	all := part == "." || part == ".."
	plain := true
	for i := range len(part) {
		plain = plain && queueByte(part[i])
	}
	if plain && !all {
		return part
	}
	var out strings.Builder
	for i := range len(part) {
		if b := part[i]; queueByte(b) && !all {
			out.WriteByte(b)
		} else {
			out.Write([]byte{':', hexDigits[b>>4], hexDigits[b&15]})
		}
	}
	return out.String()
}

// TubeOf returns the tube of a queue; false if no tube has the queue.
func TubeOf(queue string) (tube string, ok bool) {
	var out strings.Builder
	for i := 0; i < len(queue); i++ {
		b := queue[i]
		if b == ':' {
			if i+2 >= len(queue) {
				return "", false
			}
			high, low := strings.IndexByte(hexDigits, queue[i+1]), strings.IndexByte(hexDigits, queue[i+2])
			if high < 0 || low < 0 {
				return "", false
			}
			b = byte(high<<4 | low)
			i += 2
		}
		out.WriteByte(b)
	}
	tube = out.String()
	return tube, ValidTube([]byte(tube)) && QueueOf(tube) == queue
}

// Ids of jobs on the wire are numbers: a job is found by the serial that its shard gave it.

// shardsMax bounds the shards of a cluster.
const shardsMax = 1024

// IDOf returns the id of the job with a serial in a shard.
func IDOf(shard uint32, serial uint64) uint64 { return serial*shardsMax + uint64(shard) }

// SplitID returns the shard and the serial of a job.
func SplitID(id uint64) (shard uint32, serial uint64) {
	return uint32(id % shardsMax), id / shardsMax //nolint:gosec // below shardsMax
}
