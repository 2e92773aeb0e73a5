package storage

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// These are the types of the group's checked records.
const (
	manifestMagic = "BLFYMANI"
	stableMagic   = "BLFYSTBL"
	walMetaMagic  = "BLFYWALM"
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

func writeManifest(fsys disk.FS, name string, m manifest) error {
	payload, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding manifest: %w", err)
	}
	return disk.WriteRecord(fsys, name, manifestMagic, payload)
}

func readManifest(fsys disk.FS, name string) (manifest, error) {
	payload, err := disk.ReadRecord(fsys, name, manifestMagic)
	if err != nil {
		return manifest{}, err
	}
	var m manifest
	if err := json.Unmarshal(payload, &m); err != nil {
		return manifest{}, &disk.CorruptError{File: name, Detail: "not a manifest", Err: err}
	}
	return m, nil
}
