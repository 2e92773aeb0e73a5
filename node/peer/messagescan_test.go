package peer

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// recorder is a raft.StreamLayer whose dials reach no server and record what is sent.
type recorder struct {
	sent chan []byte
	done chan struct{}
}

func (r *recorder) Accept() (net.Conn, error) { <-r.done; return nil, net.ErrClosed }
func (r *recorder) Close() error              { close(r.done); return nil }
func (r *recorder) Addr() net.Addr            { return serverAddr("recorder") }

func (r *recorder) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	near, far := net.Pipe()
	go func() {
		data, _ := io.ReadAll(far)
		r.sent <- data
	}()
	return near, nil
}

// recorded returns what the library sends for a call on its transport, which gets no answer. It
// must run in a bubble.
func recorded(t *testing.T, call func(trans *raft.NetworkTransport) error) []byte {
	t.Helper()
	r := &recorder{sent: make(chan []byte, 1), done: make(chan struct{})}
	trans := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: r, Timeout: time.Second,
		MaxRPCsInFlight: 1})
	if err := call(trans); err == nil {
		t.Error("a call that nobody answered succeeded")
	}
	data := <-r.sent
	if err := trans.Close(); err != nil {
		t.Error(err)
	}
	return data
}

// voteRequest returns a message of a peer that asks for a vote.
func voteRequest(t *testing.T) []byte {
	return recorded(t, func(trans *raft.NetworkTransport) error {
		return trans.RequestVote("n1.1", "n1.1", &raft.RequestVoteRequest{Term: 3}, &raft.RequestVoteResponse{})
	})
}

// snapshotRequest returns the message before a snapshot that claims a size.
func snapshotRequest(t *testing.T, size int64) []byte {
	return recorded(t, func(trans *raft.NetworkTransport) error {
		req := &raft.InstallSnapshotRequest{SnapshotVersion: 1, Term: 3, Size: size}
		return trans.InstallSnapshot("n1.1", "n1.1", req, &raft.InstallSnapshotResponse{}, strings.NewReader(""))
	})
}

// entriesOf returns n entries with data of the given size.
func entriesOf(n, size int) (entries []*raft.Log) {
	for i := range n {
		entries = append(entries, &raft.Log{
			Index: uint64(i) + 1, Term: 300_000, Type: raft.LogCommand, Data: bytes.Repeat([]byte{0xc1}, size),
			Extensions: []byte("x"), AppendedAt: time.Now(),
		})
	}
	return entries
}

// The scan finds the end of each message that the library sends, however it is cut into pieces.
func TestScanFindsTheEndOfMessages(t *testing.T) {
	header := raft.RPCHeader{ProtocolVersion: 3, ID: []byte("n2.1"), Addr: []byte(strings.Repeat("a", 300))}
	synctest.Test(t, func(t *testing.T) {
		messages := map[string][]byte{"vote": voteRequest(t), "snapshot": snapshotRequest(t, 1<<40)}
		for _, shape := range [][2]int{{0, 0}, {1, 0}, {1, 31}, {1, 200}, {64, 70_000}, {3, 1 << 20}, {1, EntryBytesMax},
			{MessageEntriesMax, 1}} {
			entries := entriesOf(shape[0], shape[1])
			messages[fmt.Sprintf("%d entries of %d bytes", shape[0], shape[1])] = recorded(t,
				func(trans *raft.NetworkTransport) error {
					req := &raft.AppendEntriesRequest{RPCHeader: header, Term: 1 << 50, PrevLogEntry: 7, Entries: entries,
						LeaderCommitIndex: 1}
					return trans.AppendEntries("n1.1", "n1.1", req, &raft.AppendEntriesResponse{})
				})
		}
		messages["pre-vote"] = recorded(t, func(trans *raft.NetworkTransport) error {
			return trans.RequestPreVote("n1.1", "n1.1", &raft.RequestPreVoteRequest{RPCHeader: header},
				&raft.RequestPreVoteResponse{})
		})
		messages["timeout now"] = recorded(t, func(trans *raft.NetworkTransport) error {
			return trans.TimeoutNow("n1.1", "n1.1", &raft.TimeoutNowRequest{RPCHeader: header}, &raft.TimeoutNowResponse{})
		})
		for name, message := range messages {
			for _, piece := range []int{1, 7, 4096, len(message) + 3} {
				if piece == 1 && len(message) > 100_000 {
					continue
				}
				if used, err := scanAll(append(bytes.Clone(message), "xyz"...), piece); err != nil || used != len(message) {
					t.Errorf("%s in pieces of %d: it ends after %d bytes, %v, want %d", name, piece, used, err, len(message))
				}
			}
			if used, err := scanAll(message[:len(message)-1], 1000); err != nil || used != -1 {
				t.Errorf("%s without its last byte seems to end after %d bytes, %v", name, used, err)
			}
		}
	})
}

