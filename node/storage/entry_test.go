package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage/disk"
)

func fullEntry() *raft.Log {
	return &raft.Log{
		Index: 9, Term: 3, Type: raft.LogCommand, Data: []byte("data"), Extensions: []byte("ext"),
		AppendedAt: time.Unix(7, 8),
	}
}

// Rot in any byte of an entry is found, not only in its data: an entry of another index or term is
// another one.
func TestEntrySumCoversEveryByte(t *testing.T) {
	c := entryCodec{salt: 7}
	var b bytes.Buffer
	if err := c.Encode(fullEntry(), &b); err != nil {
		t.Fatal(err)
	}
	if err := c.Decode(b.Bytes(), &raft.Log{}); err != nil {
		t.Fatal(err)
	}
	for i := range b.Bytes() {
		for bit := range 8 {
			rotten := bytes.Clone(b.Bytes())
			rotten[i] ^= 1 << bit
			if err := c.Decode(rotten, &raft.Log{}); !errors.Is(err, errEntrySum) {
				t.Errorf("byte %d, bit %d: %v", i, bit, err)
			}
		}
	}
	if err := (entryCodec{salt: 8}).Decode(b.Bytes(), &raft.Log{}); !errors.Is(err, errEntrySum) {
		t.Errorf("an entry of another group: %v", err)
	}
}

// The bolt engine has the library encode the entry, and seals what the library is given.
func TestSealCoversEveryField(t *testing.T) {
	c := entryCodec{salt: 7}
	if err := c.unseal(c.seal(fullEntry())); err != nil {
		t.Fatal(err)
	}
	for name, rot := range map[string]func(l *raft.Log){
		"index":      func(l *raft.Log) { l.Index++ },
		"term":       func(l *raft.Log) { l.Term++ },
		"type":       func(l *raft.Log) { l.Type = raft.LogNoop },
		"data":       func(l *raft.Log) { l.Data = []byte("dbta") },
		"extensions": func(l *raft.Log) { l.Extensions[0]++ },
		"time":       func(l *raft.Log) { l.AppendedAt = l.AppendedAt.Add(1) },
		"sum":        func(l *raft.Log) { l.Extensions[len(l.Extensions)-1]++ },
		"no sum":     func(l *raft.Log) { l.Extensions = nil },
	} {
		sealed := c.seal(fullEntry())
		rot(sealed)
		if err := c.unseal(sealed); !errors.Is(err, errEntrySum) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (entryCodec{salt: 8}).unseal(c.seal(fullEntry())); !errors.Is(err, errEntrySum) {
		t.Errorf("an entry of another group: %v", err)
	}
}

// What a later program wrote is refused by its version, not misread: its checksum is right.
func TestLaterVersionsAreRefused(t *testing.T) {
	resum := func(b []byte) []byte {
		body := b[:len(b)-4]
		return binary.LittleEndian.AppendUint32(bytes.Clone(body), disk.SumBytes(0, body))
	}
	record := disk.EncodeRecord(stableMagic, []byte("payload"))
	record[8]++
	_, recordErr := disk.DecodeRecord(stableMagic, resum(record))

	header, _, err := encodeSnapshotHeader(snapshotMeta{Version: 1, ID: "id", Index: 3})
	if err != nil {
		t.Fatal(err)
	}
	header[8]++
	_, _, _, snapshotErr := readSnapshotHeader(bytes.NewReader(resum(header)))

	var c entryCodec
	var entry bytes.Buffer
	if err := c.Encode(fullEntry(), &entry); err != nil {
		t.Fatal(err)
	}
	b := entry.Bytes()
	b[4]++
	binary.LittleEndian.PutUint32(b, disk.SumBytes(c.salt, b[4:]))
	entryErr := c.Decode(b, &raft.Log{})

	for what, err := range map[string]error{"a small file": recordErr, "a snapshot": snapshotErr, "an entry": entryErr} {
		if err == nil || !strings.Contains(err.Error(), "version 2") {
			t.Errorf("%s of the next version: %v", what, err)
		}
	}
}
