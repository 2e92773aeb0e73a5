package storage

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// manifest says what a directory is. It is written once, last of all files, when a group is
// created.
type manifest struct {
	Group  string `json:"group"`
	Engine Engine `json:"engine"`
	Salt   uint32 `json:"salt"`
}

func newManifest(group string, engine Engine) (manifest, error) {
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		return manifest{}, fmt.Errorf("drawing a salt: %w", err)
	}
	return manifest{Group: group, Engine: engine, Salt: binary.LittleEndian.Uint32(b[:])}, nil
}

func writeManifest(fsys FS, name string, m manifest) error {
	payload, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding manifest: %w", err)
	}
	return writeRecord(fsys, name, manifestMagic, payload)
}

func readManifest(fsys FS, name string) (manifest, error) {
	payload, err := readRecord(fsys, name, manifestMagic)
	if err != nil {
		return manifest{}, err
	}
	var m manifest
	if err := json.Unmarshal(payload, &m); err != nil {
		return manifest{}, &CorruptError{File: name, Detail: "not a manifest", Err: err}
	}
	return m, nil
}
