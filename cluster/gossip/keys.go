package gossip

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
)

// keysMax bounds how many keys are tried on each packet.
const keysMax = 8

// A keyring seals with its first key and opens with any. It is replaced as a whole: memberlist's
// own ring moves keys inside a slice that concurrent readers hold, so removing one while packets
// arrive is a data race.
type keyring struct {
	keys atomic.Pointer[[]cipher.AEAD]
	open cipher.AEAD // of nodes without a key; it opens what they seal, in order to say so
	// keyless is set if the node itself runs without a key.
	keyless bool
}

// keylessSecret is what nodes without a key seal with. It is no secret. It keeps foreign programs
// and broken packets away from the library's parser. It also lets a node with a key report that
// another one has none.
const keylessSecret = "belfry gossip without a key, version 1"

// newKeyring returns a ring of the given keys, or of the public one if there is none.
func newKeyring(keys [][]byte) (*keyring, error) {
	sum := sha256.Sum256([]byte(keylessSecret))
	public, err := newAEAD(sum[:])
	if err != nil {
		return nil, err
	}
	r := &keyring{open: public, keyless: len(keys) == 0}
	if r.keyless {
		r.keys.Store(&[]cipher.AEAD{public})
		return r, nil
	}
	return r, r.replace(keys)
}

// replace takes other keys, at once for all packets that follow.
func (r *keyring) replace(keys [][]byte) error {
	ring := make([]cipher.AEAD, 0, len(keys))
	for _, key := range keys {
		aead, err := newAEAD(key)
		if err != nil {
			return err
		}
		ring = append(ring, aead)
	}
	r.keys.Store(&ring)
	return nil
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("preparing a gossip key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("preparing a gossip key: %w", err)
	}
	return aead, nil
}

// seal appends the sealed plain to head. Both head and what the frame is bound to are authenticated
// with it; bound is not sent.
func (r *keyring) seal(head, bound, plain []byte) []byte {
	return (*r.keys.Load())[0].Seal(head, nil, plain, slices.Concat(head, bound))
}

// Why a frame cannot be opened.
var (
	errWrongKey = errors.New("sealed with a key that this node does not have")
	errKeyless  = errors.New("sealed without a key")
)

// unseal opens what seal made. The error says whether the sender has another key or none. Content
// that is bound to something else looks like content sealed with another key.
func (r *keyring) unseal(head, bound, sealed []byte) ([]byte, error) {
	both := slices.Concat(head, bound)
	for _, key := range *r.keys.Load() {
		if plain, err := key.Open(nil, nil, sealed, both); err == nil {
			return plain, nil
		}
	}
	if _, err := r.open.Open(nil, nil, sealed, both); err == nil {
		return nil, errKeyless
	}
	return nil, errWrongKey
}

// ReadKeyFile reads gossip keys: one a line in standard base64, 16, 24 or 32 bytes each (AES-128,
// -192 or -256). The first seals what is sent, all open what arrives. Empty lines and lines that
// begin with # are passed over. Errors name the line, never its content.
func ReadKeyFile(path string) ([][]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the gossip keys: %w", err)
	}
	var keys [][]byte
	number := 0
	for line := range bytes.Lines(data) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(string(line))
		if err != nil {
			return nil, fmt.Errorf(
				"gossip keys: line %d of %s is not base64; want a key of 32 bytes, as 'head -c 32 /dev/urandom | base64' makes it",
				number, path)
		}
		if n := len(key); n != 16 && n != 24 && n != 32 {
			return nil, fmt.Errorf("gossip keys: line %d of %s is a key of %d bytes, it must have 16, 24 or 32", number, path, n)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || len(keys) > keysMax {
		return nil, fmt.Errorf("gossip keys: %s has %d keys, it must have 1 to %d", path, len(keys), keysMax)
	}
	return keys, nil
}
