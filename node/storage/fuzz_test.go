package storage

import (
	"bytes"
	"io"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/types"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// memFile is a read-only File over bytes.
type memFile struct{ *bytes.Reader }

// WriteAt implements File.
func (memFile) WriteAt([]byte, int64) (int, error) { return 0, io.ErrShortWrite }

// Close implements File.
func (memFile) Close() error { return nil }

// Sync implements File.
func (memFile) Sync() error { return nil }

// SyncData implements File.
func (memFile) SyncData() error { return nil }

// Allocate implements File.
func (memFile) Allocate(int64) error { return nil }

// Size implements File.
func (f memFile) Size() (int64, error) { return f.Reader.Size(), nil }

// fuzzFS has one file under every name.
type fuzzFS struct {
	disk.OSFS
	content []byte
}

// OpenFile implements FS.
func (f fuzzFS) OpenFile(string, int) (disk.File, error) {
	return memFile{bytes.NewReader(f.content)}, nil
}

func FuzzEntryDecode(f *testing.F) {
	c := entryCodec{salt: 7}
	for _, l := range []*raft.Log{{}, {Index: 9, Term: 3, Data: []byte("data"), Extensions: []byte("ext")}} {
		var b bytes.Buffer
		if err := c.Encode(l, &b); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var l raft.Log
		if c.Decode(b, &l) != nil {
			return
		}
		var again bytes.Buffer
		if err := c.Encode(&l, &again); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.Bytes(), b) {
			t.Fatalf("% x decodes to %+v, which encodes to % x", b, l, again.Bytes())
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add(disk.EncodeRecord(stableMagic, encodePairs(map[string][]byte{
		"CurrentTerm": {0, 0, 0, 0, 0, 0, 0, 1}, "x": nil,
	})))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		payload, err := disk.DecodeRecord(stableMagic, b)
		if err == nil && !bytes.Equal(disk.EncodeRecord(stableMagic, payload), b) {
			t.Fatalf("% x was accepted", b)
		}
		if values, err := decodePairs(b); err == nil {
			again, err := decodePairs(encodePairs(values))
			if err != nil || len(again) != len(values) {
				t.Fatalf("%v became %v, %v", values, again, err)
			}
		}
	})
}

// The sums make random input useless, so the fuzzer is given files whose sums are made right again.
func FuzzSnapshotReader(f *testing.F) {
	header, sum, err := encodeSnapshotHeader(snapshotMeta{Version: 1, ID: "id", Index: 3})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("data"), uint64(2), uint64(4), true)
	f.Add([]byte{}, uint64(0), uint64(0), false)
	f.Fuzz(func(t *testing.T, data []byte, blocks, size uint64, last bool) {
		if len(data) > snapshotBlockBytes {
			return
		}
		block, s := encodeBlock(nil, data, sum)
		file := append(bytes.Clone(header), block...)
		if last {
			block, s = encodeBlock(nil, nil, s)
			file = append(file, block...)
		}
		file = append(file, encodeTrailer(snapshotTrailer{blocks: blocks, bytes: size, sum: s})...)
		r, err := openSnapshot(fuzzFS{content: file}, "f", nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		whole := blocks == 2 && size == uint64(len(data)) && len(data) > 0 && last ||
			blocks == 1 && size == 0 && len(data) == 0 && !last
		if (err == nil) != whole || whole && !bytes.Equal(got, data) {
			t.Fatalf("%d bytes, %d blocks, last %v: read %d, %v", size, blocks, last, len(got), err)
		}
	})
}

func FuzzScanSegment(f *testing.F) {
	f.Add([]byte{}, uint64(1))
	f.Add(bytes.Repeat([]byte{walFrameEntry, 0, 0, 0, 8, 0, 0, 0}, 12), uint64(1))
	f.Add(bytes.Repeat([]byte{walFrameCommit, 0, 0, 0, 0, 0, 0, 0}, 12), uint64(9))
	f.Fuzz(func(t *testing.T, b []byte, base uint64) {
		c := entryCodec{salt: 1}
		s, err := scanSegment(engineConfig{fsys: fuzzFS{content: b}, dir: "dir", codec: c}, segmentInfo(base))
		if err != nil {
			t.Fatal(err)
		}
		if s.end > s.size || s.next < base && base < 1<<63 || s.end == 0 && s.next != base {
			t.Fatalf("scan %+v of %d bytes", s, len(b))
		}
		if s.indexStart == 0 && s.stop == "" && !allZero(b[s.end:]) {
			t.Fatalf("% x was taken for a clean end at %d", b, s.end)
		}
		if _, err := laterBatch(fuzzFS{content: b}, c, s); err != nil {
			t.Fatal(err)
		}
	})
}

func segmentInfo(base uint64) types.SegmentInfo { return types.SegmentInfo{ID: 1, BaseIndex: base} }
