// Package login seals the tokens of those who have logged in to the dashboard into cookies.
package login

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"
)

// Life is for how long a login lasts. It ends earlier with its token: the token is looked up
// for each page.
const Life = 12 * time.Hour

// A Sealer seals tokens into the cookies of those who have logged in. The cookie has the token, so
// that no node keeps a list of sessions, and a node that has the same secret reads the cookies of
// another. Without the secret a cookie tells nothing and cannot be made. Its methods may be called
// from any goroutine.
type Sealer struct {
	sealer cipher.AEAD
	now    func() time.Time
}

// NewSealer returns a sealer whose cookies every node with the same secret can read. An empty
// secret means a random one: logins then end with the process.
func NewSealer(secret []byte, now func() time.Time) (*Sealer, error) {
	if len(secret) == 0 {
		secret = make([]byte, 32)
		_, _ = rand.Read(secret) // never fails
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "belfry dashboard session 1", 32)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of sessions: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of sessions: %w", err)
	}
	sealer, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of sessions: %w", err)
	}
	return &Sealer{sealer, now}, nil
}

// Seal returns the value of a cookie for a token.
func (s *Sealer) Seal(token string) string {
	plain := binary.BigEndian.AppendUint64(nil, uint64(s.now().Add(Life).Unix()))
	return base64.RawURLEncoding.EncodeToString(s.sealer.Seal(nil, nil, append(plain, token...), nil))
}

// Open returns the token in a cookie; nothing if there is none that is valid now.
func (s *Sealer) Open(cookie string) string {
	sealed, err := base64.RawURLEncoding.DecodeString(cookie)
	if err != nil {
		return ""
	}
	plain, err := s.sealer.Open(nil, nil, sealed, nil)
	if err != nil || len(plain) < 8 || s.now().Unix() >= int64(binary.BigEndian.Uint64(plain)) {
		return ""
	}
	return string(plain[8:])
}
