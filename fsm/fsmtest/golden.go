package fsmtest

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Golden compares encodings with files in the folder testdata of the package under test.
type Golden struct {
	// Update has the files rewritten: only for a new version of a format.
	Update bool
}

// Check compares got with the file of a name, as hex lines that a diff can show.
func (g Golden) Check(tb testing.TB, name string, got []byte) {
	tb.Helper()
	var text strings.Builder
	for chunk := range slices.Chunk(got, 32) {
		text.WriteString(hex.EncodeToString(chunk) + "\n")
	}
	file := filepath.Join("testdata", name+".hex")
	if g.Update {
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text.String()); diff != "" {
		tb.Errorf("%s has changed: logs and snapshots on disk could no longer be read (-file +now):\n%s", file, diff)
	}
}

// Sealed puts a checksum behind b, so that a test reaches the decoder behind it.
func Sealed(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(b), crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// GoldenBytes returns the content of a golden file.
func GoldenBytes(tb testing.TB, name string) []byte {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".hex"))
	if err != nil {
		tb.Fatal(err)
	}
	data, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}
