package codec

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

// TestLengthsAreShort holds the lengths in a request: each is written in as few bytes as it takes,
// whatever its neighbours have, and what follows is as long.
func TestLengthsAreShort(t *testing.T) {
	sizes := []int{0, 1, 100, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 130, 16365, 16384, 16400, 3, 5}
	for n := range sizes {
		for _, from := range []int{0, len(sizes) - n} {
			req := &fsm.Request{Caller: "c", ID: "r"}
			for _, size := range sizes[from:][:n] {
				req.Commands = append(req.Commands, &fsm.Put{Queue: "q", Partitions: 1, Body: make([]byte, size)})
			}
			encoded := AppendRequest([]byte("before"), req)
			got, err := ParseRequest(encoded[len("before"):], fsm.FirstFormat)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range req.Commands {
				if len(got.Commands) != n || !bytes.Equal(got.Commands[i].(*fsm.Put).Body, c.(*fsm.Put).Body) {
					t.Fatalf("command %d of %d came back otherwise", i, n)
				}
			}
			rest := encoded[len("before")+2+2:]
			length := func() int {
				v, w := binary.Uvarint(rest)
				if least := len(binary.AppendUvarint(nil, v)); w != least {
					t.Fatalf("the length %d takes %d bytes, %d are enough", v, w, least)
				}
				rest = rest[w:]
				return int(v)
			}
			length() // the number of commands
			if v := length(); v != len(rest) {
				t.Fatalf("%d bytes of commands, there are %d", v, len(rest))
			}
			for range req.Commands {
				rest = rest[1:]
				v := length()
				rest = rest[v:]
			}
			if len(rest) != 0 {
				t.Fatalf("%d bytes are left", len(rest))
			}
		}
	}
}