// scanAll feeds data in pieces and returns where the message in it ends, -1 if it does not.
func scanAll(data []byte, piece int) (used int, err error) {
	var s messageScan
	for at := 0; at < len(data); at += piece {
		n, err := s.feed(data[at:min(at+piece, len(data))])
		if used += n; err != nil {
			return used, err
		}
		if s.ended {
			return used, nil
		}
	}
	return -1, nil
}

func TestScanOfEveryTag(t *testing.T) {
	tests := []struct {
		name  string
		value string
		rest  int // bytes after the tag and its length
	}{
		{"small number", "\x7f", 0}, {"negative number", "\xe0", 0}, {"nil", "\xc0", 0}, {"true", "\xc3", 0},
		{"empty map", "\x80", 0}, {"empty array", "\x90", 0}, {"empty text", "\xa0", 0}, {"text", "\xbf", 31},
		{"bin8", "\xc4\xff", 255}, {"bin16", "\xc5\x01\x02", 258}, {"bin32", "\xc6\x00\x01\x00\x02", 65538},
		{"empty bin32", "\xc6\x00\x00\x00\x00", 0},
		{"ext8", "\xc7\x03", 4}, {"ext16", "\xc8\x00\x03", 4}, {"ext32", "\xc9\x00\x00\x00\x03", 4},
		{"empty ext8", "\xc7\x00", 1},
		{"float32", "\xca", 4}, {"float64", "\xcb", 8}, {"uint8", "\xcc", 1}, {"uint16", "\xcd", 2}, {"uint32", "\xce", 4},
		{"uint64", "\xcf", 8},
		{"int8", "\xd0", 1}, {"int16", "\xd1", 2}, {"int32", "\xd2", 4}, {"int64", "\xd3", 8},
		{"fixext1", "\xd4", 2}, {"fixext2", "\xd5", 3}, {"fixext4", "\xd6", 5}, {"fixext8", "\xd7", 9},
		{"fixext16", "\xd8", 17},
		{"str8", "\xd9\x80", 128}, {"str16", "\xda\x00\x09", 9}, {"str32", "\xdb\x00\x00\x00\x09", 9},
		{"array16", "\xdc\x00\x02", 2}, {"array32", "\xdd\x00\x00\x00\x02", 2}, {"map16", "\xde\x00\x02", 4},
		{"map32", "\xdf\x00\x00\x00\x02", 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			value := tt.value + strings.Repeat("\x00", tt.rest)
			for _, within := range []string{"%s", "\x91%s", "\x82\x01%s\x02\xc0"} {
				data := "\x00" + fmt.Sprintf(within, value)
				for _, piece := range []int{1, 3, len(data) + 2} {
					if used, err := scanAll([]byte(data+"\xc0\xc0"), piece); err != nil || used != len(data) {
						t.Errorf("in %q it ends after %d bytes, %v, want %d", within, used, err, len(data))
					}
				}
			}
		})
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte("\x00\x81\xa7Entries\xdd\xff\xff\xff\xff"), uint8(1))
	f.Add([]byte("\x01\x82\xa4Term\x03\xa9Candidate\xc4\x02ab"), uint8(3))
	f.Fuzz(func(t *testing.T, data []byte, piece uint8) {
		whole, wholeErr := scanAll(data, len(data)+1)
		parts, partsErr := scanAll(data, int(piece)+1)
		if whole != parts || (wholeErr == nil) != (partsErr == nil) {
			t.Errorf("whole: %d, %v; in pieces: %d, %v", whole, wholeErr, parts, partsErr)
		}
		if whole > len(data) {
			t.Errorf("the message ends after %d of %d bytes", whole, len(data))
		}
	})
}
